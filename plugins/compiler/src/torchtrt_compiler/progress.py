"""Times the stages of a compilation, and shows them as progress bars on standard error."""

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


class Bars:
    """Progress bars, shown until ``stop``, which removes them."""

    def __init__(self) -> None:
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description:<13}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()

    @contextlib.contextmanager
    def bar(self, name: str, steps: int | None) -> Iterator[None]:
        """Shows a bar for a stage, which is full when the ``with`` block ends.

        Args:
            name: The stage's name.
            steps: How often ``advance`` will be called, where known.
        """
        task = self._task = self._progress.add_task(name, total=steps)
        try:
            yield
        finally:
            self._progress.update(task, total=steps or 1, completed=steps or 1)

    def advance(self) -> None:
        """Moves the last bar by one step."""
        if self._task is not None:
            self._progress.advance(self._task)

    def stop(self) -> None:
        """Removes the bars."""
        self._progress.stop()


class NoBars:
    """The bars of a compilation that shows none."""

    def bar(self, name: str, steps: int | None) -> contextlib.AbstractContextManager[None]:
        """Returns a context that shows no bar."""
        del name, steps
        return contextlib.nullcontext()

    def advance(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""
