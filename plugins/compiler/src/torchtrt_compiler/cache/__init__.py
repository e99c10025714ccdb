"""Engines that were built before: found by everything that changes an engine, and by nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchtrt.lazy import lazy_names

if TYPE_CHECKING:
    from torchtrt_compiler.cache.choice import cache_for, timings_for
    from torchtrt_compiler.cache.engines import BuiltEngine, EngineStore, NoCache
    from torchtrt_compiler.cache.folder import CacheFolder, open_folder
    from torchtrt_compiler.cache.key import engine_key
    from torchtrt_compiler.cache.store import EngineCache

__all__ = [
    "BuiltEngine",
    "CacheFolder",
    "EngineCache",
    "EngineStore",
    "NoCache",
    "cache_for",
    "engine_key",
    "open_folder",
    "timings_for",
]

_LAZY = {
    "torchtrt_compiler.cache.choice": ("cache_for", "timings_for"),
    "torchtrt_compiler.cache.engines": ("BuiltEngine", "EngineStore", "NoCache"),
    "torchtrt_compiler.cache.folder": ("CacheFolder", "open_folder"),
    "torchtrt_compiler.cache.key": ("engine_key",),
    "torchtrt_compiler.cache.store": ("EngineCache",),
}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
