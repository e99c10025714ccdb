"""Engines as PyTorch modules: calling compiled models, loading saved ones, and what both need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_runtime.modules.compiled import CallInterface, CompiledModule
    from torchtrt_runtime.modules.engine import EngineModule
    from torchtrt_runtime.plans.exporting import export_engine
    from torchtrt_runtime.runtime_settings import RuntimeSettings
    from torchtrt_runtime.serialization.inspection import inspect_file
    from torchtrt_runtime.serialization.saving import load, save
    from torchtrt_runtime.streaming import WeightStreaming, weight_streaming

__all__ = [
    "CallInterface",
    "CompiledModule",
    "EngineModule",
    "RuntimeSettings",
    "WeightStreaming",
    "export_engine",
    "inspect_file",
    "load",
    "save",
    "weight_streaming",
]

_LAZY = {
    "torchtrt_runtime.modules.compiled": ("CallInterface", "CompiledModule"),
    "torchtrt_runtime.modules.engine": ("EngineModule",),
    "torchtrt_runtime.plans.exporting": ("export_engine",),
    "torchtrt_runtime.runtime_settings": ("RuntimeSettings",),
    "torchtrt_runtime.serialization.inspection": ("inspect_file",),
    "torchtrt_runtime.serialization.saving": ("load", "save"),
    "torchtrt_runtime.streaming": ("WeightStreaming", "weight_streaming"),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
