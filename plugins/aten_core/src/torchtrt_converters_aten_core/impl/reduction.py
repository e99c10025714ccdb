"""Reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import elementwise, shape, types, unary
from torchtrt_converters_aten_core.impl.layers import add


def reduce(ctx: Any, kind: str, tensor: Any, dims: Sequence[int], keep: bool, name: str) -> Any:
    """Returns ``tensor`` reduced over ``dims``: a single layer; the tensor itself where there is nothing to reduce.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ReduceOperation``.
        tensor: A network tensor of floating-point or whole numbers.
        dims: The dimensions to reduce.
        keep: Whether they stay, with size 1.
        name: The layer's name.
    """
    if not len(tensor.shape) or not dims:
        return tensor
    mask = 0
    for dim in dims:
        mask |= 1 << dim % len(tensor.shape)
    return add(ctx, name, "reduce", tensor, getattr(trt.ReduceOperation, kind), mask, keep)


def extreme(ctx: Any, kind: str, tensor: Any, dims: Sequence[int], keep: bool, name: str) -> Any:
    """Returns the ``MAX`` or ``MIN`` of a floating-point tensor over ``dims``: not a number where one element is none.

    TensorRT's own passes over elements that are not numbers.
    """
    if not len(tensor.shape) or not dims:
        return tensor
    best = reduce(ctx, kind, tensor, dims, keep, name + "/best")
    number = elementwise.combine(ctx, "EQUAL", tensor, tensor, name + "/number")
    numbers = all_true(ctx, number, dims, keep, name + "/numbers")
    return elementwise.select(ctx, numbers, best, math.nan, ctx.dtype_of(tensor), name)


def all_dims(tensor: Any, dims: int | Sequence[int] | None) -> list[int]:
    """Returns the dimensions that PyTorch's ``dim`` stands for: all of them for ``None`` and for an empty list."""
    rank = len(tensor.shape)
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return list(range(rank))
    return [dim % max(rank, 1) for dim in (dims if isinstance(dims, Sequence) else [dims])]


def any_true(ctx: Any, tensor: Any, dims: Sequence[int], keep: bool, name: str) -> Any:
    """Returns a bool tensor: whether any element is not zero."""
    return _reduce_bool(ctx, "MAX", tensor, dims, keep, name)


def all_true(ctx: Any, tensor: Any, dims: Sequence[int], keep: bool, name: str) -> Any:
    """Returns a bool tensor: whether all elements are not zero."""
    return _reduce_bool(ctx, "MIN", tensor, dims, keep, name)


def _reduce_bool(
    ctx: Any, kind: str, tensor: Any, dims: Sequence[int], keep: bool, name: str
) -> Any:
    condition = types.cast(ctx, tensor, torch.bool, name + "/condition")
    if not len(tensor.shape) or not dims:
        return condition
    number = types.cast(ctx, condition, torch.int32, name + "/number")
    return types.cast(ctx, reduce(ctx, kind, number, dims, keep, name), torch.bool, name)


def variance(
    ctx: Any, tensor: Any, dims: Sequence[int], correction: float, keep: bool, name: str
) -> tuple[Any, Any]:
    """Returns the variance over ``dims`` and the mean, computed as the mean of squared deviations.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        dims: The dimensions to reduce.
        correction: What is subtracted from the number of elements.
        keep: Whether the dimensions stay, with size 1.
        name: The prefix for the names of layers.
    """
    dtype = ctx.dtype_of(tensor)
    mean = reduce(ctx, "AVG", tensor, dims, True, name + "/mean")
    deviation = elementwise.combine(ctx, "SUB", tensor, mean, name + "/deviation")
    square = elementwise.combine(ctx, "PROD", deviation, deviation, name + "/square")
    if correction == 0:
        result = reduce(ctx, "AVG", square, dims, keep, name)
    else:
        total = reduce(ctx, "SUM", square, dims, keep, name + "/total")
        result = elementwise.arithmetic(
            ctx, "DIV", total, _divisor(ctx, tensor, dims, correction, name), dtype, name
        )
    return result, mean if keep else shape.squeeze(ctx, mean, dims, name + "/mean_squeezed")


def _divisor(ctx: Any, tensor: Any, dims: Sequence[int], correction: float, name: str) -> Any:
    from torchtrt_converters_aten_core.impl import sizes

    parts = [sizes.size_of(ctx, tensor, dim, f"{name}/size{dim}") for dim in dims]
    count = sizes.product(ctx, parts, name + "/count")
    if isinstance(count, int):
        return max(count - correction, 0.0)
    number = types.cast(ctx, count, torch.float32, name + "/count")
    less = elementwise.arithmetic(ctx, "SUB", number, correction, torch.float32, name + "/less")
    return elementwise.clamp(ctx, less, 0.0, None, torch.float32, name + "/divisor")


def norm(ctx: Any, tensor: Any, order: float, dims: Sequence[int], keep: bool, name: str) -> Any:
    """Returns the vector norm of any order over ``dims`` of a floating-point tensor."""
    dtype = ctx.dtype_of(tensor)
    if order == 2:
        square = elementwise.combine(ctx, "PROD", tensor, tensor, name + "/square")
        return unary.apply(ctx, "SQRT", reduce(ctx, "SUM", square, dims, keep, name + "/sum"), name)
    magnitude = unary.apply(ctx, "ABS", tensor, name + "/magnitude")
    if order == 1:
        return reduce(ctx, "SUM", magnitude, dims, keep, name)
    if order in (float("inf"), float("-inf")):
        return extreme(ctx, "MAX" if order > 0 else "MIN", magnitude, dims, keep, name)
    if order == 0:
        nonzero = elementwise.compare(ctx, "ne", tensor, 0, name + "/nonzero")
        number = types.cast(ctx, nonzero, dtype, name + "/number")
        return reduce(ctx, "SUM", number, dims, keep, name)
    power = elementwise.arithmetic(ctx, "POW", magnitude, order, dtype, name + "/power")
    total = reduce(ctx, "SUM", power, dims, keep, name + "/sum")
    return elementwise.arithmetic(ctx, "POW", total, 1 / order, dtype, name)
