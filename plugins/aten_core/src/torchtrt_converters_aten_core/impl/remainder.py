"""Remainders of floating-point numbers, exact for quotients up to :data:`QUOTIENT_LIMIT`.

TensorRT has none. ``a - q * b`` is computed without an error for a quotient ``q`` that is rounded to
24 bits: both factors are split into halves of 12 bits (Veltkamp, 1968), so that their four products
are exact (Dekker, 1971), and subtracted one by one, which is exact as well, because each difference
is a multiple of a unit of which it has fewer than 2**24. It makes no difference whether TensorRT fuses
a product with a difference. Two such steps leave less than the divisor.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtrt_converters_aten_core.impl import elementwise, types, unary
from torchtrt_converters_aten_core.impl.elementwise import combine

QUOTIENT_LIMIT = 2**44
"""The greatest quotient whose remainder is exact, for divisors from 1e-30 to 1e34 in magnitude."""

_WIDE = torch.float32


def fmod(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns the remainder with the dividend's sign.

    Args:
        ctx: The conversion context.
        first: The dividend: a network tensor, a PyTorch tensor or a number.
        second: The divisor, likewise.
        dtype: The floating-point dtype of the result; half precision is computed in float32.
    """
    dividend, divisor = _operands(ctx, first, second, dtype)
    return types.cast(ctx, _fmod(ctx, dividend, divisor), dtype)


def remainder(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns the remainder with the divisor's sign; the arguments are :func:`fmod`'s."""
    dividend, divisor = _operands(ctx, first, second, dtype)
    rest = _fmod(ctx, dividend, divisor)
    other_side = _other_side(ctx, rest, divisor)
    moved = combine(ctx, "SUM", rest, divisor)
    result = elementwise.select(ctx, other_side, moved, rest, _WIDE)
    return types.cast(ctx, result, dtype)


def floor_divide(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns the quotient rounded down, of what the remainder leaves; the arguments are :func:`fmod`'s."""
    dividend, divisor = _operands(ctx, first, second, dtype)
    rest = _fmod(ctx, dividend, divisor)
    other_side = _other_side(ctx, rest, divisor)
    whole = combine(ctx, "SUB", dividend, rest)
    quotient = combine(ctx, "DIV", whole, divisor)
    less = elementwise.arithmetic(ctx, "SUB", quotient, 1.0, _WIDE)
    quotient = elementwise.select(ctx, other_side, less, quotient, _WIDE)
    # It is whole but for rounding, which PyTorch undoes like this.
    floor = unary.floor(ctx, quotient)
    excess = combine(ctx, "SUB", quotient, floor)
    above = elementwise.compare(ctx, "gt", excess, 0.5)
    raised = elementwise.arithmetic(ctx, "SUM", floor, 1.0, _WIDE)
    nearest = elementwise.select(ctx, above, raised, floor, _WIDE)
    plain = combine(ctx, "DIV", dividend, divisor)
    by_zero = elementwise.compare(ctx, "eq", divisor, 0.0)
    result = elementwise.select(ctx, by_zero, plain, nearest, _WIDE)
    return types.cast(ctx, result, dtype)


def _operands(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    narrow = types.operands(ctx, (first, second), dtype)
    dividend, divisor = (
        types.cast(ctx, tensor, _WIDE)
        for tensor, label in zip(narrow, ("dividend", "divisor"), strict=True)
    )
    return dividend, divisor


def _other_side(ctx: Any, rest: Any, divisor: Any) -> Any:
    """Returns whether a remainder is not zero and its sign is not the divisor's."""
    signs = [
        elementwise.compare(ctx, "lt", tensor, 0.0)
        for tensor, label in ((rest, "rest"), (divisor, "divisor"))
    ]
    differ = combine(ctx, "XOR", *signs)
    some = elementwise.compare(ctx, "ne", rest, 0.0)
    return combine(ctx, "AND", differ, some)


def _fmod(ctx: Any, dividend: Any, divisor: Any) -> Any:
    size = unary.apply(ctx, "ABS", dividend)
    unit = unary.apply(ctx, "ABS", divisor)
    halves = _split(ctx, unit)
    rest = size
    for _ in range(2):
        rest = _reduce(ctx, rest, unit, halves)
    raised = combine(ctx, "SUM", rest, unit)
    below = elementwise.compare(ctx, "lt", rest, 0.0)
    rest = elementwise.select(ctx, below, raised, rest, _WIDE)
    smaller = combine(ctx, "LESS", size, unit)  # than infinity, too
    rest = elementwise.select(ctx, smaller, size, rest, _WIDE)
    negative = elementwise.compare(ctx, "lt", dividend, 0.0)
    opposite = unary.negative(ctx, rest)
    return elementwise.select(ctx, negative, opposite, rest, _WIDE)


def _reduce(ctx: Any, rest: Any, unit: Any, halves: tuple[Any, Any]) -> Any:
    """Returns ``rest`` less the nearest multiple of ``unit``, as far as 24 bits tell it."""
    quotient = combine(ctx, "DIV", rest, unit)
    whole = unary.apply(ctx, "ROUND", quotient)
    for half in _split(ctx, whole):
        for part in halves:
            product = combine(ctx, "PROD", half, part)
            rest = combine(ctx, "SUB", rest, product)
    return rest


def _split(ctx: Any, tensor: Any) -> tuple[Any, Any]:
    """Returns two tensors of 12 bits whose sum is ``tensor``."""
    scaled = elementwise.arithmetic(ctx, "PROD", tensor, 4097.0, _WIDE)
    excess = combine(ctx, "SUB", scaled, tensor)
    high = combine(ctx, "SUB", scaled, excess)
    return high, combine(ctx, "SUB", tensor, high)
