"""The effects of loading a pack on its process: the time that it takes, and the state that it changes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torchtrt.packs.environment import DISABLE
from torchtrt.packs.info import PackInfo
from torchtrt.packs.problem import Problem
from torchtrt.packs.process_state import differences, process_state

PATIENCE = 5.0
"""After how many seconds of loading a pack is named."""


@contextmanager
def named_if_slow(info: PackInfo) -> Iterator[None]:
    """Names a pack on standard error if it is still being loaded after some seconds: it may hang."""
    message = (
        f"torchtrt: The pack {info.name!r} ({info.origin}, {info.location}) is still being loaded after "
        f"{PATIENCE:.0f} seconds. {DISABLE}={info.name} goes without it."
    )
    timer = threading.Timer(PATIENCE, lambda: print(message, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class Watch:
    """Notes what packs change of the process while they are loaded, and names one that is slow.

    Attributes:
        problems: What packs changed.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @contextmanager
    def __call__(self, info: PackInfo) -> Iterator[None]:
        """Watches one pack."""
        before = process_state()
        try:
            with named_if_slow(info):
                yield
        finally:
            changes = "; ".join(differences(before, process_state()))
            if changes:
                what = f"loading it changes this process: {changes}"
                problem = Problem(what, info.advice, "changed-process")
                self.problems.append(problem.about(info))
