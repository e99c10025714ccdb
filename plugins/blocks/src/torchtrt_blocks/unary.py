"""Functions of one tensor, element by element."""

from __future__ import annotations

import math

from torchtrt.conversion import ConversionContext, NetworkTensor, add
from torchtrt.tensorrt import trt
from torchtrt_blocks import types


def apply(ctx: ConversionContext, kind: str, tensor: NetworkTensor) -> NetworkTensor:
    """Returns ``kind`` of a tensor: a single layer.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.UnaryOperation``.
        tensor: A network tensor of a dtype that TensorRT accepts for it.
    """
    return add(ctx, "unary", tensor, getattr(trt.UnaryOperation, kind))


def negative(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns ``-tensor``; integers by subtraction, since TensorRT negates only floating point.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a numeric dtype and any shape.
    """
    dtype = ctx.dtype_of(tensor)
    if dtype.is_floating_point:
        return apply(ctx, "NEG", tensor)
    zero = ctx.tensor(types.nested(0, len(tensor.shape)), dtype)
    return add(ctx, "elementwise", zero, tensor, trt.ElementWiseOperation.SUB)


def truncate(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns a floating-point tensor rounded toward zero, exact at every magnitude.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    magnitude = apply(ctx, "ABS", tensor)
    whole = apply(ctx, "FLOOR", magnitude)
    sign = apply(ctx, "SIGN", tensor)
    return add(ctx, "elementwise", sign, whole, trt.ElementWiseOperation.PROD)


def floor(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns a floating-point tensor rounded down.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    return apply(ctx, "FLOOR", tensor)


def expm1(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns ``exp(x) - 1`` of a floating-point tensor, accurate near 0: up to 0.5 by Taylor's polynomial.

    Its relative error is below ``0.5**8 / 9! / 0.78``, 2e-8, by Taylor's theorem. Not by ``tanh(x / 2)``, which
    TensorRT computes to 1e-5.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    operation = trt.ElementWiseOperation
    coefficients = [
        types.operand(ctx, 1 / math.factorial(power), dtype, rank) for power in range(8, 0, -1)
    ]
    near = coefficients[0]
    for coefficient in coefficients[1:]:
        near = add(ctx, "elementwise", near, tensor, operation.PROD)
        near = add(ctx, "elementwise", near, coefficient, operation.SUM)
    near = add(ctx, "elementwise", near, tensor, operation.PROD)
    far = add(ctx, "elementwise", apply(ctx, "EXP", tensor), coefficients[-1], operation.SUB)
    half = types.operand(ctx, 0.5, dtype, rank)
    is_near = add(ctx, "elementwise", apply(ctx, "ABS", tensor), half, operation.LESS)
    return add(ctx, "select", is_near, near, far)


def log1p(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns ``log(1 + x)`` of a floating-point tensor, accurate near 0, where it is ``2 * atanh(x / (2 + x))``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    operation = trt.ElementWiseOperation
    one = types.operand(ctx, 1.0, dtype, rank)
    two = types.operand(ctx, 2.0, dtype, rank)
    half = types.operand(ctx, 0.5, dtype, rank)
    sum_ = add(ctx, "elementwise", one, tensor, operation.SUM)
    far = apply(ctx, "LOG", sum_)
    wide = add(ctx, "elementwise", two, tensor, operation.SUM)
    ratio = add(ctx, "elementwise", tensor, wide, operation.DIV)
    angle = apply(ctx, "ATANH", ratio)
    near = add(ctx, "elementwise", angle, two, operation.PROD)
    magnitude = apply(ctx, "ABS", tensor)
    is_near = add(ctx, "elementwise", magnitude, half, operation.LESS)
    return add(ctx, "select", is_near, near, far)


def is_nan(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns a bool tensor: which elements are NaN, the ones that do not equal themselves.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    equal = trt.ElementWiseOperation.EQUAL
    itself = add(ctx, "elementwise", tensor, tensor, equal)
    return apply(ctx, "NOT", itself)


def is_infinite(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns a bool tensor: which elements are infinite.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    return apply(ctx, "ISINF", tensor)
