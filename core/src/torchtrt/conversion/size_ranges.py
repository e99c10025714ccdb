"""The minimum, optimum and maximum sizes of tensors whose shapes are expressions of the model's symbols."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch

from torchtrt.errors import InputError


class SizeRange(NamedTuple):
    """The sizes an engine is built for along one dimension, or one symbol: ``min <= opt <= max``."""

    min: int
    opt: int
    max: int

    def __str__(self) -> str:
        return f"{self.min} to {self.max}" if self.min < self.max else str(self.min)

    def takes(self, size: int) -> bool:
        """Returns whether a size lies in the range."""
        return self.min <= size <= self.max

    def within(self, other: SizeRange) -> SizeRange:
        """Returns the sizes that are in both, with the other's optimum where it is the narrower."""
        low, high = max(self.min, other.min), min(self.max, other.max)
        optimum = self.opt if (low, high) == (self.min, self.max) else other.opt
        return SizeRange(low, min(max(optimum, low), high), high)


Profile = Mapping[Any, SizeRange]
"""The sizes that go together, for each symbol. Engines have an optimization profile for each."""
Ranges = tuple[SizeRange, ...]
"""The sizes of each dimension of a tensor."""


@dataclass(frozen=True)
class InputProfile:
    """What an engine is told about one of its inputs.

    Attributes:
        name: The input's name in the engine.
        dtype: Its PyTorch dtype outside the engine.
        shape: Its shape, with -1 where the size varies.
        profiles: The sizes of each dimension, in each profile.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    profiles: tuple[Ranges, ...]


def union(ranges: Iterable[SizeRange]) -> SizeRange:
    """Returns the sizes from the least minimum to the greatest maximum, with the first optimum."""
    minima, optima, maxima = zip(*ranges, strict=True)
    return SizeRange(min(minima), optima[0], max(maxima))


def profile_input(name: str, value: torch.Tensor, profiles: Sequence[Profile]) -> InputProfile:
    """Returns the profile of an input from its fake tensor and the ranges of the symbols in its shape."""
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    ranges = (tuple(size_bounds(size, each) for size in value.shape) for each in profiles)
    return InputProfile(name, value.dtype, shape, tuple(ranges))


def engine_profiles(inputs: Sequence[InputProfile]) -> tuple[tuple[Ranges, ...], ...]:
    """Returns an engine's optimization profiles: for each the sizes of all inputs. Equal ones are one."""
    return tuple(dict.fromkeys(zip(*(each.profiles for each in inputs), strict=True))) or ((),)


def size_bounds(size: int | torch.SymInt, ranges: Profile) -> SizeRange:
    """Returns the minimum, optimum and maximum value of a size.

    An expression of several symbols is evaluated at every combination of their minimum and maximum
    values: exact where it is monotone in each symbol, as sizes are in practice (sums, products, and
    divisions of them by numbers).

    Raises:
        InputError: The expression has a symbol without a range.
    """
    if isinstance(size, int):
        return SizeRange(size, size, size)
    expression = size.node.expr
    symbols = sorted(expression.free_symbols, key=str)
    if missing := [symbol for symbol in symbols if symbol not in ranges]:
        raise InputError(f"The size {expression} depends on {missing[0]}, which no input bounds.")

    def evaluate(values: Sequence[int]) -> int:
        return int(expression.xreplace(dict(zip(symbols, map(sympy.Integer, values), strict=True))))

    corners = itertools.product(*((ranges[symbol].min, ranges[symbol].max) for symbol in symbols))
    extremes = [evaluate(corner) for corner in corners]
    minimum, maximum = min(extremes), max(extremes)
    optimum = evaluate([ranges[symbol].opt for symbol in symbols])
    return SizeRange(minimum, min(max(optimum, minimum), maximum), maximum)
