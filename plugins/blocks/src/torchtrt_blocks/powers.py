"""Powers of floating-point numbers, with the results that IEEE 754 defines for zeros, infinities and NaN."""

from __future__ import annotations

import math

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand
from torchtrt_blocks import elementwise, types, unary
from torchtrt_blocks.formulas import Formula


def power(
    ctx: ConversionContext, base: Operand, exponent: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns ``base ** exponent``, as C's ``pow`` defines it (IEEE 754-2019, 9.2.1).

    TensorRT computes a power by logarithms, which has other results in three cases: the exponent is 0, the base is 1,
    or the base is negative and the exponent infinite. More layers select the results there, where numbers that are
    known do not exclude these cases.

    A number is first rounded to ``dtype``. PyTorch does so for powers, and not for other arithmetic in half precision.

    Args:
        ctx: The conversion context.
        base: A network tensor, a PyTorch tensor or a number.
        exponent: Likewise; the two broadcast.
        dtype: The floating-point dtype to compute in.
    """
    base, exponent = (_rounded(operand, dtype) for operand in (base, exponent))
    if _is_finite_and_not_zero(exponent) or _is_positive_and_not_one(base):
        return elementwise.arithmetic(ctx, "POW", base, exponent, dtype)
    x, y = (Formula(ctx, operand) for operand in types.operands(ctx, (base, exponent), dtype))
    infinite = Formula(ctx, unary.is_infinite(ctx, y.tensor))
    unknown = Formula(ctx, unary.is_nan(ctx, y.tensor))
    # The sign of the base does not matter to an infinite power, and there is no logarithm of a negative number.
    x = infinite.where(abs(x), x)
    result = Formula(ctx, elementwise.arithmetic(ctx, "POW", x.tensor, y.tensor, dtype), dtype)
    is_one = (y == 0) | ((x == 1) & (infinite | unknown))
    return is_one.where(1, result).tensor


def _rounded(value: Operand, dtype: torch.dtype) -> Operand:
    if isinstance(value, (int, float)) and dtype.is_floating_point:
        return float(torch.tensor(value, dtype=dtype))
    return value


def _is_finite_and_not_zero(exponent: Operand) -> bool:
    if isinstance(exponent, torch.Tensor):
        return bool((exponent.isfinite() & (exponent != 0)).all())
    return isinstance(exponent, (int, float)) and math.isfinite(exponent) and exponent != 0


def _is_positive_and_not_one(base: Operand) -> bool:
    if isinstance(base, torch.Tensor):
        return bool(((base > 0) & (base != 1) & base.isfinite()).all())
    return isinstance(base, (int, float)) and 0 < base < math.inf and base != 1
