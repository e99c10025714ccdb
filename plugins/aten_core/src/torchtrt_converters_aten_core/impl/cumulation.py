"""Running totals along a dimension."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import (
    creation,
    elementwise,
    merging,
    shape,
    sizes,
    slicing,
    unary,
)
from torchtrt_converters_aten_core.impl.shims import add_cumulative_sum


def cumulate(ctx: Any, kind: str, tensor: Any, dim: int) -> Any:
    """Returns the running total of ``tensor`` along a dimension, by a way of :mod:`merging`.

    Sums are one layer where TensorRT has it. Elsewhere by doubling: after step ``n`` each element
    has combined ``2**n`` others, so that a dimension of a fixed size takes as many steps as its size
    has bits (Hillis and Steele, 1986). A size known only at run time takes a loop. Exact for whole
    numbers.
    """
    dim %= len(tensor.shape)
    if kind == "SUM":
        axis = ctx.tensor(dim)
        single = add_cumulative_sum(ctx.net, tensor, axis)
        if single is not None:
            return single
    size, step = tensor.shape[dim], 1
    if size < 0:
        return _one_by_one(ctx, kind, tensor, dim)
    neutral = merging.neutral(kind, ctx.dtype_of(tensor))
    while step < size:
        extents = sizes.sizes_of(ctx, tensor)
        extents[dim] = step
        before = creation.full(ctx, neutral, extents, ctx.dtype_of(tensor))
        extents[dim] = size - step
        rank = len(extents)
        earlier = shape.slice_by(ctx, tensor, [0] * rank, extents, [1] * rank)
        moved = slicing.concatenate(ctx, [before, earlier], dim)
        tensor = merging.merge(ctx, kind, tensor, moved)
        step *= 2
    return tensor


def _one_by_one(ctx: Any, kind: str, tensor: Any, dim: int) -> Any:
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
    return result.get_output(0)


def extremes(ctx: Any, kind: str, tensor: Any, dim: int) -> tuple[Any, Any]:
    """Returns the running ``MAX`` or ``MIN`` along a dimension, and the last int32 index where each was found."""
    dim %= len(tensor.shape)
    best = cumulate(ctx, kind, tensor, dim)
    found = elementwise.combine(ctx, "EQUAL", tensor, best)
    if ctx.dtype_of(tensor).is_floating_point:
        nan = unary.is_nan(ctx, tensor)
        found = elementwise.combine(ctx, "OR", found, nan)
    places = creation.places(ctx, tensor, dim, torch.int32)
    marked = elementwise.select(ctx, found, places, 0, torch.int32)
    return best, cumulate(ctx, "MAX", marked, dim)
