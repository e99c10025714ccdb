"""The least and the greatest values of sizes: those that PyTorch assumes away included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import torch

from torchtrt.expressions.torch_internals import bounds_of, bounds_of_symbols

_least_sizes: ContextVar[Mapping[Any, int]] = ContextVar(
    "least_sizes", default=MappingProxyType({})
)


@contextlib.contextmanager
def least_sizes(sizes: Mapping[Any, int]) -> Iterator[None]:
    """Makes ``size_bounds`` take symbols for at least so much in a ``with`` block."""
    token = _least_sizes.set(sizes)
    try:
        yield
    finally:
        _least_sizes.reset(token)


def size_bounds(size: int | torch.SymInt) -> tuple[int | None, int | None]:
    """Returns the least and the greatest value of a size, or None for one without a bound.

    PyTorch's own bounds do not decide it: it takes sizes of inputs for 2 or more, and then for as many as ops ask for.
    """
    if isinstance(size, int):
        return size, size
    return _as_integers(bounds_of(size, _least_sizes.get()))


def symbol_bounds(size: torch.SymInt) -> dict[Any, tuple[int | None, int | None]]:
    """Returns the least and the greatest value of each symbol in a size, as ``size_bounds`` does of a size."""
    bounds = bounds_of_symbols(size, _least_sizes.get())
    return {symbol: _as_integers(own) for symbol, own in bounds.items()}


def _as_integers(bounds: Any) -> tuple[int | None, int | None]:
    least, most = (
        int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper)
    )
    return least, most
