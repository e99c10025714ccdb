"""Running totals along a dimension."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import get_trt_tensor
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import add_cumulative_sum
from torchtrt_converters_aten_core.impl import (
    creation,
    elementwise,
    merging,
    shape,
    sizes,
    slicing,
    unary,
)


def cumulate(ctx: Any, kind: str, tensor: Any, dim: int, name: str) -> Any:
    """Returns the running total of ``tensor`` along a dimension, by a way of :mod:`merging`.

    Sums are one layer where TensorRT has it. Elsewhere by doubling: after step ``n`` each element
    has combined ``2**n`` others, so that a dimension of a fixed size takes as many steps as its size
    has bits (Hillis and Steele, 1986). A size known only at run time takes a loop. Exact for whole
    numbers.
    """
    dim %= len(tensor.shape)
    if kind == "SUM":
        axis = get_trt_tensor(ctx, dim, name + "/axis")
        single = add_cumulative_sum(ctx.net, tensor, axis, name)
        if single is not None:
            return single
    size, step = tensor.shape[dim], 1
    if size < 0:
        return _one_by_one(ctx, kind, tensor, dim, name)
    neutral = merging.neutral(kind, ctx.dtype_of(tensor))
    while step < size:
        label = f"{name}/step{step}"
        extents = sizes.sizes_of(ctx, tensor, label + "/size")
        extents[dim] = step
        before = creation.full(ctx, neutral, extents, ctx.dtype_of(tensor), label + "/neutral")
        extents[dim] = size - step
        rank = len(extents)
        earlier = shape.slice_by(ctx, tensor, [0] * rank, extents, [1] * rank, label + "/earlier")
        moved = slicing.concatenate(ctx, [before, earlier], dim, label + "/moved")
        tensor = merging.merge(ctx, kind, tensor, moved, label)
        step *= 2
    return tensor


def _one_by_one(ctx: Any, kind: str, tensor: Any, dim: int, name: str) -> Any:
    dtype = ctx.dtype_of(tensor)
    extents = sizes.sizes_of(ctx, tensor, name + "/size")
    rest = extents[:dim] + extents[dim + 1 :]
    start = creation.full(ctx, merging.neutral(kind, dtype), rest, dtype, name + "/start")
    loop = ctx.net.add_loop()
    loop.name = name + "/loop"
    loop.add_trip_limit(extents[dim], trt.TripLimit.COUNT).name = name + "/limit"
    iterator = loop.add_iterator(tensor, dim)
    iterator.name = name + "/iterator"
    state = loop.add_recurrence(start)
    state.name = name + "/state"
    after = merging.merge(ctx, kind, state.get_output(0), iterator.get_output(0), name + "/total")
    state.set_input(1, after)
    result = loop.add_loop_output(after, trt.LoopOutput.CONCATENATE, dim)
    result.name = name
    result.set_input(1, extents[dim])
    return result.get_output(0)


def extremes(ctx: Any, kind: str, tensor: Any, dim: int, name: str) -> tuple[Any, Any]:
    """Returns the running ``MAX`` or ``MIN`` along a dimension, and the last int32 index where each was found."""
    dim %= len(tensor.shape)
    best = cumulate(ctx, kind, tensor, dim, name + "/best")
    found = elementwise.combine(ctx, "EQUAL", tensor, best, name + "/found")
    if ctx.dtype_of(tensor).is_floating_point:
        nan = unary.is_nan(ctx, tensor, name + "/nan")
        found = elementwise.combine(ctx, "OR", found, nan, name + "/found_or_nan")
    places = creation.places(ctx, tensor, dim, torch.int32, name + "/places")
    marked = elementwise.select(ctx, found, places, 0, torch.int32, name + "/marked")
    return best, cumulate(ctx, "MAX", marked, dim, name)
