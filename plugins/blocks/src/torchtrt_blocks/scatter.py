"""Values combined with what is at the places that indices name, however often a place is named.

TensorRT's scatter only overwrites. Small problems compare every index with every place and reduce;
large ones go through the sources one by one in a loop, in PyTorch's own order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, add
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import (
    creation,
    elementwise,
    indexing,
    merging,
    reduction,
    shape,
    sizes,
    slicing,
    types,
    unary,
)

DENSE_LIMIT = 1 << 24
"""The maximum number of comparisons of an index with a place that are made at once: 64 MiB of float32."""


MAXIMUM_RANK = 8
"""The maximum number of dimensions that a TensorRT tensor has."""


def combine_at(
    ctx: ConversionContext,
    kind: str,
    tensor: NetworkTensor,
    index: NetworkTensor,
    source: NetworkTensor,
    dim: int,
) -> NetworkTensor:
    """Returns ``tensor`` combined with ``source`` at the places that ``index`` names along ``dim``.

    Args:
        ctx: The conversion context.
        kind: ``"SUM"``, ``"PROD"``, ``"MAX"`` or ``"MIN"``.
        tensor: A network tensor of rank 1 or more, no booleans.
        index: Integers from 0 on, of the same rank. Sizes of 1 broadcast to the source's; along
            other dimensions than ``dim`` there may be fewer elements than in ``tensor``.
        source: What is combined: a network tensor of the tensor's dtype and of the index' shape once
            that is broadcast.
        dim: The dimension.
    """
    dim %= len(tensor.shape)
    if _is_small(ctx, tensor, source, dim):
        return _at_once(ctx, kind, tensor, index, source, dim)
    extents = sizes.sizes_of(ctx, source)
    index = shape.expand(ctx, index, extents)
    return _one_by_one(ctx, kind, tensor, index, source, dim)


def overwrite(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    index: NetworkTensor,
    value: float,
    source: NetworkTensor,
    dim: int,
) -> NetworkTensor:
    """Returns ``tensor`` with a number at the places where ``combine_at`` would combine.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        index: An integer network tensor of the same rank.
        value: The number.
        source: A network tensor of the rank of ``index``, whose shape limits the places.
        dim: The dimension; negative ones count from the last.
    """
    dim %= len(tensor.shape)
    dtype = ctx.dtype_of(tensor)
    if _is_small(ctx, tensor, source, dim):
        chosen = _choices(ctx, tensor, index, dim)
        touched = reduction.any_true(ctx, chosen, [dim + 1], False)
        return elementwise.select(ctx, touched, value, tensor, dtype)
    extents = sizes.sizes_of(ctx, source)
    index = shape.expand(ctx, index, extents)
    values = creation.full(ctx, value, extents, dtype)
    return _one_by_one(ctx, None, tensor, index, values, dim)


def _is_small(
    ctx: ConversionContext, tensor: NetworkTensor, source: NetworkTensor, dim: int
) -> bool:
    """Returns whether a comparison of all places with all indices gives exact results and is not too large."""
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    exact = dtype.is_floating_point or supports(Capability.INTEGER_REDUCTION)
    mine, theirs = ctx.symbolic_shape(tensor), ctx.symbolic_shape(source)
    whole = all(sizes.same(mine[index], theirs[index]) for index in range(rank) if index != dim)
    count = 1
    for symbol in (*theirs, mine[dim]):
        maximum = None if symbol is None else sizes.maximum(symbol)
        if maximum is None:
            return False
        count *= maximum
    return exact and whole and count <= DENSE_LIMIT and rank < MAXIMUM_RANK


def _at_once(
    ctx: ConversionContext,
    kind: str,
    tensor: NetworkTensor,
    index: NetworkTensor,
    source: NetworkTensor,
    dim: int,
) -> NetworkTensor:
    """Combines all values for a place in one reduction over a mask: ``DENSE_LIMIT`` bounds the mask's elements."""
    dtype = ctx.dtype_of(tensor)
    chosen = _choices(ctx, tensor, index, dim)
    values = shape.unsqueeze(ctx, source, [dim])
    total = _reduce_chosen(ctx, kind, chosen, values, dim + 1)
    if dtype.is_floating_point and kind in ("MAX", "MIN"):  # whose reductions pass over NaN
        missing = types.cast(ctx, unary.is_nan(ctx, values), dtype)
        nan_marks = _reduce_chosen(ctx, "MAX", chosen, missing, dim + 1, 0)
        spoiled = elementwise.compare(ctx, "gt", nan_marks, 0)
        total = elementwise.select(ctx, spoiled, math.nan, total, dtype)
    return merging.merge(ctx, kind, tensor, total)


