"""Times the stages of a compilation, and shows them as progress bars on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, MutableMapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Stages:
    """Times stages into a mapping of names to seconds; a stage that comes again adds to its time.

    Args:
        seconds: Where the times go.
        show: Show progress bars on standard error; ``None`` shows them when it is a terminal.
    """

    def __init__(self, seconds: MutableMapping[str, float], show: bool | None = None) -> None:
        self.seconds = seconds
        self._bars: Progress | None = None
        if sys.stderr.isatty() if show is None else show:
            self._bars = Progress(
                TextColumn("{task.description:<13}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextlib.contextmanager
    def stage(self, name: str, steps: int | None = None) -> Iterator[None]:
        """Times a ``with`` block. ``steps`` is how often ``advance`` will be called, where known."""
        start = time.perf_counter()
        bar = None if self._bars is None else self._bars.add_task(name, total=steps)
        try:
            yield
        finally:
            if self._bars is not None and bar is not None:
                self._bars.update(bar, total=steps or 1, completed=steps or 1)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def advance(self) -> None:
        """Moves the last stage's bar by one step."""
        if self._bars is not None:
            self._bars.advance(self._bars.task_ids[-1])
