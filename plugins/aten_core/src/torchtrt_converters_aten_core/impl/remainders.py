"""Remainders of floating-point division, exact as PyTorch's are, whatever the quotient.

A remainder is taken in steps, as in a long division: by the largest multiple of the divisor with a power of 2 first,
and by the divisor itself last. A step's quotient has few bits, so that its product with either half of the divisor has
no more than float32 holds, and each difference is exact. How many steps there are follows from what is known of the
operands: a quotient of two float32 tensors may have 277 bits, one of float16 by a number of about 1 only 17.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torchtrt_converters_aten_core.impl import elementwise, types, unary

_WIDE = torch.float32
_STEP = 12
"""How many bits of the quotient a step computes."""
_LARGE = 2.0**100
"""Beyond it, operands are scaled down, so that no product is infinite."""
_ROOM = 2.0**115
"""Up to it, a multiple of the divisor may be multiplied for another step."""
_TOPS = {torch.float16: 16, torch.bfloat16: 128, torch.float32: 128, torch.float64: 128}
_BOTTOMS = {torch.float16: -24, torch.bfloat16: -149, torch.float32: -149, torch.float64: -149}
"""Exponents beyond the largest number of a dtype, and of its smallest."""


class _Multiple(NamedTuple):
    """A multiple of the divisor, and two tensors of 12 bits whose sum it is."""

    whole: Any
    high: Any
    low: Any


def fmod(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns the remainder with the dividend's sign.

    Args:
        ctx: The conversion context.
        first: The dividend: a network tensor, a PyTorch tensor or a number.
        second: The divisor, likewise.
        dtype: The floating-point dtype of the result; half precision is computed in float32.
    """
    return types.cast(ctx, _Division(ctx, first, second, dtype).remainder(), dtype)


