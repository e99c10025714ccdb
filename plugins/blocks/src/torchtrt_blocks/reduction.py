"""Reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, add
from torchtrt.tensorrt import trt
from torchtrt_blocks import elementwise, shape, sizes, types, unary


def reduce(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns ``tensor`` reduced over ``dims``: a single layer; the tensor itself where there is nothing to reduce.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ReduceOperation``.
        tensor: A network tensor of floating-point or integers.
        dims: The dimensions to reduce.
        keep: Whether they stay, with size 1.
    """
    if not len(tensor.shape) or not dims:
        return tensor
    mask = 0
    for dim in dims:
        mask |= 1 << dim % len(tensor.shape)
    return add(ctx, "reduce", tensor, getattr(trt.ReduceOperation, kind), mask, keep)


def extreme(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns the ``MAX`` or ``MIN`` of a floating-point tensor over ``dims``: NaN where one element is NaN.

    TensorRT's own passes over elements that are not numbers.

    Args:
        ctx: The conversion context.
        kind: ``"MAX"`` or ``"MIN"``.
        tensor: A network tensor of a floating-point dtype and any shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    if not len(tensor.shape) or not dims:
        return tensor
    best = reduce(ctx, kind, tensor, dims, keep)
    number = elementwise.combine(ctx, "EQUAL", tensor, tensor)
    numbers = all_true(ctx, number, dims, keep)
    return elementwise.select(ctx, numbers, best, math.nan, ctx.dtype_of(tensor))


def all_dims(tensor: NetworkTensor | torch.Tensor, dims: int | Sequence[int] | None) -> list[int]:
    """Returns the dimensions that PyTorch's ``dim`` stands for: all of them for ``None`` and for an empty list."""
    rank = len(tensor.shape)
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return list(range(rank))
    return [dim % max(rank, 1) for dim in (dims if isinstance(dims, Sequence) else [dims])]


def any_true(
    ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns a bool tensor: whether any element is not zero; False for no elements.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    most = _extreme_of_bools(ctx, "MAX", tensor, dims, keep)
    return elementwise.compare(
        ctx, "gt", most, 0
    )  # the maximum of no elements is the least integer


def all_true(
    ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns a bool tensor: whether all elements are not zero, as they are where there are none.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    return types.cast(ctx, _extreme_of_bools(ctx, "MIN", tensor, dims, keep), torch.bool)


def _extreme_of_bools(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns the ``MAX`` or ``MIN`` of ones and zeros, int32: ones are where the tensor is not zero."""
    number = types.cast(ctx, types.cast(ctx, tensor, torch.bool), torch.int32)
    if not len(tensor.shape) or not dims:
        return number
    return reduce(ctx, kind, number, dims, keep)


def variance(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    dims: Sequence[int],
    correction: float,
    keep: bool,
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns the variance over ``dims`` and the mean, computed as the mean of squared deviations.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        dims: The dimensions to reduce.
        correction: The variance divides by the number of elements minus this number.
        keep: Whether the dimensions stay, with size 1.
    """
    dtype = ctx.dtype_of(tensor)
    mean = reduce(ctx, "AVG", tensor, dims, True)
    deviation = elementwise.combine(ctx, "SUB", tensor, mean)
    square = elementwise.combine(ctx, "PROD", deviation, deviation)
    if correction == 0:
        result = reduce(ctx, "AVG", square, dims, keep)
    else:
        total = reduce(ctx, "SUM", square, dims, keep)
        result = elementwise.arithmetic(
            ctx, "DIV", total, _divisor(ctx, tensor, dims, correction), dtype
        )
    return result, mean if keep else shape.squeeze(ctx, mean, dims)


def _divisor(
    ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int], correction: float
) -> NetworkTensor | float:
    """Returns the number of elements in ``dims`` less the correction: a number, or a float32 tensor.

    It is at least 0, and 0 for no elements: their mean is no number, whatever the correction.
    """
    parts = [sizes.size_of(ctx, tensor, dim) for dim in dims]
    count = sizes.product(ctx, parts)
    if isinstance(count, int):
        return max(count - correction, 0.0) if count else 0.0
    number = types.cast(ctx, count, torch.float32)
    less = elementwise.arithmetic(ctx, "SUB", number, correction, torch.float32)
    if correction >= 0:
        return elementwise.clamp(ctx, less, 0.0, None, torch.float32)
    if sizes.is_positive(sizes.symbol_of(ctx, count)):
        return less
    some = elementwise.compare(ctx, "gt", number, 0)
    return elementwise.select(ctx, some, less, 0.0, torch.float32)


def norm(
    ctx: ConversionContext, tensor: NetworkTensor, order: float, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns the vector norm of any order over ``dims`` of a floating-point tensor.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        order: The order: a number, infinities included.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    dtype = ctx.dtype_of(tensor)
    if order == 2:
        square = elementwise.combine(ctx, "PROD", tensor, tensor)
        return unary.apply(ctx, "SQRT", reduce(ctx, "SUM", square, dims, keep))
    magnitude = unary.apply(ctx, "ABS", tensor)
    if order == 1:
        return reduce(ctx, "SUM", magnitude, dims, keep)
    if order in (float("inf"), float("-inf")):
        return extreme(ctx, "MAX" if order > 0 else "MIN", magnitude, dims, keep)
    if order == 0:
        nonzero = elementwise.compare(ctx, "ne", tensor, 0)
        number = types.cast(ctx, nonzero, dtype)
        return reduce(ctx, "SUM", number, dims, keep)
    power = elementwise.arithmetic(ctx, "POW", magnitude, order, dtype)
    total = reduce(ctx, "SUM", power, dims, keep)
    return elementwise.arithmetic(ctx, "POW", total, 1 / order, dtype)
