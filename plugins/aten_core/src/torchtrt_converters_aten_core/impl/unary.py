"""Functions of one tensor, element by element."""

from __future__ import annotations

from typing import Any

import torch
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


def is_nan(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns a bool tensor: which elements are not a number, the ones that do not equal themselves."""
    equal = trt.ElementWiseOperation.EQUAL
    itself = add(ctx, name + "/itself", "elementwise", tensor, tensor, equal)
    return apply(ctx, "NOT", itself, name)


def is_infinite(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns a bool tensor: which elements are infinite."""
    return apply(ctx, "ISINF", tensor, name)


def as_float(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which PyTorch computes a transcendental function of ``dtype``."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()
