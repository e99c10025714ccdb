"""Times the stages of a compilation, and shows them as progress bars."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping

from torchtrt_compiler.progress_bars import Bars, NoBars


class Stages:
    """Times stages into a mapping of names to seconds; a stage that comes again adds to its time.

    Args:
        seconds: Where the times go.
        show: Show progress bars on standard error; ``None`` shows them when it is a terminal.
    """

    def __init__(self, seconds: MutableMapping[str, float], show: bool | None = None) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._running: dict[str, tuple[int, float]] = {}
        self._bars: Bars | NoBars = NoBars()
        if sys.stderr.isatty() if show is None else show:
            self._bars = Bars()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextlib.contextmanager
    def stage(self, name: str, steps: int | None = None) -> Iterator[Callable[[], None]]:
        """Times a ``with`` block, and yields the function that moves its bar by one step.

        While several threads are in one stage, its time passes once.

        Args:
            name: The stage's name.
            steps: How often the function will be called, where known.
        """
        self._enter(name)
        try:
            with self._bars.bar(name, steps) as advance:
                yield advance
        finally:
            self._leave(name)

    def _enter(self, name: str) -> None:
        with self._lock:
            threads, start = self._running.get(name, (0, time.perf_counter()))
            self._running[name] = threads + 1, start

    def _leave(self, name: str) -> None:
        with self._lock:
            threads, start = self._running.pop(name)
            if threads > 1:
                self._running[name] = threads - 1, start
            else:
                spent = time.perf_counter() - start
                self.seconds[name] = self.seconds.get(name, 0.0) + spent