def _choices(
    ctx: ConversionContext, tensor: NetworkTensor, index: NetworkTensor, dim: int
) -> NetworkTensor:
    """Returns whether an index names a place: a bool tensor with the places along ``dim``, the indices after it."""
    positions = creation.indices_along(ctx, tensor, dim, ctx.dtype_of(index))
    positions = shape.unsqueeze(ctx, positions, [dim + 1])
    wide = shape.unsqueeze(ctx, index, [dim])
    return elementwise.combine(ctx, "EQUAL", wide, positions)


def _reduce_chosen(
    ctx: ConversionContext,
    kind: str,
    chosen: Operand,
    values: NetworkTensor,
    dim: int,
    other: float | None = None,
) -> NetworkTensor:
    """Reduces the chosen values along ``dim``. The others count as ``other``, by default the neutral element."""
    dtype = ctx.dtype_of(values)
    other = merging.neutral(kind, dtype) if other is None else other
    # A tensor, since TensorRT 8.6 keeps an infinite number only where it is spread over a row.
    rank = len(values.shape)
    filler = ctx.tensor(types.nested(other, rank), dtype)
    if isinstance(other, float) and math.isinf(other):
        rows = sizes.sizes_of(ctx, values)
        filler = creation.full(ctx, other, rows, dtype)
    kept = add(ctx, "select", chosen, values, filler)
    return reduction.reduce(ctx, kind, kept, [dim], False)


def _one_by_one(
    ctx: ConversionContext,
    kind: str | None,
    tensor: NetworkTensor,
    index: NetworkTensor,
    source: NetworkTensor,
    dim: int,
) -> NetworkTensor:
    """Returns ``tensor`` combined with ``source`` in a loop, or overwritten by it without a kind."""
    extents = sizes.sizes_of(ctx, tensor)
    if not sizes.is_positive(ctx.symbolic_shape(tensor)[dim]):
        # Each iteration names one place. TensorRT requires it to be there, even of a loop without iterations.
        more = creation.full(ctx, 0, [*extents[:dim], 1, *extents[dim + 1 :]], ctx.dtype_of(tensor))
        longer = slicing.concatenate(ctx, [tensor, more], dim)
        result = _loop(ctx, kind, longer, index, source, dim)
        rank = len(extents)
        return shape.slice_by(ctx, result, [0] * rank, extents, [1] * rank)
    return _loop(ctx, kind, tensor, index, source, dim)


def _loop(
    ctx: ConversionContext,
    kind: str | None,
    tensor: NetworkTensor,
    index: NetworkTensor,
    source: NetworkTensor,
    dim: int,
) -> NetworkTensor:
    """Returns ``tensor``, which has places along ``dim``, after one iteration for each place of ``source`` there."""
    count = sizes.size_of(ctx, source, dim)
    loop = ctx.net.add_loop()
    loop.add_trip_limit(ctx.tensor(count), trt.TripLimit.COUNT)
    here, value = (_iterate(ctx, loop, part, dim) for part in (index, source))
    state = loop.add_recurrence(tensor)
    before = state.get_output(0)
    if kind is not None:
        old = indexing.gather_elements(ctx, before, here, dim)
        value = merging.merge(ctx, kind, old, value)
    after = indexing.scatter_elements(ctx, before, here, value, dim)
    state.set_input(1, after)
    result = loop.add_loop_output(before, trt.LoopOutput.LAST_VALUE, 0)
    output: NetworkTensor = result.get_output(0)
    return output


