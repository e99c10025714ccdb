"""The minimum, optimum and maximum sizes of tensors whose shapes are expressions of the model's symbols."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from sympy.core.function import Application

from torchtrt.conversion.inputs import InputProfile, SizeRange
from torchtrt.errors import InputError
from torchtrt.expressions.values import evaluate

Profile = Mapping[Any, SizeRange]
"""The sizes that go together, for each symbol. Engines have an optimization profile for each."""


class LinearSize(NamedTuple):
    """A size that is ``factor * symbol + offset``, as a derived ``torch.export.Dim`` is; a symbol alone is one."""

    symbol: Any
    factor: int
    offset: int

    @property
    def is_symbol(self) -> bool:
        """True if the size is the symbol itself."""
        return (self.factor, self.offset) == (1, 0)

    def __str__(self) -> str:
        product = str(self.symbol) if self.factor == 1 else f"{self.factor}*{self.symbol}"
        sign = "-" if self.offset < 0 else "+"
        return f"{product} {sign} {abs(self.offset)}" if self.offset else product

    def sizes(self, values: SizeRange) -> SizeRange:
        """Returns the sizes for values of the symbol."""
        return SizeRange(*map(self.size, values))

    def size(self, value: int) -> int:
        """Returns the size for a value of the symbol."""
        return self.factor * value + self.offset

    def value(self, size: int) -> int | None:
        """Returns the value of the symbol for a size, if a whole number gives it."""
        value, rest = divmod(size - self.offset, self.factor)
        return None if rest else value

    def values(self, low: int, high: int) -> tuple[int, int]:
        """Returns the smallest and the largest value whose sizes are between two."""
        return -((self.offset - low) // self.factor), (high - self.offset) // self.factor


def linear_size(expression: Any) -> LinearSize | None:
    """Returns a size as ``LinearSize``, if it is one that grows with its symbol."""
    if expression.is_Symbol:
        return LinearSize(expression, 1, 0)
    if len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    factor, offset = expression.coeff(symbol, 1), expression.coeff(symbol, 0)
    is_linear = expression == factor * symbol + offset and factor.is_Integer and offset.is_Integer
    return LinearSize(symbol, int(factor), int(offset)) if is_linear and factor > 0 else None


def union(ranges: Iterable[SizeRange]) -> SizeRange:
    """Returns the sizes from the least minimum to the greatest maximum, with the first optimum."""
    all_ranges = list(ranges)
    least = min(range_.min for range_ in all_ranges)
    greatest = max(range_.max for range_ in all_ranges)
    return SizeRange(least, all_ranges[0].opt, greatest)


def union_of_profiles(profiles: Sequence[Profile]) -> Profile:
    """Returns the sizes of each symbol in all profiles together; nothing where there are no profiles."""
    symbols = profiles[0] if profiles else ()
    return {symbol: union(profile[symbol] for profile in profiles) for symbol in symbols}


def profile_input(name: str, value: torch.Tensor, profiles: Sequence[Profile]) -> InputProfile:
    """Returns the profile of an input from its fake tensor and the ranges of the symbols in its shape."""
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    ranges = (
        tuple(_bounds_of_tensor(size, profile) for size in value.shape) for profile in profiles
    )
    return InputProfile(name, value.dtype, shape, tuple(ranges))


def _bounds_of_tensor(size: int | torch.SymInt, ranges: Profile) -> SizeRange:
    """Returns the bounds of a size of a tensor: it is negative only for sizes of inputs that a condition excludes."""
    return SizeRange(*(max(bound, 0) for bound in size_bounds(size, ranges)))


def size_bounds(size: int | torch.SymInt, ranges: Profile) -> SizeRange:
    """Returns the minimum, optimum and maximum value of a size.

    The result is exact for sums and products of symbols, and where the symbols have at most 1,024 combinations of
    values. Otherwise the expression is evaluated at the ends of their ranges, at values next to these, and between.

    Raises:
        InputError: The expression has a symbol without a range, or no value in them, such as a quotient by zero.
    """
    if isinstance(size, int):
        return SizeRange(size, size, size)
    expression = size.node.expr
    symbols = sorted(expression.free_symbols, key=str)
    if missing := [symbol for symbol in symbols if symbol not in ranges]:
        raise InputError(f"The size {expression} depends on {missing[0]}, which no input bounds.")
    bounds = _bounds(expression, tuple(symbols), tuple(ranges[symbol] for symbol in symbols))
    if bounds is None:
        limits = ", ".join(f"{symbol} is {ranges[symbol]}" for symbol in symbols)
        raise InputError(f"The size {expression} has no value where {limits}.")
    return bounds


_MOST_VALUES = 1024
"""For how many combinations of values a size is evaluated."""


@functools.lru_cache(maxsize=4096)
def _bounds(
    expression: Any, symbols: tuple[Any, ...], ranges: tuple[SizeRange, ...]
) -> SizeRange | None:
    """Returns the bounds of an expression for ranges of its symbols; None if it has no value in them."""
    at = functools.partial(_value, expression, symbols)
    most = 2 if _grows(expression) else max(4, int(_MOST_VALUES ** (1 / len(symbols))))
    values = [
        at(combination)
        for combination in itertools.product(*(some_sizes(range_, most) for range_ in ranges))
    ]
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    optimum = at([range_.opt for range_ in ranges])
    low, high = min(defined), max(defined)
    return SizeRange(low, min(max(high if optimum is None else optimum, low), high), high)


def _grows(expression: Any) -> bool:
    """Returns whether an expression is made of sums and products of symbols and positive numbers."""
    numbers = expression.atoms(sympy.Number)
    return all(number >= 0 for number in numbers) and not expression.has(Application)


def _value(expression: Any, symbols: Sequence[Any], values: Sequence[int]) -> int | None:
    """Returns an expression's value, or None where it has none: PyTorch raises for a quotient by zero."""
    try:
        return int(evaluate(expression, dict(zip(symbols, values, strict=True))))
    except ArithmeticError:
        return None


def some_sizes(sizes: SizeRange, most: int) -> Sequence[int]:
    """Returns at most ``most`` sizes of a range: those at both ends, and some in between."""
    low, high = sizes.min, sizes.max + 1
    if high - low <= most:
        return range(low, high)
    end = max(1, most // 4)
    step = -(-(high - low) // max(1, most - 2 * end))
    return [
        *range(low, low + end),
        *range(low + end, high - end, step)[: most - 2 * end],
        *range(high - end, high),
    ]


def has_shapes(ranges: Sequence[Sequence[SizeRange]], shapes: Sequence[torch.Size]) -> bool:
    """Returns whether ranges of sizes, of each dimension of each tensor, have some shapes.

    A shape of another rank is in none.
    """
    return all(
        len(dimensions) == len(shape)
        and all(sizes.contains(size) for sizes, size in zip(dimensions, shape, strict=True))
        for dimensions, shape in zip(ranges, shapes, strict=True)
    )