def remainder(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns the remainder with the divisor's sign; the arguments are ``fmod``'s."""
    division = _Division(ctx, first, second, dtype)
    rest = division.remainder()
    moved = elementwise.combine(ctx, "SUM", rest, division.divisor)
    result = elementwise.select(ctx, division.is_on_other_side(rest), moved, rest, _WIDE)
    return types.cast(ctx, result, dtype)


def floor_divide(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns the quotient rounded down, of what the remainder leaves; the arguments are ``fmod``'s."""
    division = _Division(ctx, first, second, dtype)
    dividend, divisor = division.dividend, division.divisor
    rest = division.remainder()
    whole = elementwise.combine(ctx, "SUB", dividend, rest)
    quotient = elementwise.combine(ctx, "DIV", whole, divisor)
    less = elementwise.arithmetic(ctx, "SUB", quotient, 1.0, _WIDE)
    quotient = elementwise.select(ctx, division.is_on_other_side(rest), less, quotient, _WIDE)
    # It is whole but for rounding, which PyTorch undoes like this.
    floor = unary.floor(ctx, quotient)
    excess = elementwise.combine(ctx, "SUB", quotient, floor)
    above = elementwise.compare(ctx, "gt", excess, 0.5)
    raised = elementwise.arithmetic(ctx, "SUM", floor, 1.0, _WIDE)
    nearest = elementwise.select(ctx, above, raised, floor, _WIDE)
    plain = elementwise.combine(ctx, "DIV", dividend, divisor)
    by_zero = elementwise.compare(ctx, "eq", divisor, 0.0)
    result = elementwise.select(ctx, by_zero, plain, nearest, _WIDE)
    return types.cast(ctx, result, dtype)


class _Division:
    """A dividend and a divisor in float32, and the steps that their remainder takes."""

    def __init__(self, ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> None:
        self.ctx = ctx
        self.number = _magnitude(second, dtype)
        top = _top(ctx, first)
        bottom = _bottom(ctx, second) if self.number is None else math.frexp(self.number)[1] - 1
        self.steps = max(1, math.ceil((top - bottom + 1) / _STEP))
        self.may_be_large = top > math.log2(_LARGE)
        dividend, divisor = types.operands(ctx, (first, second), dtype)
        self.dividend = types.cast(ctx, dividend, _WIDE)
        self.divisor = types.cast(ctx, divisor, _WIDE)

    def is_on_other_side(self, rest: Any) -> Any:
        """Returns whether a remainder is not zero and its sign is not the divisor's."""
        signs = [elementwise.compare(self.ctx, "lt", each, 0.0) for each in (rest, self.divisor)]
        differ = elementwise.combine(self.ctx, "XOR", *signs)
        some = elementwise.compare(self.ctx, "ne", rest, 0.0)
        return elementwise.combine(self.ctx, "AND", differ, some)

    def remainder(self) -> Any:
        """Returns the remainder with the dividend's sign."""
        ctx = self.ctx
        size, unit = (unary.apply(ctx, "ABS", each) for each in (self.dividend, self.divisor))
        rest = self.rest_of_large(size, unit) if self.may_be_large else self.rest(size, unit)
        smaller = elementwise.combine(ctx, "LESS", size, unit)  # than infinity, too
        rest = elementwise.select(ctx, smaller, size, rest, _WIDE)
        negative = elementwise.compare(ctx, "lt", self.dividend, 0.0)
        return elementwise.select(ctx, negative, unary.negative(ctx, rest), rest, _WIDE)

    def rest_of_large(self, size: Any, unit: Any) -> Any:
        """Returns what ``rest`` does, for numbers whose products may be infinite."""
        ctx = self.ctx
        factor = None
        if self.number is None:
            large_unit = elementwise.compare(ctx, "gt", unit, _LARGE)
            factor = elementwise.select(ctx, large_unit, 2.0**-30, 1.0, _WIDE)
            size, unit = (elementwise.combine(ctx, "PROD", each, factor) for each in (size, unit))
        large = elementwise.compare(ctx, "gt", size, _LARGE)
        half = elementwise.arithmetic(ctx, "PROD", size, 0.5, _WIDE)
        rest = self.rest(elementwise.select(ctx, large, half, size, _WIDE), unit)
        double = elementwise.combine(ctx, "SUM", rest, rest)
        less = elementwise.combine(ctx, "SUB", double, unit)
        beyond = elementwise.compare(ctx, "lt", less, 0.0)
        rest = elementwise.select(
            ctx, large, elementwise.select(ctx, beyond, double, less, _WIDE), rest, _WIDE
        )
        return rest if factor is None else elementwise.combine(ctx, "DIV", rest, factor)

    def rest(self, size: Any, unit: Any) -> Any:
        """Returns the remainder of two numbers that are not negative."""
        ctx, rest = self.ctx, size
        for multiple in reversed(list(self.multiples(unit))):
            quotient = elementwise.combine(ctx, "DIV", rest, multiple.whole)
            whole = unary.apply(ctx, "ROUND", quotient)
            for half in (multiple.high, multiple.low):
                product = elementwise.combine(ctx, "PROD", whole, half)
                rest = elementwise.combine(ctx, "SUB", rest, product)
        raised = elementwise.combine(ctx, "SUM", rest, unit)
        below = elementwise.compare(ctx, "lt", rest, 0.0)
        return elementwise.select(ctx, below, raised, rest, _WIDE)

    def multiples(self, unit: Any) -> Iterator[_Multiple]:
        """Yields the divisor and its multiples with powers of 2, for as long as they are numbers."""
        if self.number is None:
            yield from self.multiples_of_tensor(unit)
            return
        rank = len(self.dividend.shape)
        high = math.frexp(self.number)[1] - 12
        upper = math.ldexp(round(math.ldexp(self.number, -high)), high)
        parts = (self.number, upper, self.number - upper)
        for _ in range(self.steps):
            yield _Multiple(*(types.operand(self.ctx, part, _WIDE, rank) for part in parts))
            if parts[0] < _ROOM:
                parts = tuple(math.ldexp(part, _STEP) for part in parts)

    def multiples_of_tensor(self, unit: Any) -> Iterator[_Multiple]:
        """Yields the same for numbers that are known when the engine runs."""
        ctx = self.ctx
        scaled = elementwise.arithmetic(ctx, "PROD", unit, 4097.0, _WIDE)
        excess = elementwise.combine(ctx, "SUB", scaled, unit)
        high = elementwise.combine(ctx, "SUB", scaled, excess)
        multiple = _Multiple(unit, high, elementwise.combine(ctx, "SUB", unit, high))
        yield multiple
        for _ in range(self.steps - 1):
            has_room = elementwise.compare(ctx, "lt", multiple.whole, _ROOM)
            factor = elementwise.select(ctx, has_room, 2.0**_STEP, 1.0, _WIDE)
            multiple = _Multiple(
                *(elementwise.combine(ctx, "PROD", part, factor) for part in multiple)
            )
            yield multiple


def _top(ctx: Any, value: Any) -> int:
    """Returns an exponent of 2 beyond all that a dividend may be."""
    if isinstance(value, (int, float)):
        return math.frexp(value)[1] if math.isfinite(value) else 0
    dtype = types.stand_in(ctx, value).dtype
    return _TOPS[dtype] if dtype.is_floating_point else 8 * dtype.itemsize


def _bottom(ctx: Any, value: Any) -> int:
    """Returns an exponent of 2 that a tensor's elements have at least, but for zeros."""
    dtype = types.stand_in(ctx, value).dtype if hasattr(value, "shape") else _WIDE
    return _BOTTOMS[dtype] if dtype.is_floating_point else 0


def _magnitude(value: Any, dtype: torch.dtype) -> float | None:
    """Returns the magnitude of a number as a dtype holds it; None of a tensor, and of what has no multiples."""
    if not isinstance(value, (int, float)):
        return None
    magnitude = abs(torch.tensor(float(value), dtype=dtype).item())
    return magnitude if 0 < magnitude <= _LARGE else None