def _iterate(ctx: ConversionContext, loop: Any, tensor: NetworkTensor, dim: int) -> NetworkTensor:
    """Returns the element of a tensor at the loop's place along a dimension, with size 1 there.

    The dimension of size 1 comes from before the loop, where the rank allows. TensorRT for RTX 1.7 does not build
    a reshape of an iterator's element if the iterator reads the result of a cast.
    """
    if len(tensor.shape) == MAXIMUM_RANK:
        return shape.unsqueeze(ctx, loop.add_iterator(tensor, dim).get_output(0), [dim])
    wide = shape.unsqueeze(ctx, tensor, [dim + 1])
    element: NetworkTensor = loop.add_iterator(wide, dim).get_output(0)
    return element


def reduce_at(
    ctx: ConversionContext,
    how: str,
    tensor: NetworkTensor,
    index: NetworkTensor,
    source: NetworkTensor,
    dim: int,
    include_self: bool,
) -> NetworkTensor:
    """Returns ``tensor`` with the places that ``index`` names along ``dim`` reduced over ``source``.

    Args:
        ctx: The conversion context.
        how: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        tensor: As for ``combine_at``.
        index: The same.
        source: The same.
        dim: The dimension.
        include_self: Whether what is there already takes part.
    """
    kind, dtype = KINDS[how], ctx.dtype_of(tensor)
    start = tensor
    if not include_self:
        start = overwrite(ctx, tensor, index, merging.neutral(kind, dtype), source, dim)
    if how != "mean":
        return combine_at(ctx, kind, start, index, source, dim)
    total = combine_at(ctx, "SUM", start, index, source, dim)
    counts = creation.full(ctx, int(include_self), sizes.sizes_of(ctx, tensor), dtype)
    ones = creation.full(ctx, 1, sizes.sizes_of(ctx, source), dtype)
    count = combine_at(ctx, "SUM", counts, index, ones, dim)
    count = elementwise.clamp(ctx, count, 1, None, dtype)
    rounding = None if dtype.is_floating_point else "floor"
    return elementwise.divide(ctx, total, count, dtype, rounding)


KINDS = {"sum": "SUM", "prod": "PROD", "mean": "SUM", "amax": "MAX", "amin": "MIN"}


def broadcast_index(
    ctx: ConversionContext, index: NetworkTensor, rank: int, dim: int
) -> NetworkTensor:
    """Returns a vector of indices as a tensor of a rank, along ``dim`` and of size 1 elsewhere.

    Args:
        ctx: The conversion context.
        index: An integer network tensor of shape ``(count,)``.
        rank: The rank of the result.
        dim: The dimension; negative ones count from the last.
    """
    others: Sequence[int] = [index for index in range(rank) if index != dim % rank]
    return shape.unsqueeze(ctx, index, others)


def put(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    indices: Sequence[NetworkTensor | torch.Tensor | None],
    values: NetworkTensor,
    accumulate: bool,
) -> NetworkTensor:
    """Returns ``tensor`` after ``tensor[indices] = values``, or ``+= values`` for every index.

    Args:
        ctx: The conversion context.
        tensor: A network tensor, no booleans.
        indices: As for ``.indexing.index_by``.
        values: A network tensor of the tensor's dtype that broadcasts to ``tensor[indices]``.
        accumulate: Whether values are added, each as often as its place is named.
    """
    merged = indexing.merge_indexed(ctx, tensor, indices)
    index, rest = merged.index, sizes.sizes_of(ctx, merged.tensor)[1:]
    rank = len(index.shape)
    rows = sizes.sizes_of(ctx, index)
    wanted = [*rest[: merged.result_dim], *rows, *rest[merged.result_dim :]]
    values = shape.expand(ctx, values, wanted)
    back = [*range(merged.result_dim, merged.result_dim + rank)]
    order = [*back, *(dim for dim in range(len(wanted)) if dim not in back)]
    values = shape.permute(ctx, values, order)
    if rank != 1:  # one row for each index
        values = shape.reshape(ctx, values, [sizes.product(ctx, rows), *rest])
        index = shape.flatten(ctx, index)
    if accumulate:
        index = broadcast_index(ctx, index, len(values.shape), 0)
        result = combine_at(ctx, "SUM", merged.tensor, index, values, 0)
    else:
        result = indexing.scatter_rows(ctx, merged.tensor, index, values)
    source = ctx.symbolic_shape(merged.tensor)
    result = shape.reshape(ctx, result, merged.outline, source=source)
    return shape.permute(
        ctx, result, [merged.order.index(index) for index in range(len(merged.order))]
    )
