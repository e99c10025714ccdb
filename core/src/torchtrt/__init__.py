"""PyTorch to TensorRT through installable converter packs.

``torchtrt.compile(model, inputs)`` compiles a model with the packs that are installed. Importing
this package finds the packs and merges their converters into one registry; it needs neither a GPU
nor TensorRT.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import trt, use_tensorrt

if TYPE_CHECKING:
    from torchtrt.compiler import compile, explain
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
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        message = f"module 'torchtrt' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Last: packs import torchtrt, so everything above must exist by now.
from torchtrt.packs import load_packs  # noqa: E402

load_packs()
