"""The minimum, optimum and maximum sizes of tensors whose shapes are expressions of the model's symbols."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from torchtrt.errors import InputError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SizeRange:
    """The sizes an engine is built for along one symbol: ``min <= opt <= max``."""

    min: int
    opt: int
    max: int


@dataclass(frozen=True)
class InputProfile:
    """What an engine is told about one of its inputs.

    Attributes:
        name: The input's name in the engine.
        dtype: Its PyTorch dtype outside the engine.
        shape: Its shape, with -1 where the size varies.
        min: The minimum shape.
        opt: The shape to optimize for.
        max: The maximum shape.
    """

    name: str
    dtype: torch.dtype
    shape: Shape
    min: Shape
    opt: Shape
    max: Shape

    @property
    def is_dynamic(self) -> bool:
        """Whether any size varies."""
        return -1 in self.shape


def profile_input(name: str, value: torch.Tensor, ranges: Mapping[Any, SizeRange]) -> InputProfile:
    """Returns the profile of an input from its fake tensor and the ranges of the symbols in its shape."""
    bounds = [size_bounds(size, ranges) for size in value.shape]
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    minimum, optimum, maximum = zip(*bounds, strict=True) if bounds else ((), (), ())
    return InputProfile(name, value.dtype, shape, tuple(minimum), tuple(optimum), tuple(maximum))


def size_bounds(size: int | torch.SymInt, ranges: Mapping[Any, SizeRange]) -> tuple[int, int, int]:
    """Returns the minimum, optimum and maximum value of a size.

    An expression of several symbols is evaluated at every combination of their minimum and maximum
    values: exact where it is monotone in each symbol, as sizes are in practice (sums, products, and
    divisions of them by numbers).

    Raises:
        InputError: The expression has a symbol without a range.
    """
    if isinstance(size, int):
        return size, size, size
    expression = size.node.expr
    symbols = sorted(expression.free_symbols, key=str)
    missing = [symbol for symbol in symbols if symbol not in ranges]
    if missing:
        message = f"The size {expression} depends on {missing[0]}, which no input bounds."
        raise InputError(message)

    def evaluate(values: Sequence[int]) -> int:
        return int(expression.xreplace(dict(zip(symbols, map(sympy.Integer, values), strict=True))))

    corners = itertools.product(*((ranges[symbol].min, ranges[symbol].max) for symbol in symbols))
    extremes = [evaluate(corner) for corner in corners]
    minimum, maximum = min(extremes), max(extremes)
    optimum = evaluate([ranges[symbol].opt for symbol in symbols])
    return minimum, min(max(optimum, minimum), maximum), maximum
