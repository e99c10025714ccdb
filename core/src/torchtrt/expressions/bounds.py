"""The least and the greatest values of sizes: those that PyTorch assumes away included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch

from torchtrt.expressions.torch_internals import (
    Bounds,
    bounds_of,
    bounds_of_symbols,
    is_certain_within,
)

__all__ = ["Bounds", "bounding", "holds_for_all_sizes", "size_bounds", "symbol_bounds"]

_stated: ContextVar[Mapping[Any, Bounds]] = ContextVar("stated", default=MappingProxyType({}))


@contextlib.contextmanager
def bounding(symbols: Mapping[Any, Bounds]) -> Iterator[None]:
    """States the least and the greatest values of symbols for ``size_bounds`` in a ``with`` block."""
    token = _stated.set(symbols)
    try:
        yield
    finally:
        _stated.reset(token)


def size_bounds(size: int | torch.SymInt) -> Bounds:
    """Returns the least and the greatest value of a size, or None for one without a bound.

    PyTorch's own bounds do not decide it: it takes sizes of inputs for 2 or more, and narrows that by what ops ask.
    """
    if isinstance(size, int):
        return size, size
    return _as_integers(bounds_of(size, _stated.get()))


def holds_for_all_sizes(condition: bool | torch.SymBool) -> bool:
    """Returns whether a condition certainly holds for all sizes, 1 included, and 0 where it may be one.

    ``statically_known_true`` takes sizes of inputs for 2 or more.
    """
    return condition if isinstance(condition, bool) else is_certain_within(condition, _stated.get())


def symbol_bounds(size: torch.SymInt) -> dict[Any, Bounds]:
    """Returns the least and the greatest value of each symbol in a size, as ``size_bounds`` does of a size."""
    bounds = bounds_of_symbols(size, _stated.get())
    return {symbol: _as_integers(own) for symbol, own in bounds.items()}


def _as_integers(bounds: Any) -> Bounds:
    least, most = (
        int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper)
    )
    return least, most
