"""The caches that a compilation uses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torchtrt.setting_kinds import SWITCHES
from torchtrt.settings import CompilationSettings
from torchtrt.stores import ByteStore
from torchtrt_compiler.cache.engines import FOLDER_VARIABLE
from torchtrt_compiler.cache.storage import Storage, StoreStorage

if TYPE_CHECKING:
    from torchtrt_compiler.cache.store import EngineCache
    from torchtrt_compiler.cache.timings import TimingCache

Cache = bool | str | os.PathLike[str] | ByteStore | None
"""A value of the setting ``engine_cache``. The environment decides where it is ``None``."""


def cache_for(setting: Cache) -> EngineCache | None:
    """Returns the cache of engines for the setting ``engine_cache``; None where none is kept."""
    storage = _storage(setting)
    if storage is None:
        return None
    from torchtrt_compiler.cache.store import (
        EngineCache,  # with libraries that few compilations need
    )

    return EngineCache(storage)


def timings_for(settings: CompilationSettings) -> TimingCache | None:
    """Returns the cache of timings: that of ``timing_cache``, or else of ``engine_cache``; None where none is kept."""
    own = settings.timing_cache
    storage = _storage(settings.engine_cache if own is None else own)
    if storage is None:
        return None
    from torchtrt_compiler.cache.timings import TimingCache

    return TimingCache(storage)


def _storage(setting: Cache) -> Storage | None:
    named = os.environ.get(FOLDER_VARIABLE, "")
    where = SWITCHES.get(named.lower(), named) if setting is None else setting
    if isinstance(where, ByteStore):
        return StoreStorage(where)
    if not where:
        return None
    from torchtrt_compiler.cache.folder import open_folder

    return open_folder(where)
