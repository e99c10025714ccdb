"""Functions of one tensor, element by element."""

from __future__ import annotations

from typing import Any

from torchtrt.conversion import get_trt_tensor
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.impl.layers import add


def apply(ctx: Any, kind: str, tensor: Any, name: str) -> Any:
    """Returns ``kind`` of a tensor: a single layer.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.UnaryOperation``.
        tensor: A network tensor of a dtype that TensorRT accepts for it.
        name: The layer's name.
    """
    return add(ctx, name, "unary", tensor, getattr(trt.UnaryOperation, kind))


def negative(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns ``-tensor``; whole numbers by subtraction, since TensorRT negates only floating point."""
    dtype = ctx.dtype_of(tensor)
    if dtype.is_floating_point:
        return apply(ctx, "NEG", tensor, name)
    zero = get_trt_tensor(ctx, types.nested(0, len(tensor.shape)), name + "/zero", dtype)
    return add(ctx, name, "elementwise", zero, tensor, trt.ElementWiseOperation.SUB)


def truncate(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns a floating-point tensor rounded toward zero, exact at every magnitude."""
    magnitude = apply(ctx, "ABS", tensor, name + "/magnitude")
    whole = apply(ctx, "FLOOR", magnitude, name + "/whole")
    sign = apply(ctx, "SIGN", tensor, name + "/sign")
    return add(ctx, name, "elementwise", sign, whole, trt.ElementWiseOperation.PROD)


def floor(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns a floating-point tensor rounded down."""
    return apply(ctx, "FLOOR", tensor, name)


def expm1(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns ``exp(x) - 1`` of a floating-point tensor, accurate near 0, by ``tanh(x / 2) * (exp(x) + 1)``."""
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    operation = trt.ElementWiseOperation
    half = types.operand(ctx, 0.5, dtype, rank, name + "/half")
    one = types.operand(ctx, 1.0, dtype, rank, name + "/one")
    middle = add(ctx, name + "/middle", "elementwise", tensor, half, operation.PROD)
    curve = add(ctx, name + "/tanh", "activation", middle, trt.ActivationType.TANH)
    raised = apply(ctx, "EXP", tensor, name + "/exp")
    raised = add(ctx, name + "/raised", "elementwise", raised, one, operation.SUM)
    return add(ctx, name, "elementwise", curve, raised, operation.PROD)


def log1p(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns ``log(1 + x)`` of a floating-point tensor, accurate near 0, where it is ``2 * atanh(x / (2 + x))``."""
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    operation = trt.ElementWiseOperation
    one = types.operand(ctx, 1.0, dtype, rank, name + "/one")
    two = types.operand(ctx, 2.0, dtype, rank, name + "/two")
    half = types.operand(ctx, 0.5, dtype, rank, name + "/half")
    sum_ = add(ctx, name + "/sum", "elementwise", one, tensor, operation.SUM)
    far = apply(ctx, "LOG", sum_, name + "/far")
    wide = add(ctx, name + "/wide", "elementwise", two, tensor, operation.SUM)
    ratio = add(ctx, name + "/ratio", "elementwise", tensor, wide, operation.DIV)
    angle = apply(ctx, "ATANH", ratio, name + "/angle")
    near = add(ctx, name + "/near", "elementwise", angle, two, operation.PROD)
    magnitude = apply(ctx, "ABS", tensor, name + "/magnitude")
    is_near = add(ctx, name + "/is_near", "elementwise", magnitude, half, operation.LESS)
    return add(ctx, name, "select", is_near, near, far)


def is_nan(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns a bool tensor: which elements are not a number, the ones that do not equal themselves."""
    equal = trt.ElementWiseOperation.EQUAL
    itself = add(ctx, name + "/itself", "elementwise", tensor, tensor, equal)
    return apply(ctx, "NOT", itself, name)


def is_infinite(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns a bool tensor: which elements are infinite."""
    return apply(ctx, "ISINF", tensor, name)
