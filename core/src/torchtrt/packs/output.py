"""Standard output while packs are imported."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, redirect_stdout
from typing import Any


class _Lent:
    """A stream that the one who gets it can write to, but not close.

    Args:
        stream: The stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Writes what is buffered: the stream is the program's."""
        self._stream.flush()


def output_as_errors() -> AbstractContextManager[Any]:
    """Returns a block in which standard output is standard error, because the former is a command's JSON.

    Code that closes standard output in the block closes neither.
    """
    return redirect_stdout(_Lent(sys.stderr))
