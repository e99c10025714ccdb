"""Times the stages of a compilation, and shows them as progress bars."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, MutableMapping

from torchtrt_compiler.progress_bars import Bars, NoBars


class Stages:
    """Times stages into a mapping of names to seconds; a stage that comes again adds to its time.

    Args:
        seconds: Where the times go.
        show: Show progress bars on standard error; ``None`` shows them when it is a terminal.
    """

    def __init__(self, seconds: MutableMapping[str, float], show: bool | None = None) -> None:
        self.seconds = seconds
        self._bars: Bars | NoBars = NoBars()
        if sys.stderr.isatty() if show is None else show:
            self._bars = Bars()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextlib.contextmanager
    def stage(self, name: str, steps: int | None = None) -> Iterator[None]:
        """Times a ``with`` block. ``steps`` is how often ``advance`` will be called, where known."""
        start = time.perf_counter()
        try:
            with self._bars.bar(name, steps):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def advance(self) -> None:
        """Moves the current stage's bar by one step."""
        self._bars.advance()
