"""Calls a function several times at once, in threads that have the state of the calling one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import torch


def call_in_threads(
    function: Callable[..., None], arguments: Sequence[tuple[Any, ...]], threads: int
) -> None:
    """Calls a function with each of several tuples of arguments, at most ``threads`` at a time.

    Calls start in the order of the arguments. One thread is the calling one. Others have its context variables, its
    current GPU, and whether it records gradients.

    Raises:
        Exception: A call raised it. Calls that run end first, and no other starts.
    """
    if min(threads, len(arguments)) < 2:
        for each in arguments:
            function(*each)
        return
    with ThreadPoolExecutor(threads, "torchtrt", _as_here()) as executor:
        calls = [executor.submit(copy_context().run, function, *each) for each in arguments]
        try:
            for call in calls:
                call.result()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _as_here() -> Callable[[], None]:
    """Returns the function that gives a new thread what PyTorch keeps for each thread."""
    records_gradients = torch.is_grad_enabled()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def prepare() -> None:
        torch.set_grad_enabled(records_gradients)
        if device is not None:
            torch.cuda.set_device(device)

    return prepare
