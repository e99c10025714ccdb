"""PyTorch to TensorRT through installable converter packs.

``torchtrt.compile(model, inputs)`` compiles a model with the packs that are installed. Importing
this package finds the packs and merges their converters into one registry; it needs neither a GPU nor TensorRT.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt.compiler import compile, explain
    from torchtrt.engines import load, profile, refit_module_weights, save, weight_streaming
    from torchtrt.inputs import Input
    from torchtrt.registry import DYNAMO_CONVERTERS, dynamo_tensorrt_converter
    from torchtrt.runtime import CompiledModule
    from torchtrt.settings import CompilationSettings
    from torchtrt.tensorrt import trt, use_tensorrt

__version__ = "0.1.0"

__all__ = [
    "DYNAMO_CONVERTERS", "CompilationSettings", "CompiledModule", "Input", "compile",
    "dynamo_tensorrt_converter", "explain", "load", "profile", "refit_module_weights", "save",
    "trt", "use_tensorrt", "weight_streaming",
]  # fmt: skip

# Imported on first use: torch.export and what compiling needs take longer to import than all packs
# together, and the commands that look for what is broken import no PyTorch.
_LAZY = {
    "torchtrt.compiler": ("compile", "explain"),
    "torchtrt.engines": ("load", "profile", "refit_module_weights", "save", "weight_streaming"),
    "torchtrt.inputs": ("Input",),
    "torchtrt.registry": ("DYNAMO_CONVERTERS", "dynamo_tensorrt_converter"),
    "torchtrt.runtime": ("CompiledModule",),
    "torchtrt.settings": ("CompilationSettings",),
    "torchtrt.tensorrt": ("trt", "use_tensorrt"),
}


__getattr__, __dir__ = lazy_names(globals(), _LAZY)


# Last: packs import torchtrt, so everything above must exist by now.
from torchtrt.packs.environment import loads_packs_itself  # noqa: E402

if not loads_packs_itself(sys.orig_argv, sys.argv):
    from torchtrt import engines as engines  # with the operator that torch.export.load looks for
    from torchtrt.packs.state import load_packs

    load_packs()
