"""The cache that a compilation uses."""

from __future__ import annotations

import os

from torchtrt.setting_kinds import SWITCHES
from torchtrt_compiler.cache.engines import FOLDER_VARIABLE, EngineStore, NoCache


def cache_for(setting: bool | str | os.PathLike[str] | None) -> EngineStore:
    """Returns the cache for the setting ``engine_cache``. The environment decides where the setting is ``None``."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    where = SWITCHES.get(named.lower(), named) if setting is None else setting
    if not where:
        return NoCache()
    from torchtrt_compiler.cache.store import (
        open_cache,  # with libraries that few compilations need
    )

    return open_cache(where)
