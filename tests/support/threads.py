"""Calls of a model in other threads while a test changes something."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


@contextlib.contextmanager
def calls_in_other_threads(
    call: Callable[[], torch.Tensor], expected: Sequence[torch.Tensor], tolerance: float = 1e-4
) -> Iterator[list[Any]]:
    """Calls a model again and again in three threads inside a ``with`` block, and changes threads often.

    Args:
        call: The call.
        expected: The results that a call may have.
        tolerance: The largest absolute difference from one of them.

    Yields:
        The list of other results and of errors, complete after the block.
    """
    wrong: list[Any] = []
    stop = threading.Event()

    def repeat() -> None:
        try:
            while not stop.is_set():
                with torch.no_grad():
                    result = call()
                if not any(torch.allclose(result, other, atol=tolerance) for other in expected):
                    wrong.append(result)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        yield wrong
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join()
