"""Remainders of floating-point division, exact as PyTorch's are, whatever the quotient.

A remainder is taken in steps, as in a long division: by the largest multiple of the divisor with a power of 2 first,
and by the divisor itself last. A step's quotient has few bits, so that its product with either half of the divisor has
no more than float32 holds, and each difference is exact. The number of steps follows from the known facts about
the operands. A quotient of two float32 tensors may have 277 bits, and one of float16 by a number of about 1 only 17.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand
from torchtrt_blocks import types
from torchtrt_blocks.formulas import Formula

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

    whole: Formula
    high: Formula
    low: Formula


def fmod(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the remainder with the dividend's sign.

    Args:
        ctx: The conversion context.
        first: The dividend: a network tensor, a PyTorch tensor or a number.
        second: The divisor, likewise.
        dtype: The floating-point dtype of the result; half precision is computed in float32.
    """
    return _Division(ctx, first, second, dtype).remainder().cast(dtype).tensor


def remainder(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the remainder with the divisor's sign; the arguments are ``fmod``'s."""
    division = _Division(ctx, first, second, dtype)
    rest = division.remainder()
    moved = rest + division.divisor
    return division.is_on_other_side(rest).where(moved, rest).cast(dtype).tensor


def floor_divide(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the quotient rounded down, of what the remainder leaves; the arguments are ``fmod``'s."""
    division = _Division(ctx, first, second, dtype)
    dividend, divisor = division.dividend, division.divisor
    rest = division.remainder()
    quotient = (dividend - rest) / divisor
    quotient = division.is_on_other_side(rest).where(quotient - 1.0, quotient)
    # It is whole but for rounding, which PyTorch undoes like this.
    floor = quotient.floor()
    nearest = (quotient - floor > 0.5).where(floor + 1.0, floor)
    return (divisor == 0.0).where(dividend / divisor, nearest).cast(dtype).tensor


class _Division:
    """A dividend and a divisor in float32, and the steps that their remainder takes."""

    def __init__(
        self, ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
    ) -> None:
        self.ctx = ctx
        self.number = _magnitude(second, dtype)
        top = _top(ctx, first)
        bottom = _bottom(ctx, second) if self.number is None else math.frexp(self.number)[1] - 1
        self.steps = max(1, math.ceil((top - bottom + 1) / _STEP))
        self.may_be_large = top > math.log2(_LARGE)
        self.dividend, self.divisor = (
            Formula(ctx, operand, _WIDE) for operand in types.operands(ctx, (first, second), dtype)
        )

    def is_on_other_side(self, rest: Formula) -> Formula:
        """Returns whether a remainder is not zero and its sign is not the divisor's."""
        return ((rest < 0.0) ^ (self.divisor < 0.0)) & (rest != 0.0)

    def remainder(self) -> Formula:
        """Returns the remainder with the dividend's sign."""
        size, unit = abs(self.dividend), abs(self.divisor)
        rest = self.rest_of_large(size, unit) if self.may_be_large else self.rest(size, unit)
        rest = (size < unit).where(size, rest)  # than infinity, too
        return (self.dividend < 0.0).where(-rest, rest)

    def rest_of_large(self, size: Formula, unit: Formula) -> Formula:
        """Returns what ``rest`` does, for numbers whose products may be infinite."""
        factor = None
        if self.number is None:
            factor = (unit > _LARGE).where(2.0**-30, 1.0, _WIDE)
            size, unit = size * factor, unit * factor
        large = size > _LARGE
        rest = self.rest(large.where(size * 0.5, size), unit)
        double = rest + rest
        less = double - unit
        rest = large.where((less < 0.0).where(double, less), rest)
        return rest if factor is None else rest / factor

    def rest(self, size: Formula, unit: Formula) -> Formula:
        """Returns the remainder of two numbers that are not negative."""
        rest = size
        for multiple in reversed(list(self.multiples(unit))):
            whole = (rest / multiple.whole).round()
            rest = rest - whole * multiple.high - whole * multiple.low
        return (rest < 0.0).where(rest + unit, rest)

    def multiples(self, unit: Formula) -> Iterator[_Multiple]:
        """Yields the divisor and its multiples with powers of 2, for as long as they are numbers."""
        if self.number is None:
            yield from self.multiples_of_tensor(unit)
            return
        rank = types.rank_of(self.dividend.tensor)
        high = math.frexp(self.number)[1] - 12
        upper = math.ldexp(round(math.ldexp(self.number, -high)), high)
        parts = [self.number, upper, self.number - upper]
        for _ in range(self.steps):
            constants = (types.operand(self.ctx, part, _WIDE, rank) for part in parts)
            yield _Multiple(*(Formula(self.ctx, constant, _WIDE) for constant in constants))
            if parts[0] < _ROOM:
                parts = [math.ldexp(part, _STEP) for part in parts]

    def multiples_of_tensor(self, unit: Formula) -> Iterator[_Multiple]:
        """Yields the same for numbers that are known when the engine runs."""
        scaled = unit * 4097.0
        high = scaled - (scaled - unit)
        multiple = _Multiple(unit, high, unit - high)
        yield multiple
        for _ in range(self.steps - 1):
            factor = (multiple.whole < _ROOM).where(2.0**_STEP, 1.0, _WIDE)
            multiple = _Multiple(*(part * factor for part in multiple))
            yield multiple


def _top(ctx: ConversionContext, value: Operand) -> int:
    """Returns an exponent of 2 beyond all that a dividend may be."""
    if isinstance(value, (int, float)):
        return math.frexp(value)[1] if math.isfinite(value) else 0
    dtype = types.result_type(ctx, value)
    return _TOPS[dtype] if dtype.is_floating_point else 8 * dtype.itemsize


def _bottom(ctx: ConversionContext, value: Operand) -> int:
    """Returns an exponent of 2 that a tensor's elements have at least, but for zeros."""
    dtype = _WIDE if isinstance(value, (int, float)) else types.result_type(ctx, value)
    return _BOTTOMS[dtype] if dtype.is_floating_point else 0


def _magnitude(value: Any, dtype: torch.dtype) -> float | None:
    """Returns the magnitude of a number as a dtype holds it; None of a tensor, and of what has no multiples."""
    if not isinstance(value, (int, float)):
        return None
    magnitude = abs(torch.tensor(float(value), dtype=dtype).item())
    return magnitude if 0 < magnitude <= _LARGE else None
