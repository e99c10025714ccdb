"""Values combined with what is at the places that indices name, however often a place is named.

TensorRT's scatter only overwrites. Small problems compare every index with every place and reduce;
large ones go through the sources one by one in a loop, in PyTorch's own order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchtrt.conversion import get_trt_tensor
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import reduces_integers_exactly
from torchtrt_converters_aten_core.impl import (
    creation,
    elementwise,
    indexing,
    merging,
    reduction,
    shape,
    sizes,
    types,
    unary,
)
from torchtrt_converters_aten_core.impl.layers import add

DENSE_LIMIT = 1 << 24
"""The most comparisons of an index with a place that are made at once: 64 MiB of float32."""


def combine_at(
    ctx: Any, kind: str, tensor: Any, index: Any, source: Any, dim: int, name: str
) -> Any:
    """Returns ``tensor`` combined with ``source`` at the places that ``index`` names along ``dim``.

    Args:
        ctx: The conversion context.
        kind: ``"SUM"``, ``"PROD"``, ``"MAX"`` or ``"MIN"``.
        tensor: A network tensor of rank 1 or more, no booleans.
        index: Whole numbers from 0 on, of the same rank. Sizes of 1 broadcast to the source's; along
            other dimensions than ``dim`` there may be fewer elements than in ``tensor``.
        source: What is combined: a network tensor of the tensor's dtype and of the index' shape once
            that is broadcast.
        dim: The dimension.
        name: The prefix for the names of layers.
    """
    dim %= len(tensor.shape)
    if _is_small(ctx, tensor, source, dim):
        return _at_once(ctx, kind, tensor, index, source, dim, name)
    extents = sizes.sizes_of(ctx, source, name + "/source_size")
    index = shape.expand(ctx, index, extents, name + "/index")
    return _one_by_one(ctx, kind, tensor, index, source, dim, name)


def overwrite(
    ctx: Any, tensor: Any, index: Any, value: float, source: Any, dim: int, name: str
) -> Any:
    """Returns ``tensor`` with a number at the places where :func:`combine_at` would combine."""
    dim %= len(tensor.shape)
    dtype = ctx.dtype_of(tensor)
    if _is_small(ctx, tensor, source, dim):
        chosen = _choices(ctx, tensor, index, dim, name)
        touched = reduction.any_true(ctx, chosen, [dim + 1], False, name + "/touched")
        return elementwise.select(ctx, touched, value, tensor, dtype, name)
    extents = sizes.sizes_of(ctx, source, name + "/size")
    index = shape.expand(ctx, index, extents, name + "/index")
    values = creation.full(ctx, value, extents, dtype, name + "/values")
    return _one_by_one(ctx, None, tensor, index, values, dim, name)


def _is_small(ctx: Any, tensor: Any, source: Any, dim: int) -> bool:
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    exact = dtype.is_floating_point or reduces_integers_exactly()
    mine, theirs = ctx.symbolic_shape(tensor), ctx.symbolic_shape(source)
    whole = all(sizes.same(mine[place], theirs[place]) for place in range(rank) if place != dim)
    count = 1
    for symbol in (*theirs, mine[dim]):
        greatest = None if symbol is None else sizes.greatest(symbol)
        if greatest is None:
            return False
        count *= greatest
    return exact and whole and count <= DENSE_LIMIT and rank < 8


def _at_once(ctx: Any, kind: str, tensor: Any, index: Any, source: Any, dim: int, name: str) -> Any:
    dtype = ctx.dtype_of(tensor)
    chosen = _choices(ctx, tensor, index, dim, name)
    values = shape.unsqueeze(ctx, source, [dim], name + "/values")
    total = _reduce_chosen(ctx, kind, chosen, values, dim + 1, name + "/total")
    if dtype.is_floating_point and kind in ("MAX", "MIN"):  # whose reductions pass over NaN
        missing = types.cast(ctx, unary.is_nan(ctx, values, name + "/is_nan"), dtype, name + "/nan")
        found = _reduce_chosen(ctx, "MAX", chosen, missing, dim + 1, name + "/found", 0)
        spoiled = elementwise.compare(ctx, "gt", found, 0, name + "/spoiled")
        total = elementwise.select(ctx, spoiled, math.nan, total, dtype, name + "/total_or_nan")
    return merging.merge(ctx, kind, tensor, total, name)


def _choices(ctx: Any, tensor: Any, index: Any, dim: int, name: str) -> Any:
    """Returns whether an index names a place: a bool tensor with the places along ``dim``, the indices after it."""
    places = creation.places(ctx, tensor, dim, ctx.dtype_of(index), name + "/places")
    places = shape.unsqueeze(ctx, places, [dim + 1], name + "/places_wide")
    wide = shape.unsqueeze(ctx, index, [dim], name + "/index_wide")
    return elementwise.combine(ctx, "EQUAL", wide, places, name + "/chosen")


def _reduce_chosen(
    ctx: Any, kind: str, chosen: Any, values: Any, dim: int, name: str, other: float | None = None
) -> Any:
    dtype = ctx.dtype_of(values)
    other = merging.neutral(kind, dtype) if other is None else other
    # A tensor, since TensorRT 8.6 keeps an infinite number only where it is spread over a row.
    rank = len(values.shape)
    filler = get_trt_tensor(ctx, types.nested(other, rank), name + "/other", dtype)
    if isinstance(other, float) and math.isinf(other):
        rows = sizes.sizes_of(ctx, values, name + "/size")
        filler = creation.full(ctx, other, rows, dtype, name + "/others")
    kept = add(ctx, name + "/kept", "select", chosen, values, filler)
    return reduction.reduce(ctx, kind, kept, [dim], False, name)


def _one_by_one(
    ctx: Any, kind: str | None, tensor: Any, index: Any, source: Any, dim: int, name: str
) -> Any:
    """Returns ``tensor`` combined with ``source`` in a loop, or overwritten by it without a kind."""
    count = sizes.size_of(ctx, source, dim, name + "/count")
    loop = ctx.net.add_loop()
    loop.name = name + "/loop"
    limit = loop.add_trip_limit(get_trt_tensor(ctx, count, name + "/trips"), trt.TripLimit.COUNT)
    limit.name = name + "/limit"
    here, value = (
        _iterate(ctx, loop, part, dim, f"{name}/{label}")
        for part, label in ((index, "here"), (source, "value"))
    )
    state = loop.add_recurrence(tensor)
    state.name = name + "/state"
    before = state.get_output(0)
    if kind is not None:
        old = indexing.gather_elements(ctx, before, here, dim, name + "/old")
        value = merging.merge(ctx, kind, old, value, name + "/new")
    after = indexing.scatter_elements(ctx, before, here, value, dim, name + "/after")
    state.set_input(1, after)
    result = loop.add_loop_output(before, trt.LoopOutput.LAST_VALUE, 0)
    result.name = name
    return result.get_output(0)


def _iterate(ctx: Any, loop: Any, tensor: Any, dim: int, name: str) -> Any:
    iterator = loop.add_iterator(tensor, dim)
    iterator.name = name + "/iterator"
    return shape.unsqueeze(ctx, iterator.get_output(0), [dim], name)


def reduce_at(
    ctx: Any,
    how: str,
    tensor: Any,
    index: Any,
    source: Any,
    dim: int,
    include_self: bool,
    name: str,
) -> Any:
    """Returns ``tensor`` with the places that ``index`` names along ``dim`` reduced over ``source``.

    Args:
        ctx: The conversion context.
        how: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        tensor: As for :func:`combine_at`.
        index: The same.
        source: The same.
        dim: The dimension.
        include_self: Whether what is there already takes part.
        name: The prefix for the names of layers.
    """
    kind, dtype = KINDS[how], ctx.dtype_of(tensor)
    start = tensor
    if not include_self:
        start = overwrite(
            ctx, tensor, index, merging.neutral(kind, dtype), source, dim, name + "/without_self"
        )
    if how != "mean":
        return combine_at(ctx, kind, start, index, source, dim, name)
    total = combine_at(ctx, "SUM", start, index, source, dim, name + "/total")
    counts, ones = (
        creation.full(
            ctx, value, sizes.sizes_of(ctx, like, f"{name}/{label}_size"), dtype, f"{name}/{label}"
        )
        for value, like, label in ((int(include_self), tensor, "start"), (1, source, "one"))
    )
    count = combine_at(ctx, "SUM", counts, index, ones, dim, name + "/count")
    count = elementwise.clamp(ctx, count, 1, None, dtype, name + "/divisor")
    rounding = None if dtype.is_floating_point else "floor"
    return elementwise.divide(ctx, total, count, dtype, rounding, name)


KINDS = {"sum": "SUM", "prod": "PROD", "mean": "SUM", "amax": "MAX", "amin": "MIN"}


def broadcast_index(ctx: Any, index: Any, rank: int, dim: int, name: str) -> Any:
    """Returns a vector of indices as a tensor of a rank, along ``dim`` and of size 1 elsewhere."""
    others: Sequence[int] = [place for place in range(rank) if place != dim % rank]
    return shape.unsqueeze(ctx, index, others, name)
