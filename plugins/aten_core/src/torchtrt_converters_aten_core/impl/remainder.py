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


def fmod(ctx: Any, first: Any, second: Any, dtype: torch.dtype, name: str) -> Any:
    """Returns the remainder with the dividend's sign.

    Args:
        ctx: The conversion context.
        first: The dividend: a network tensor, a PyTorch tensor or a number.
        second: The divisor, likewise.
        dtype: The floating-point dtype of the result; half precision is computed in float32.
        name: The prefix for the names of layers.
    """
    dividend, divisor = _operands(ctx, first, second, dtype, name)
    return types.cast(ctx, _fmod(ctx, dividend, divisor, name), dtype, name)


def remainder(ctx: Any, first: Any, second: Any, dtype: torch.dtype, name: str) -> Any:
    """Returns the remainder with the divisor's sign; the arguments are :func:`fmod`'s."""
    dividend, divisor = _operands(ctx, first, second, dtype, name)
    rest = _fmod(ctx, dividend, divisor, name + "/rest")
    other_side = _other_side(ctx, rest, divisor, name)
    moved = combine(ctx, "SUM", rest, divisor, name + "/moved")
    result = elementwise.select(ctx, other_side, moved, rest, _WIDE, name)
    return types.cast(ctx, result, dtype, name)


def floor_divide(ctx: Any, first: Any, second: Any, dtype: torch.dtype, name: str) -> Any:
    """Returns the quotient rounded down, of what the remainder leaves; the arguments are :func:`fmod`'s."""
    dividend, divisor = _operands(ctx, first, second, dtype, name)
    rest = _fmod(ctx, dividend, divisor, name + "/rest")
    other_side = _other_side(ctx, rest, divisor, name)
    whole = combine(ctx, "SUB", dividend, rest, name + "/whole")
    quotient = combine(ctx, "DIV", whole, divisor, name + "/quotient")
    less = elementwise.arithmetic(ctx, "SUB", quotient, 1.0, _WIDE, name + "/less")
    quotient = elementwise.select(ctx, other_side, less, quotient, _WIDE, name + "/lowered")
    # It is whole but for rounding, which PyTorch undoes like this.
    floor = unary.floor(ctx, quotient, name + "/floor")
    excess = combine(ctx, "SUB", quotient, floor, name + "/excess")
    above = elementwise.compare(ctx, "gt", excess, 0.5, name + "/above")
    raised = elementwise.arithmetic(ctx, "SUM", floor, 1.0, _WIDE, name + "/raised")
    nearest = elementwise.select(ctx, above, raised, floor, _WIDE, name + "/nearest")
    plain = combine(ctx, "DIV", dividend, divisor, name + "/plain")
    by_zero = elementwise.compare(ctx, "eq", divisor, 0.0, name + "/by_zero")
    result = elementwise.select(ctx, by_zero, plain, nearest, _WIDE, name)
    return types.cast(ctx, result, dtype, name)


def _operands(ctx: Any, first: Any, second: Any, dtype: torch.dtype, name: str) -> tuple[Any, Any]:
    narrow = types.operands(ctx, (first, second), dtype, name)
    dividend, divisor = (
        types.cast(ctx, tensor, _WIDE, f"{name}/{label}")
        for tensor, label in zip(narrow, ("dividend", "divisor"), strict=True)
    )
    return dividend, divisor


def _other_side(ctx: Any, rest: Any, divisor: Any, name: str) -> Any:
    """Returns whether a remainder is not zero and its sign is not the divisor's."""
    signs = [
        elementwise.compare(ctx, "lt", tensor, 0.0, f"{name}/{label}_below")
        for tensor, label in ((rest, "rest"), (divisor, "divisor"))
    ]
    differ = combine(ctx, "XOR", *signs, name + "/differ")
    some = elementwise.compare(ctx, "ne", rest, 0.0, name + "/some")
    return combine(ctx, "AND", differ, some, name + "/other_side")


def _fmod(ctx: Any, dividend: Any, divisor: Any, name: str) -> Any:
    size = unary.apply(ctx, "ABS", dividend, name + "/size")
    unit = unary.apply(ctx, "ABS", divisor, name + "/unit")
    halves = _split(ctx, unit, name + "/unit")
    rest = size
    for step in range(2):
        rest = _reduce(ctx, rest, unit, halves, f"{name}/step{step}")
    raised = combine(ctx, "SUM", rest, unit, name + "/raised")
    below = elementwise.compare(ctx, "lt", rest, 0.0, name + "/below")
    rest = elementwise.select(ctx, below, raised, rest, _WIDE, name + "/positive")
    smaller = combine(ctx, "LESS", size, unit, name + "/smaller")  # than infinity, too
    rest = elementwise.select(ctx, smaller, size, rest, _WIDE, name + "/rest")
    negative = elementwise.compare(ctx, "lt", dividend, 0.0, name + "/negative")
    opposite = unary.negative(ctx, rest, name + "/opposite")
    return elementwise.select(ctx, negative, opposite, rest, _WIDE, name)


def _reduce(ctx: Any, rest: Any, unit: Any, halves: tuple[Any, Any], name: str) -> Any:
    """Returns ``rest`` less the nearest multiple of ``unit``, as far as 24 bits tell it."""
    quotient = combine(ctx, "DIV", rest, unit, name + "/quotient")
    whole = unary.apply(ctx, "ROUND", quotient, name + "/whole")
    for place, half in enumerate(_split(ctx, whole, name + "/whole")):
        for index, part in enumerate(halves):
            label = f"{name}/part{place}{index}"
            product = combine(ctx, "PROD", half, part, label + "/product")
            rest = combine(ctx, "SUB", rest, product, label)
    return rest


def _split(ctx: Any, tensor: Any, name: str) -> tuple[Any, Any]:
    """Returns two tensors of 12 bits whose sum is ``tensor``."""
    scaled = elementwise.arithmetic(ctx, "PROD", tensor, 4097.0, _WIDE, name + "/scaled")
    excess = combine(ctx, "SUB", scaled, tensor, name + "/excess")
    high = combine(ctx, "SUB", scaled, excess, name + "/high")
    return high, combine(ctx, "SUB", tensor, high, name + "/low")
