"""Divides sizes by fractions as Python does: ``7 // 0.1`` is 69, because the float64 nearest to 0.1 is larger.

PyTorch rounds the quotient down, but the quotient has been rounded up to 70. Here a quotient of integers is exact.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import torch

from torchtrt_converters_aten_core import pack


class _Exporting(threading.local):
    """Whether this thread is exporting."""

    active = 0


_exporting = _Exporting()
_lock = threading.Lock()
_kept: Any = torch.SymInt.__floordiv__
_users = 0


_ROUNDED = 1 << 22
"""Fractions with a smaller denominator are left to PyTorch: no quotient of an int32 by one is rounded up."""


@pack.export_context
@contextlib.contextmanager
def exact_floor_division() -> Iterator[None]:
    """Divides a size by a fraction without rounding the quotient, in a ``with`` block of this thread."""
    _install()
    _exporting.active += 1
    try:
        yield
    finally:
        _exporting.active -= 1
        _uninstall()


def _install() -> None:
    global _users, _kept  # how many blocks are open in all threads
    with _lock:
        _users += 1
        if _users == 1:
            _kept = torch.SymInt.__floordiv__
            torch.SymInt.__floordiv__ = _divide  # type: ignore[method-assign]


def _uninstall() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            torch.SymInt.__floordiv__ = _kept  # type: ignore[method-assign]


def _divide(size: torch.SymInt, divisor: Any) -> Any:
    """Returns ``size // divisor``."""
    is_fraction = isinstance(divisor, float) and 0 < abs(divisor) < math.inf
    if not (_exporting.active and is_fraction):
        return _kept(size, divisor)
    numerator, denominator = abs(divisor).as_integer_ratio()
    if denominator <= _ROUNDED:
        return _kept(size, divisor)
    multiple = size * denominator
    if divisor > 0:
        return torch.sym_float(multiple // numerator)
    return torch.sym_float(-((multiple + numerator - 1) // numerator))
