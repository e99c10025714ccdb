"""Engines that were built before: found by everything that changes an engine, and by nothing else."""

from torchtrt_engines.cache.key import engine_key
from torchtrt_engines.cache.store import EngineCache, open_cache

__all__ = ["EngineCache", "engine_key", "open_cache"]
