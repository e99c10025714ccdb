"""PyTorch to TensorRT through installable converter packs.

``torchtrt.compile(model, inputs)`` compiles a model with the packs that are installed. Importing
this package finds the packs and merges their converters into one registry; it needs neither a GPU
nor TensorRT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torchtrt.engines  # the operator of saved models, which torch.export.load looks for  # noqa: F401
from torchtrt.lazy import lazy_names
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import trt, use_tensorrt

if TYPE_CHECKING:
    from torchtrt.compiler import compile, explain
    from torchtrt.engines import load, refit_module_weights, save
    from torchtrt.inputs import Input
    from torchtrt.registry import DYNAMO_CONVERTERS, dynamo_tensorrt_converter
    from torchtrt.runtime import CompiledModule

__version__ = "0.1.0"

__all__ = [
    "DYNAMO_CONVERTERS",
    "CompilationSettings",
    "CompiledModule",
    "Input",
    "compile",
    "dynamo_tensorrt_converter",
    "explain",
    "load",
    "refit_module_weights",
    "save",
    "trt",
    "use_tensorrt",
]

# Imported on first use: torch.export and what compiling needs take longer to import than all packs
# together.
_LAZY = {
    "CompiledModule": "torchtrt.runtime",
    "DYNAMO_CONVERTERS": "torchtrt.registry",
    "Input": "torchtrt.inputs",
    "compile": "torchtrt.compiler",
    "dynamo_tensorrt_converter": "torchtrt.registry",
    "explain": "torchtrt.compiler",
    "load": "torchtrt.engines",
    "refit_module_weights": "torchtrt.engines",
    "save": "torchtrt.engines",
}


__getattr__, __dir__ = lazy_names(globals(), _LAZY)


# Last: packs import torchtrt, so everything above must exist by now.
from torchtrt.packs import load_packs  # noqa: E402

load_packs()
