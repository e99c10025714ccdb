"""PyTorch to TensorRT through installable converter packs.

``torchtrt.compile(model, inputs)`` compiles a model with the packs that are installed. The first use finds the packs
and merges their converters into one registry. Importing this package needs neither packs nor a GPU nor TensorRT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt import packs as packs
from torchtrt.lazy import import_after, lazy_names

if TYPE_CHECKING:
    from torchtrt.registry import DYNAMO_CONVERTERS, dynamo_tensorrt_converter
    from torchtrt.settings import CompilationSettings
    from torchtrt.stores import ByteStore
    from torchtrt.tensorrt import trt, use_tensorrt
    from torchtrt_compiler import (
        Input,
        Number,
        compile,
        explain,
        export,
        profile,
        record_compilation,
        refit_module_weights,
    )
    from torchtrt_follow import follow
    from torchtrt_runtime import (
        CompiledModule,
        RuntimeSettings,
        export_engine,
        load,
        save,
        weight_streaming,
    )
    from torchtrt_runtime.plans.loading import engine_module
    from torchtrt_runtime.settings_context import runtime_settings

__version__ = "0.1.0"

__all__ = [
    "DYNAMO_CONVERTERS", "ByteStore", "CompilationSettings", "CompiledModule", "Input", "Number", "RuntimeSettings",
    "compile", "dynamo_tensorrt_converter", "engine_module", "explain", "export", "export_engine", "follow", "load",
    "profile", "record_compilation", "refit_module_weights", "runtime_settings", "save", "trt", "use_tensorrt",
    "weight_streaming",
]  # fmt: skip

# Imported on first use: torch.export and the compiler take longer to import than all packs
# together, and the commands that look for broken packs import no PyTorch.
_LAZY = {
    "torchtrt.registry": ("DYNAMO_CONVERTERS", "dynamo_tensorrt_converter"),
    "torchtrt.settings": ("CompilationSettings",),
    "torchtrt.stores": ("ByteStore",),
    "torchtrt.tensorrt": ("trt", "use_tensorrt"),
    "torchtrt_compiler": (
        "Input", "Number", "compile", "explain", "export", "profile", "record_compilation",
        "refit_module_weights",
    ),
    "torchtrt_follow": ("follow",),
    "torchtrt_runtime": (
        "CompiledModule", "RuntimeSettings", "export_engine", "load", "save", "weight_streaming",
    ),
    # The package has modules of these names.
    "torchtrt_runtime.plans.loading": ("engine_module",),
    "torchtrt_runtime.settings_context": ("runtime_settings",),
}  # fmt: skip

__getattr__, __dir__ = lazy_names(globals(), _LAZY)

# torch.export.load looks for the operator of saved models, whichever package a program imports first.
import_after("torch", "torchtrt.operators")
