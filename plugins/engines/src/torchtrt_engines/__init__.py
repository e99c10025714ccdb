"""The life of engines beyond their process: saved, loaded, inspected, cached, and given other weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_engines.cache import EngineCache, open_cache
    from torchtrt_engines.execution import engine_outputs, execute_engine, no_gradients
    from torchtrt_engines.inspection import inspect_file
    from torchtrt_engines.profiling import CallProfile, ProfileEntry, example_leaves, profile
    from torchtrt_engines.refit import ProgramRecorder, refit_module_weights
    from torchtrt_engines.runner import runner_of
    from torchtrt_engines.saving import load, save
    from torchtrt_engines.streaming import WeightStreaming, weight_streaming
    from torchtrt_engines.tuning import tuned

__all__ = [
    "CallProfile",
    "EngineCache",
    "ProfileEntry",
    "ProgramRecorder",
    "WeightStreaming",
    "engine_outputs",
    "example_leaves",
    "execute_engine",
    "inspect_file",
    "load",
    "no_gradients",
    "open_cache",
    "profile",
    "refit_module_weights",
    "runner_of",
    "save",
    "tuned",
    "weight_streaming",
]

_LAZY = {
    "torchtrt_engines.cache": ("EngineCache", "open_cache"),
    "torchtrt_engines.execution": ("engine_outputs", "execute_engine", "no_gradients"),
    "torchtrt_engines.inspection": ("inspect_file",),
    "torchtrt_engines.profiling": ("CallProfile", "ProfileEntry", "example_leaves", "profile"),
    "torchtrt_engines.refit": ("ProgramRecorder", "refit_module_weights"),
    "torchtrt_engines.runner": ("runner_of",),
    "torchtrt_engines.saving": ("load", "save"),
    "torchtrt_engines.streaming": ("WeightStreaming", "weight_streaming"),
    "torchtrt_engines.tuning": ("tuned",),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
