"""The memory of a compiled model's cache, which one running call has at a time."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from torchtrt_converters_transformers.cache import CacheLayout, EngineCache

_CALL: ContextVar[object] = ContextVar("torchtrt_call_of_a_model", default=None)
"""The innermost running call of a compiled model in this thread."""


class CacheMemory:
    """Lends one memory to caches, one after the other.

    A cache loses the memory when it is lent again, but not while a call runs that has it. A call in another thread, or
    one inside another, then gets no memory here.

    Args:
        layout: What the memory has room for.
        memory: ``layout.elements()`` elements, in the dtype of the cache.
    """

    def __init__(self, layout: CacheLayout, memory: Tensor) -> None:
        self.layout, self.memory = layout, memory
        self._lock = threading.Lock()
        self._lent: weakref.ref[EngineCache] | None = None
        self._running: set[object] = set()
        self._holder: object = None

    def __reduce__(self) -> Any:
        return CacheMemory, (self.layout, self.memory)  # a copy has lent nothing yet

    @property
    def lent(self) -> EngineCache | None:
        """The cache that has the memory; None if there is none any more."""
        return None if self._lent is None else self._lent()

    @contextmanager
    def in_call(self, cache: Any = None) -> Iterator[None]:
        """Keeps the memory from other calls while one runs that is lent it, or is given the cache that has it.

        Args:
            cache: The cache that the call is given, or None.
        """
        call = object()
        with self._lock:
            self._running.add(call)
            if cache is not None and cache is self.lent and self._holder not in self._running:
                self._holder = call
        outer = _CALL.set(call)
        try:
            yield
        finally:
            _CALL.reset(outer)
            with self._lock:
                self._running.discard(call)

    def lend(self, *, takes: bool) -> EngineCache | None:
        """Returns an empty cache with the memory, or None while another running call has it.

        Args:
            takes: Whether to take it from a cache of an earlier call.
        """
        call = _CALL.get()
        with self._lock:
            before = self.lent
            is_in_use = self._holder is not call and self._holder in self._running
            if is_in_use or not (takes or before is None):
                return None
            if before is not None:
                before.release()
            cache = EngineCache(self.layout, self.memory)
            self._lent, self._holder = weakref.ref(cache), call
            return cache
