"""Running totals along a dimension."""

from __future__ import annotations

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, add
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import (
    creation,
    elementwise,
    merging,
    shape,
    sizes,
    slicing,
    unary,
)

_LONGEST = 2**31 - 1
"""The largest size that TensorRT counts; PyTorch bounds those that depend on data by one beyond."""


def cumulate(
    ctx: ConversionContext,
    kind: str,
    tensor: NetworkTensor,
    dim: int,
    size: int | torch.SymInt | None = None,
) -> NetworkTensor:
    """Returns the running total of ``tensor`` along a dimension, by a way of ``merging``.

    Sums are one layer where TensorRT has it. Elsewhere they are computed by doubling (Hillis and Steele, 1986): after
    step ``n`` each element has combined ``2**n`` others. A dimension takes as many steps as its size, or its maximum,
    has bits. A size without a bound takes a loop. The result is exact for whole numbers.

    Args:
        ctx: The conversion context.
        kind: As for ``.merging.merge``.
        tensor: A network tensor of rank 1 or more.
        dim: The dimension.
        size: Its size in PyTorch, where the context does not have it.
    """
    dim %= len(tensor.shape)
    if kind == "SUM" and supports(Capability.CUMULATIVE):
        operation = trt.CumulativeOperation.SUM
        return add(ctx, "cumulative", tensor, ctx.tensor(dim), operation, False, False)
    if tensor.shape[dim] >= 0:
        return _by_doubling(ctx, kind, tensor, dim)
    symbol = ctx.symbolic_shape(tensor)[dim] if size is None else size
    most = None if symbol is None else sizes.maximum(symbol)
    if most is None or most > _LONGEST:
        return _one_by_one(ctx, kind, tensor, dim)
    return _by_doubling_up_to(ctx, kind, tensor, dim, most)


def _by_doubling(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dim: int
) -> NetworkTensor:
    size, step = tensor.shape[dim], 1
    while step < size:
        first, last = slicing.split(ctx, tensor, dim, [step, size - step])
        earlier, _ = slicing.split(ctx, tensor, dim, [size - step, step])
        tensor = slicing.concatenate(ctx, [first, merging.merge(ctx, kind, last, earlier)], dim)
        step *= 2
    return tensor


def _by_doubling_up_to(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dim: int, most: int
) -> NetworkTensor:
    """As ``_by_doubling``, for a size of at most ``most``: the first elements are combined with any, and kept."""
    dtype, step = ctx.dtype_of(tensor), 1
    positions = creation.indices_along(ctx, tensor, dim, torch.int32)
    while step < most:
        moved = elementwise.arithmetic(ctx, "SUB", shape.flatten(ctx, positions), step, torch.int32)
        moved = elementwise.clamp(ctx, moved, 0, None, torch.int32)
        earlier = add(ctx, "gather", tensor, moved, dim)
        merged = merging.merge(ctx, kind, tensor, earlier)
        is_later = elementwise.compare(ctx, "gt", positions, step - 1)
        tensor = elementwise.select(ctx, is_later, merged, tensor, dtype)
        step *= 2
    return tensor


def _one_by_one(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dim: int
) -> NetworkTensor:
    """Accumulates along a dimension with a loop of the network that takes one slice in each iteration."""
    dtype = ctx.dtype_of(tensor)
    extents = sizes.sizes_of(ctx, tensor)
    rest = extents[:dim] + extents[dim + 1 :]
    start = creation.full(ctx, merging.neutral(kind, dtype), rest, dtype)
    loop = ctx.net.add_loop()
    loop.add_trip_limit(extents[dim], trt.TripLimit.COUNT)
    iterator = loop.add_iterator(tensor, dim)
    state = loop.add_recurrence(start)
    after = merging.merge(ctx, kind, state.get_output(0), iterator.get_output(0))
    state.set_input(1, after)
    result = loop.add_loop_output(after, trt.LoopOutput.CONCATENATE, dim)
    result.set_input(1, extents[dim])
    output: NetworkTensor = result.get_output(0)
    return output


def extremes(
    ctx: ConversionContext,
    kind: str,
    tensor: NetworkTensor,
    dim: int,
    size: int | torch.SymInt | None = None,
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns the running ``MAX`` or ``MIN`` along a dimension, and the last int32 index where each was found.

    Args:
        ctx: The conversion context.
        kind: ``"MAX"`` or ``"MIN"``.
        tensor: A network tensor of a numeric dtype, with at least one dimension.
        dim: The dimension; negative ones count from the last.
        size: The size of the dimension: an ``int`` or a symbolic size.
    """
    dim %= len(tensor.shape)
    best = cumulate(ctx, kind, tensor, dim, size)
    is_extreme = elementwise.combine(ctx, "EQUAL", tensor, best)
    if ctx.dtype_of(tensor).is_floating_point:
        nan = unary.is_nan(ctx, tensor)
        is_extreme = elementwise.combine(ctx, "OR", is_extreme, nan)
    positions = creation.indices_along(ctx, tensor, dim, torch.int32)
    marked = elementwise.select(ctx, is_extreme, positions, 0, torch.int32)
    return best, cumulate(ctx, "MAX", marked, dim, size)
