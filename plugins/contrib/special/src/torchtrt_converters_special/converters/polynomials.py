"""Orthogonal polynomials, by the recurrence between three neighbouring degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import elementwise, reduction, shape, types, unary
from torchtrt_converters_aten_core.registration import converts

aten = torch.ops.aten

Line = tuple[float, float]
"""A function of the degree: what it is at 0, and by how much it grows."""


@dataclass(frozen=True, slots=True)
class Family:
    """``d * p[k + 1] = (a * x + b) * p[k] - c * p[k - 1]``, from ``p[0] = 1`` and ``p[1] = slope * x + start``.

    Attributes:
        slope: The factor in the polynomial of degree 1.
        start: The constant in it.
        a: The factor of ``x``.
        b: The constant beside it.
        c: The factor of the degree before.
        d: The divisor.
        shifted: Whether ``x`` stands for ``2 * x - 1``.
        limit: The degree beyond which PyTorch returns NaN.
    """

    slope: float
    start: float = 0.0
    a: Line = (2.0, 0.0)
    b: Line = (0.0, 0.0)
    c: Line = (1.0, 0.0)
    d: Line = (1.0, 0.0)
    shifted: bool = False
    limit: int | None = None


FAMILIES = {
    "special_chebyshev_polynomial_t": Family(1.0),
    "special_chebyshev_polynomial_u": Family(2.0),
    "special_chebyshev_polynomial_v": Family(2.0, -1.0),
    "special_chebyshev_polynomial_w": Family(2.0, 1.0),
    "special_shifted_chebyshev_polynomial_t": Family(1.0, shifted=True),
    "special_shifted_chebyshev_polynomial_u": Family(2.0, shifted=True),
    "special_shifted_chebyshev_polynomial_v": Family(2.0, -1.0, shifted=True),
    "special_shifted_chebyshev_polynomial_w": Family(2.0, 1.0, shifted=True),
    "special_hermite_polynomial_h": Family(2.0, c=(0.0, 2.0), limit=128),
    "special_hermite_polynomial_he": Family(1.0, a=(1.0, 0.0), c=(0.0, 1.0), limit=128),
    "special_laguerre_polynomial_l": Family(
        -1.0, 1.0, a=(-1.0, 0.0), b=(1.0, 2.0), c=(0.0, 1.0), d=(1.0, 1.0)
    ),
    "special_legendre_polynomial_p": Family(1.0, a=(1.0, 2.0), c=(0.0, 1.0), d=(1.0, 1.0)),
}
"""Abramowitz and Stegun, 22.7."""
POLYNOMIALS = {
    getattr(getattr(aten, packet), overload): family
    for packet, family in FAMILIES.items()
    for overload in ("default", "n_scalar", "x_scalar")
}
_WIDE = torch.float32


@converts(*POLYNOMIALS, keep_constants=True)
def polynomial(ctx, x, n):
    """Converts polynomials of degrees known only at run time: a loop up to the highest, in which others wait."""
    family = POLYNOMIALS[ctx.node.target]
    if not isinstance(n, (int, float)):
        n = types.operand(ctx, n, torch.int32, types.rank_of(n))
    number, degree = shape.broadcast(ctx, types.operands(ctx, (x, n), _WIDE))
    if family.shifted:
        number = _line(ctx, number, 2.0, -1.0)
    first = _line(ctx, number, family.slope, family.start)
    one = _constant(ctx, 1.0, number)
    highest = degree
    if len(degree.shape):
        highest = reduction.reduce(ctx, "MAX", degree, range(len(degree.shape)), True)
    # A count, not a condition: what a condition reads TensorRT 8.6 keeps where no kernel of the body can.
    steps = unary.apply(ctx, "CEIL", elementwise.arithmetic(ctx, "SUM", highest, -1.0, _WIDE))
    steps = types.cast(ctx, shape.squeeze(ctx, steps, range(len(steps.shape))), torch.int32)
    trips = elementwise.arithmetic(ctx, "MAX", steps, 0, torch.int32)
    loop = ctx.net.add_loop()
    place, before, current = (
        loop.add_recurrence(start) for start in (one, shape.broadcast(ctx, [one, number])[0], first)
    )
    k, old, last = (layer.get_output(0) for layer in (place, before, current))
    loop.add_trip_limit(trips, trt.TripLimit.COUNT)
    waits = elementwise.combine(ctx, "LESS", k, degree)
    a, b, c, d = (_at(ctx, line, k) for line in (family.a, family.b, family.c, family.d))
    factor = elementwise.arithmetic(ctx, "PROD", a, number, _WIDE)
    factor = elementwise.arithmetic(ctx, "SUM", factor, b, _WIDE)
    following = elementwise.combine(ctx, "PROD", factor, last)
    less = elementwise.arithmetic(ctx, "PROD", c, old, _WIDE)
    following = elementwise.combine(ctx, "SUB", following, less)
    following = elementwise.arithmetic(ctx, "DIV", following, d, _WIDE)
    place.set_input(1, elementwise.arithmetic(ctx, "SUM", k, 1.0, _WIDE))
    before.set_input(1, elementwise.select(ctx, waits, last, old, _WIDE))
    current.set_input(1, elementwise.select(ctx, waits, following, last, _WIDE))
    result = loop.add_loop_output(last, trt.LoopOutput.LAST_VALUE, 0).get_output(0)
    for kind, bound, value in (("lt", 1, 1.0), ("lt", 0, 0.0), ("gt", family.limit, torch.nan)):
        if bound is not None:
            outside = elementwise.compare(ctx, kind, degree, bound)
            result = elementwise.select(ctx, outside, value, result, _WIDE)
    return types.cast(ctx, result, types.output_dtype(ctx))


def _constant(ctx: Any, value: float, like: Any) -> Any:
    return types.operand(ctx, value, _WIDE, len(like.shape))


def _line(ctx: Any, tensor: Any, slope: float, start: float) -> Any:
    """Returns ``slope * tensor + start``."""
    if slope != 1:
        tensor = elementwise.arithmetic(ctx, "PROD", tensor, slope, _WIDE)
    return elementwise.arithmetic(ctx, "SUM", tensor, start, _WIDE) if start else tensor


def _at(ctx: Any, line: Line, k: Any) -> Any:
    """Returns a line at a degree: a number where it does not grow."""
    start, slope = line
    return _line(ctx, k, slope, start) if slope else start
