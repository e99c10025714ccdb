"""Times the stages of a compilation and shows them as progress bars on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, MutableMapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Stages:
    """Times stages into a mapping of names to seconds; a stage that comes again adds to its time.

    Args:
        seconds: Where the times go.
        show: Show progress bars on standard error; ``None`` shows them when it is a terminal.
    """

    def __init__(self, seconds: MutableMapping[str, float], show: bool | None = None) -> None:
        self.seconds = seconds
        shown = sys.stderr.isatty() if show is None else show
        self._progress = Progress(
            TextColumn("{task.description:<13}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextlib.contextmanager
    def stage(self, name: str, steps: int | None = None) -> Iterator[None]:
        """Times a ``with`` block. ``steps`` is how often :meth:`advance` will be called, where known."""
        self._task = self._progress.add_task(name, total=steps)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            self._progress.update(self._task, total=steps or 1, completed=steps or 1)

    def advance(self) -> None:
        """Moves the current stage's bar by one step."""
        if self._task is not None:
            self._progress.advance(self._task)
