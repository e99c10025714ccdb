"""Pipelines of diffusers whose components run on TensorRT engines.

Nothing here imports diffusers before one of these names is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_converters_diffusers.loading import load_compiled_pipeline
    from torchtrt_converters_diffusers.pipeline import CompiledPipeline, compile_pipeline
    from torchtrt_converters_diffusers.report import ComponentReport, PipelineReport

__all__ = [
    "CompiledPipeline",
    "ComponentReport",
    "PipelineReport",
    "compile_pipeline",
    "load_compiled_pipeline",
]

_LAZY = {
    "torchtrt_converters_diffusers.loading": ("load_compiled_pipeline",),
    "torchtrt_converters_diffusers.pipeline": ("CompiledPipeline", "compile_pipeline"),
    "torchtrt_converters_diffusers.report": ("ComponentReport", "PipelineReport"),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
