"""The standard streams while packs are imported."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

_OF_BYTES = ("buffer", "raw")
_lock = threading.Lock()
_streams: list[tuple[Any, Any]] = []
"""The program's streams, once for each block that a thread is in."""


class _Lent:
    """A stream that the one who gets it can write to, but not close: neither itself nor the bytes below it.

    Args:
        stream: The stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stream, name)
        return _Lent(value) if name in _OF_BYTES else value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stream)

    def __enter__(self) -> _Lent:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is buffered: the stream is the program's."""
        self._stream.flush()
        self.closed = True

    def detach(self) -> Any:
        """Returns the bytes below, to which a stream in another encoding may write."""
        self._stream.flush()
        return next(getattr(self, name) for name in _OF_BYTES if hasattr(self._stream, name))


def _lent(stream: Any) -> Any:
    """Returns a stream to lend; a program without a console has none."""
    return None if stream is None else _Lent(stream)


@contextlib.contextmanager
def output_as_errors() -> Iterator[None]:
    """Makes standard output standard error in a block, because the former is a command's JSON.

    Code in the block can close or replace neither stream. Threads may be in blocks at the same time.
    """
    with _lock:
        _streams.append(_streams[0] if _streams else (sys.stdout, sys.stderr))
        if len(_streams) == 1:
            sys.stdout, sys.stderr = _lent(sys.stderr), _lent(sys.stderr)
    try:
        yield
    finally:
        with _lock:
            streams = _streams.pop()
            if not _streams:
                sys.stdout, sys.stderr = streams
