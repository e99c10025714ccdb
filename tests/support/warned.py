"""Functions of torchtrt that warn, so that a test sees which line the warning names."""

from __future__ import annotations

import types
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from torchtrt.callers import warn_caller


def warning_in(owner: Any, name: str) -> AbstractContextManager[Any]:
    """Returns a context in which a function of torchtrt warns and then does what it does otherwise.

    Args:
        owner: The module or class that has the function.
        name: Its name there.
    """
    inner = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        warn_caller(f"of {name}")
        return inner(*args, **kwargs)

    of_torchtrt = {"__name__": "torchtrt", "warn_caller": warn_caller}
    function = types.FunctionType(outer.__code__, of_torchtrt, closure=outer.__closure__)
    return mock.patch.object(owner, name, function)
