"""The stages of a compilation as progress bars on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


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

    @contextmanager
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

    def bar(self, name: str, steps: int | None) -> AbstractContextManager[None]:
        """Returns a context that shows no bar."""
        del name, steps
        return nullcontext()

    def advance(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""
