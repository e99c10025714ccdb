"""The life of engines beyond their process: saved, loaded, inspected, cached, and given other weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_engines.cache import EngineCache, open_cache
    from torchtrt_engines.execution import engine_outputs, execute_engine, no_gradients
    from torchtrt_engines.inspection import inspect_file
    from torchtrt_engines.refit import ProgramRecorder, refit_module_weights
    from torchtrt_engines.saving import load, save

__all__ = [
    "EngineCache",
    "ProgramRecorder",
    "engine_outputs",
    "execute_engine",
    "inspect_file",
    "load",
    "no_gradients",
    "open_cache",
    "refit_module_weights",
    "save",
]

_LAZY = {
    "EngineCache": "torchtrt_engines.cache",
    "ProgramRecorder": "torchtrt_engines.refit",
    "engine_outputs": "torchtrt_engines.execution",
    "execute_engine": "torchtrt_engines.execution",
    "inspect_file": "torchtrt_engines.inspection",
    "load": "torchtrt_engines.saving",
    "no_gradients": "torchtrt_engines.execution",
    "open_cache": "torchtrt_engines.cache",
    "refit_module_weights": "torchtrt_engines.refit",
    "save": "torchtrt_engines.saving",
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
