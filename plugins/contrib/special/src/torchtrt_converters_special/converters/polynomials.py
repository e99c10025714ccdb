"""Orthogonal polynomials, by the recurrence between three neighbouring degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand
from torchtrt.tensorrt import trt
from torchtrt_blocks import reduction, shape, types
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_special import pack

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


@pack.converter(table={"family": POLYNOMIALS})
def polynomial(
    ctx: ConversionContext,
    x: Operand,
    n: Operand,
    *,
    family: Family,
) -> NetworkTensor:
    """Converts polynomials of degrees known only at run time: a loop up to the highest, in which others wait."""
    if not isinstance(n, (int, float)):
        n = types.operand(ctx, n, torch.int32, types.rank_of(n))
    point, degree = (
        Formula(ctx, operand)
        for operand in shape.broadcast(ctx, types.operands(ctx, (x, n), _WIDE))
    )
    if family.shifted:
        point = point * 2.0 - 1.0
    one = Formula(ctx, types.operand(ctx, 1.0, _WIDE, types.rank_of(point.tensor)))
    start = shape.broadcast(ctx, [one.tensor, point.tensor])[0]
    loop = ctx.net.add_loop()
    layers = [
        loop.add_recurrence(initial)
        for initial in (one.tensor, start, _line(point, (family.start, family.slope)).tensor)
    ]
    k, before, last = (Formula(ctx, layer.get_output(0)) for layer in layers)
    loop.add_trip_limit(_steps(ctx, degree), trt.TripLimit.COUNT)
    a, b, c, d = (_line(k, line) for line in (family.a, family.b, family.c, family.d))
    following = ((point * a + b) * last - before * c) / d
    waits = k < degree
    for layer, value in zip(
        layers,
        (k + 1.0, waits.where(last, before), waits.where(following, last)),
        strict=True,
    ):
        layer.set_input(1, value.tensor)
    result = loop.add_loop_output(last.tensor, trt.LoopOutput.LAST_VALUE, 0).get_output(0)
    return types.cast(ctx, _within_limits(ctx, result, degree, family), types.output_dtype(ctx))


def _steps(ctx: ConversionContext, degree: Formula) -> NetworkTensor:
    """Returns how many steps lead from degree 1 to the highest: a 0-d int32 tensor.

    A count, not a condition: what a condition reads TensorRT 8.6 keeps where no kernel of the body can.
    """
    rank = len(degree.tensor.shape)
    highest = degree.tensor
    if rank:
        highest = reduction.reduce(ctx, "MAX", highest, range(rank), True)
    steps = (Formula(ctx, highest) + -1.0).ceil().tensor
    count = Formula(ctx, shape.squeeze(ctx, steps, range(rank)), torch.int32)
    return count.maximum(0).tensor


def _line(k: Formula, line: Line) -> Any:
    """Returns a line at a degree: a number where it does not grow."""
    start, slope = line
    if not slope:
        return start
    scaled = k if slope == 1 else k * slope
    return scaled + start if start else scaled


def _within_limits(
    ctx: ConversionContext, result: NetworkTensor, degree: Formula, family: Family
) -> NetworkTensor:
    """Returns a polynomial with the values that PyTorch gives to degrees below 1 and beyond the limit."""
    value = Formula(ctx, result, _WIDE)
    value = (degree < 1).where(1.0, value)
    value = (degree < 0).where(0.0, value)
    if family.limit is not None:
        value = (degree > family.limit).where(torch.nan, value)
    return value.tensor
