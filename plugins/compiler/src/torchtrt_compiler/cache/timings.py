"""The timings from which TensorRT chose kernels."""

from __future__ import annotations

import hashlib
from typing import Any

from torchtrt.tensorrt import Capability, selection, supports
from torchtrt_compiler.cache.entries import TIMINGS
from torchtrt_compiler.cache.storage import Storage


class TimingCache:
    """The timings in a storage: an entry for each TensorRT and GPU."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def use(self, config: Any) -> None:
        """Gives TensorRT the kernels' timings of earlier builds."""
        if not supports(Capability.TIMING_CACHE):
            return
        try:
            earlier = self._load()
        except OSError as error:
            self.storage.warn(error)
            return
        if not _set(config, earlier):
            self.storage.discard(_key(), f"no timings of {selection.describe()}")
            _set(config, b"")

    def keep(self, config: Any) -> None:
        """Keeps the timings of a build, beside those that other processes kept meanwhile."""
        timings = config.get_timing_cache() if supports(Capability.TIMING_CACHE) else None
        if timings is None:
            return
        with self.storage.lock("timings"):
            try:
                earlier = self._load()
                others = config.create_timing_cache(earlier) if earlier else None
                if others is not None:
                    timings.combine(others, ignore_mismatch=False)
                self.storage.save(_key(), [timings.serialize()])
            except OSError as error:
                self.storage.warn(error)

    def _load(self) -> bytes:
        entry = self.storage.load(_key())
        return b"" if entry is None else bytes(entry)


def _set(config: Any, earlier: bytes) -> bool:
    """Returns whether TensorRT takes timings: empty ones, or those of earlier builds."""
    timings = config.create_timing_cache(earlier)
    return timings is not None and bool(config.set_timing_cache(timings, ignore_mismatch=False))


def _key() -> str:
    what = f"{selection.describe()} {selection.describe_gpu()}"
    return f"{hashlib.sha256(what.encode()).hexdigest()[:16]}{TIMINGS}"
