"""The largest and smallest elements, in order, and where they are."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, add_layer
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import (
    creation,
    elementwise,
    indexing,
    integer_reduction,
    padding,
    reduction,
    shape,
    sizes,
    slicing,
    types,
    unary,
)

LIMIT = 3840
"""The maximum number of elements that TensorRT ranks."""
COUNTING_LIMIT = 1 << 26
"""The maximum number of comparisons between two elements that are made at once."""


def ranks(dtype: torch.dtype) -> bool:
    """Returns whether the TensorRT in use ranks elements of a dtype."""
    return not types.is_integer(dtype) or supports(Capability.INTEGER_RANKING)


def first_extreme(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dim: int
) -> NetworkTensor:
    """Returns the int32 index of the ``MAX`` or ``MIN`` along a dimension, which stays with size 1.

    Of equal elements it is the first, and of elements that are NaN before any that is one.
    TensorRT's TopK guarantees neither.

    Args:
        ctx: The conversion context.
        kind: ``"MAX"`` or ``"MIN"``.
        tensor: A network tensor of a numeric or bool dtype, with at least one dimension.
        dim: The dimension; negative ones count from the last.
    """
    dtype = ctx.dtype_of(tensor)
    if dtype is torch.bool:
        tensor, dtype = types.cast(ctx, tensor, torch.int32), torch.int32
    if types.is_integer(dtype) and not supports(Capability.INTEGER_REDUCTION):
        is_extreme = _extremes_by_halves(ctx, kind, tensor, dim)
    else:
        best = reduction.reduce(ctx, kind, tensor, [dim], True)
        is_extreme = elementwise.combine(ctx, "EQUAL", tensor, best)
    # float32 holds every index, and every TensorRT reduces it exactly.
    positions = creation.indices_along(ctx, tensor, dim, torch.float32)
    if not dtype.is_floating_point:
        candidates = elementwise.select(ctx, is_extreme, positions, _NO_INDEX, torch.float32)
        first = reduction.reduce(ctx, "MIN", candidates, [dim], True)
        return types.cast(ctx, first, torch.int32)
    # What is NaN comes before the best: its place counts from below 0.
    early = elementwise.arithmetic(ctx, "SUB", positions, _NO_INDEX, torch.float32)
    candidates = elementwise.select(ctx, is_extreme, positions, _NO_INDEX, torch.float32)
    number = elementwise.combine(ctx, "EQUAL", tensor, tensor)
    candidates = elementwise.select(ctx, number, candidates, early, torch.float32)
    first = reduction.reduce(ctx, "MIN", candidates, [dim], True)
    negative = elementwise.compare(ctx, "lt", first, 0)
    moved = elementwise.arithmetic(ctx, "SUM", first, _NO_INDEX, torch.float32)
    index = elementwise.select(ctx, negative, moved, first, torch.float32)
    return types.cast(ctx, index, torch.int32)


def _extremes_by_halves(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dim: int
) -> NetworkTensor:
    """Returns which int32 numbers are extreme where TensorRT reduces in float32.

    They are extreme in their upper half, and of these in the lower. The halves are not put together
    again, since that would be done in float32 as well.
    """
    high, low = integer_reduction.cut(ctx, tensor, 1 << 16)
    best = reduction.reduce(ctx, kind, high, [dim], True)
    among = elementwise.combine(ctx, "EQUAL", high, best)
    worst = -1 if kind == "MAX" else 1 << 16
    candidates = elementwise.select(ctx, among, low, worst, torch.int32)
    best = reduction.reduce(ctx, kind, candidates, [dim], True)
    return elementwise.combine(ctx, "EQUAL", candidates, best)


_NO_INDEX = float(1 << 23)
"""Beyond every index, and so small that float32 holds its sums with indices."""


def top_k(
    ctx: ConversionContext, tensor: NetworkTensor, k: int, dim: int, largest: bool
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns the ``k`` largest (or smallest) elements along a dimension in order, and their int32 indices.

    NaN ranks with infinity, above all numbers.

    Args:
        ctx: The conversion context.
        tensor: A network tensor; booleans are ranked as numbers.
        k: How many, at most ``LIMIT``.
        dim: The dimension; it is moved to the end where TensorRT cannot look along it.
        largest: Whether the largest come first.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if dtype is torch.bool:
        number = types.cast(ctx, tensor, torch.float32)
        values, indices = top_k(ctx, number, k, dim, largest)
        return types.cast(ctx, values, torch.bool), indices
    if rank < 2:  # TensorRT needs two dimensions
        wide = shape.to_rank(ctx, tensor, 2)
        values, indices = top_k(ctx, wide, k, -1, largest)
        gone = [0] if rank else [0, 1]
        return (
            shape.squeeze(ctx, values, gone),
            shape.squeeze(ctx, indices, gone),
        )
    dim %= rank
    far = dim < rank - 4
    if far:
        tensor = shape.swap(ctx, tensor, dim, -1)
    ranked_dim = rank - 1 if far else dim
    ranked = tensor
    if dtype.is_floating_point:
        ranked = _ranked(ctx, tensor, largest)
    kind = trt.TopKOperation.MAX if largest else trt.TopKOperation.MIN
    layer = add_layer(ctx, "topk", ranked, kind, k, 1 << ranked_dim)
    values, indices = layer.get_output(0), layer.get_output(1)
    if dtype.is_floating_point:
        values = indexing.gather_elements(ctx, tensor, indices, ranked_dim)
    if far:
        values = shape.swap(ctx, values, dim, -1)
        indices = shape.swap(ctx, indices, dim, -1)
    return values, indices


def _ranked(ctx: ConversionContext, tensor: NetworkTensor, largest: bool) -> NetworkTensor:
    """Returns numbers that TopK puts in PyTorch's order, in which what is NaN is above all.

    TensorRT 8.6 never chooses an infinity at the wrong end nor what is NaN, and returns -1
    for its index.
    """
    dtype, numbers = ctx.dtype_of(tensor), torch.finfo(types.effective_dtype(ctx, tensor))
    end = types.operand(ctx, numbers.min if largest else numbers.max, dtype, len(tensor.shape))
    # TensorRT's MAX and MIN return the second operand where the first is NaN.
    if not largest:
        return elementwise.combine(ctx, "MIN", tensor, end)
    finite = elementwise.combine(ctx, "MAX", tensor, end)
    number = elementwise.combine(ctx, "EQUAL", tensor, tensor)
    return elementwise.select(ctx, number, finite, math.inf, dtype)


def sort(
    ctx: ConversionContext, tensor: NetworkTensor, dim: int, descending: bool
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns all elements along a dimension in order, and their int32 indices.

    Up to ``LIMIT`` elements are one TopK, and up to twice as many are two, from either end.
    Beyond that, the count of elements before an element is its place.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a dtype and shape that ``sorts`` accepts.
        dim: The dimension; negative ones count from the last.
        descending: Whether the largest element is first.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if not rank:
        return tensor, ctx.tensor(0)
    size = tensor.shape[dim]
    if ranks(dtype) and 0 <= size <= LIMIT:
        return top_k(ctx, tensor, size, dim, descending)
    if ranks(dtype) and LIMIT < size <= 2 * LIMIT:
        return _sort_from_both_ends(ctx, tensor, dim % rank, descending)
    return _sort_by_counting(ctx, tensor, dim % rank, descending)


def sorts(dtype: torch.dtype, extents: tuple[Any, ...], dim: int) -> bool:
    """Returns whether ``sort`` takes a tensor of these sizes, symbolic ones included."""
    if not extents:
        return True
    size = extents[dim]
    if ranks(dtype) and isinstance(size, int) and 1 <= size <= 2 * LIMIT:
        return True
    count = sizes.maximum(size)
    for extent in extents:
        most = sizes.maximum(extent)
        if count is None or most is None:
            return False
        count *= most
    return count is not None and 1 <= count <= COUNTING_LIMIT and len(extents) < 8


def _sort_from_both_ends(
    ctx: ConversionContext, tensor: NetworkTensor, dim: int, descending: bool
) -> tuple[NetworkTensor, NetworkTensor]:
    """Sorts with one TopK from the front and one from the back.

    The second looks at the tensor backward: of equal elements TopK takes the first, so that the two
    never take the same.
    """
    size = tensor.shape[dim]
    front = top_k(ctx, tensor, LIMIT, dim, descending)
    reverse = padding.flip(ctx, tensor, [dim])
    back = top_k(ctx, reverse, size - LIMIT, dim, not descending)
    last = elementwise.arithmetic(ctx, "SUB", size - 1, back[1], torch.int32)
    results = []
    for first, second in ((front[0], back[0]), (front[1], last)):
        ordered = padding.flip(ctx, second, [dim])
        results.append(slicing.concatenate(ctx, [first, ordered], dim))
    return results[0], results[1]


def _sort_by_counting(
    ctx: ConversionContext, tensor: NetworkTensor, dim: int, descending: bool
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns a sorted tensor and the indices, by counting for each element those that come before it."""
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if dtype is torch.bool:
        number = types.cast(ctx, tensor, torch.int32)
        values, indices = _sort_by_counting(ctx, number, dim, descending)
        return types.cast(ctx, values, torch.bool), indices
    mine = shape.unsqueeze(ctx, tensor, [dim + 1])
    theirs = shape.unsqueeze(ctx, tensor, [dim])
    kind = "GREATER" if descending else "LESS"
    before = elementwise.combine(ctx, kind, theirs, mine)
    equal = elementwise.combine(ctx, "EQUAL", theirs, mine)
    if dtype.is_floating_point:  # what is NaN is above all numbers
        my_number, their_number = (
            elementwise.combine(ctx, "EQUAL", operand, operand) for operand in (mine, theirs)
        )
        lower, upper = (my_number, their_number) if descending else (their_number, my_number)
        # The upper is NaN and the lower is not, or the other way round: neither of the comparisons holds then.
        beyond = elementwise.combine(ctx, "AND", lower, unary.apply(ctx, "NOT", upper))
        before = elementwise.combine(ctx, "OR", before, beyond)
        either = elementwise.combine(ctx, "OR", my_number, their_number)
        neither = unary.apply(ctx, "NOT", either)
        equal = elementwise.combine(ctx, "OR", equal, neither)
    size = sizes.size_of(ctx, tensor, dim)
    earlier = creation.triangle_mask(ctx, size, size, -1, True)
    others = [index for index in range(rank + 1) if index not in (dim, dim + 1)]
    earlier = shape.unsqueeze(ctx, earlier, others)
    tie = elementwise.combine(ctx, "AND", equal, earlier)
    before = elementwise.combine(ctx, "OR", before, tie)
    number = types.cast(ctx, before, torch.int32)
    target = reduction.reduce(ctx, "SUM", number, [dim + 1], False)
    extents = sizes.sizes_of(ctx, tensor)
    positions = creation.indices_along(ctx, tensor, dim, torch.int32)
    positions = shape.expand(ctx, positions, extents)
    return (
        indexing.scatter_elements(ctx, tensor, target, tensor, dim),
        indexing.scatter_elements(ctx, positions, target, positions, dim),
    )
