"""The largest and smallest elements, in order, and where they are."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt.conversion import get_trt_tensor
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import ranks_integers, reduces_integers_exactly
from torchtrt_converters_aten_core.impl import (
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
from torchtrt_converters_aten_core.impl.layers import add_layer

LIMIT = 3840
"""The most elements that TensorRT ranks."""
COUNTING_LIMIT = 1 << 26
"""The most comparisons between two elements that are made at once."""


def ranks(dtype: torch.dtype) -> bool:
    """Returns whether the TensorRT in use ranks elements of a dtype."""
    return not types.is_integer(dtype) or ranks_integers()


def first_extreme(ctx: Any, kind: str, tensor: Any, dim: int, name: str) -> Any:
    """Returns the int32 index of the ``MAX`` or ``MIN`` along a dimension, which stays with size 1.

    Of equal elements it is the first, and of elements that are not a number before any that is one.
    TensorRT's TopK promises neither.
    """
    dtype = ctx.dtype_of(tensor)
    if dtype is torch.bool:
        tensor, dtype = types.cast(ctx, tensor, torch.int32, name + "/number"), torch.int32
    if types.is_integer(dtype) and not reduces_integers_exactly():
        found = _found_by_halves(ctx, kind, tensor, dim, name)
    else:
        best = reduction.reduce(ctx, kind, tensor, [dim], True, name + "/best")
        found = elementwise.combine(ctx, "EQUAL", tensor, best, name + "/found")
    # float32 holds every index, and every TensorRT reduces it exactly.
    places = creation.places(ctx, tensor, dim, torch.float32, name + "/places")
    if not dtype.is_floating_point:
        candidates = elementwise.select(
            ctx, found, places, _NO_PLACE, torch.float32, name + "/candidates"
        )
        first = reduction.reduce(ctx, "MIN", candidates, [dim], True, name + "/first")
        return types.cast(ctx, first, torch.int32, name)
    # What is not a number comes before the best: its place counts from below 0.
    early = elementwise.arithmetic(ctx, "SUB", places, _NO_PLACE, torch.float32, name + "/early")
    candidates = elementwise.select(
        ctx, found, places, _NO_PLACE, torch.float32, name + "/candidates"
    )
    number = elementwise.combine(ctx, "EQUAL", tensor, tensor, name + "/is_number")
    candidates = elementwise.select(
        ctx, number, candidates, early, torch.float32, name + "/ordered"
    )
    first = reduction.reduce(ctx, "MIN", candidates, [dim], True, name + "/first")
    negative = elementwise.compare(ctx, "lt", first, 0, name + "/none")
    moved = elementwise.arithmetic(ctx, "SUM", first, _NO_PLACE, torch.float32, name + "/moved")
    index = elementwise.select(ctx, negative, moved, first, torch.float32, name + "/index")
    return types.cast(ctx, index, torch.int32, name)


def _found_by_halves(ctx: Any, kind: str, tensor: Any, dim: int, name: str) -> Any:
    """Returns which int32 numbers are extreme where TensorRT reduces in float32.

    They are extreme in their upper half, and of these in the lower. The halves are not put together
    again, since that would be done in float32 as well.
    """
    high, low = integer_reduction.cut(ctx, tensor, 1 << 16, name + "/cut")
    best = reduction.reduce(ctx, kind, high, [dim], True, name + "/best_high")
    among = elementwise.combine(ctx, "EQUAL", high, best, name + "/among")
    worst = -1 if kind == "MAX" else 1 << 16
    candidates = elementwise.select(ctx, among, low, worst, torch.int32, name + "/low_candidates")
    best = reduction.reduce(ctx, kind, candidates, [dim], True, name + "/best_low")
    return elementwise.combine(ctx, "EQUAL", candidates, best, name + "/found")


_NO_PLACE = float(1 << 23)
"""Beyond every index, and so small that float32 holds its sums with indices."""


def top_k(ctx: Any, tensor: Any, k: int, dim: int, largest: bool, name: str) -> tuple[Any, Any]:
    """Returns the ``k`` largest (or smallest) elements along a dimension in order, and their int32 indices.

    What is not a number ranks with infinity, above all numbers.

    Args:
        ctx: The conversion context.
        tensor: A network tensor; booleans are ranked as numbers.
        k: How many, at most :data:`LIMIT`.
        dim: The dimension; it is moved to the end where TensorRT cannot look along it.
        largest: Whether the largest come first.
        name: The prefix for the names of layers.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if dtype is torch.bool:
        number = types.cast(ctx, tensor, torch.float32, name + "/number")
        values, indices = top_k(ctx, number, k, dim, largest, name)
        return types.cast(ctx, values, torch.bool, name + "/bool"), indices
    if rank < 2:  # TensorRT needs two dimensions
        wide = shape.to_rank(ctx, tensor, 2, name + "/wide")
        values, indices = top_k(ctx, wide, k, -1, largest, name)
        gone = [0] if rank else [0, 1]
        return (
            shape.squeeze(ctx, values, gone, name + "/values"),
            shape.squeeze(ctx, indices, gone, name + "/indices"),
        )
    dim %= rank
    far = dim < rank - 4
    if far:
        tensor = shape.swap(ctx, tensor, dim, -1, name + "/moved")
    place = rank - 1 if far else dim
    ranked = tensor
    if dtype.is_floating_point:
        ranked = _ranked(ctx, tensor, largest, name + "/ranked")
    kind = trt.TopKOperation.MAX if largest else trt.TopKOperation.MIN
    layer = add_layer(ctx, name, "topk", ranked, kind, k, 1 << place)
    values, indices = layer.get_output(0), layer.get_output(1)
    if dtype.is_floating_point:
        values = indexing.gather_elements(ctx, tensor, indices, place, name + "/chosen")
    if far:
        values = shape.swap(ctx, values, dim, -1, name + "/values")
        indices = shape.swap(ctx, indices, dim, -1, name + "/indices")
    return values, indices


def _ranked(ctx: Any, tensor: Any, largest: bool, name: str) -> Any:
    """Returns numbers that TopK puts in PyTorch's order, in which what is not a number is above all.

    TensorRT 8.6 never chooses an infinity at the wrong end nor what is not a number, and says -1
    for its index.
    """
    dtype = ctx.dtype_of(tensor)
    limit = torch.finfo(dtype).min if largest else torch.finfo(dtype).max
    end = types.operand(ctx, limit, dtype, len(tensor.shape), name + "/limit")
    # TensorRT's MAX and MIN return the second operand where the first is not a number.
    if not largest:
        return elementwise.combine(ctx, "MIN", tensor, end, name)
    finite = elementwise.combine(ctx, "MAX", tensor, end, name + "/finite")
    number = elementwise.combine(ctx, "EQUAL", tensor, tensor, name + "/is_number")
    return elementwise.select(ctx, number, finite, math.inf, dtype, name)


def sort(ctx: Any, tensor: Any, dim: int, descending: bool, name: str) -> tuple[Any, Any]:
    """Returns all elements along a dimension in order, and their int32 indices.

    Up to :data:`LIMIT` elements are one TopK; up to twice as many are two, from either end; others
    are put where the count of elements that come before them says.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if not rank:
        return tensor, get_trt_tensor(ctx, 0, name + "/index")
    size = tensor.shape[dim]
    if ranks(dtype) and 0 <= size <= LIMIT:
        return top_k(ctx, tensor, size, dim, descending, name)
    if ranks(dtype) and LIMIT < size <= 2 * LIMIT:
        return _sort_from_both_ends(ctx, tensor, dim % rank, descending, name)
    return _sort_by_counting(ctx, tensor, dim % rank, descending, name)


def sorts(dtype: torch.dtype, extents: tuple[Any, ...], dim: int) -> bool:
    """Returns whether :func:`sort` takes a tensor of these sizes, symbolic ones included."""
    if not extents:
        return True
    size = extents[dim]
    if ranks(dtype) and isinstance(size, int) and 1 <= size <= 2 * LIMIT:
        return True
    count = sizes.greatest(size)
    for extent in extents:
        most = sizes.greatest(extent)
        if count is None or most is None:
            return False
        count *= most
    return count is not None and 1 <= count <= COUNTING_LIMIT and len(extents) < 8


def _sort_from_both_ends(
    ctx: Any, tensor: Any, dim: int, descending: bool, name: str
) -> tuple[Any, Any]:
    """Sorts with one TopK from the front and one from the back.

    The second looks at the tensor backward: of equal elements TopK takes the first, so that the two
    never take the same.
    """
    size = tensor.shape[dim]
    front = top_k(ctx, tensor, LIMIT, dim, descending, name + "/front")
    reverse = padding.flip(ctx, tensor, [dim], name + "/reverse")
    back = top_k(ctx, reverse, size - LIMIT, dim, not descending, name + "/back")
    last = elementwise.arithmetic(ctx, "SUB", size - 1, back[1], torch.int32, name + "/last")
    results = []
    for label, first, second in (("values", front[0], back[0]), ("indices", front[1], last)):
        ordered = padding.flip(ctx, second, [dim], f"{name}/{label}/back")
        results.append(slicing.concatenate(ctx, [first, ordered], dim, f"{name}/{label}"))
    return results[0], results[1]


def _sort_by_counting(
    ctx: Any, tensor: Any, dim: int, descending: bool, name: str
) -> tuple[Any, Any]:
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if dtype is torch.bool:
        number = types.cast(ctx, tensor, torch.int32, name + "/number")
        values, indices = _sort_by_counting(ctx, number, dim, descending, name)
        return types.cast(ctx, values, torch.bool, name + "/bool"), indices
    mine = shape.unsqueeze(ctx, tensor, [dim + 1], name + "/mine")
    theirs = shape.unsqueeze(ctx, tensor, [dim], name + "/theirs")
    kind = "GREATER" if descending else "LESS"
    before = elementwise.combine(ctx, kind, theirs, mine, name + "/ahead")
    equal = elementwise.combine(ctx, "EQUAL", theirs, mine, name + "/equal")
    if dtype.is_floating_point:  # what is not a number is above all numbers
        my_number, their_number = (
            elementwise.combine(ctx, "EQUAL", each, each, f"{name}/{label}_number")
            for label, each in (("my", mine), ("their", theirs))
        )
        lower, upper = (my_number, their_number) if descending else (their_number, my_number)
        # The upper is none and the lower is: neither of the comparisons holds then.
        beyond = elementwise.combine(ctx, "AND", lower, _none(ctx, upper, name), name + "/beyond")
        before = elementwise.combine(ctx, "OR", before, beyond, name + "/ahead_of_all")
        either = elementwise.combine(ctx, "OR", my_number, their_number, name + "/either")
        neither = _none(ctx, either, name + "/neither")
        equal = elementwise.combine(ctx, "OR", equal, neither, name + "/alike")
    size = sizes.size_of(ctx, tensor, dim, name + "/size")
    earlier = creation.triangle_mask(ctx, size, size, -1, True, name + "/earlier")
    others = [place for place in range(rank + 1) if place not in (dim, dim + 1)]
    earlier = shape.unsqueeze(ctx, earlier, others, name + "/earlier_wide")
    tie = elementwise.combine(ctx, "AND", equal, earlier, name + "/tie")
    before = elementwise.combine(ctx, "OR", before, tie, name + "/before")
    number = types.cast(ctx, before, torch.int32, name + "/before_number")
    target = reduction.reduce(ctx, "SUM", number, [dim + 1], False, name + "/target")
    extents = sizes.sizes_of(ctx, tensor, name + "/sizes")
    places = creation.places(ctx, tensor, dim, torch.int32, name + "/places")
    places = shape.expand(ctx, places, extents, name + "/all_places")
    return (
        indexing.scatter_elements(ctx, tensor, target, tensor, dim, name),
        indexing.scatter_elements(ctx, places, target, places, dim, name + "/indices"),
    )


def _none(ctx: Any, number: Any, name: str) -> Any:
    return unary.apply(ctx, "NOT", number, name + "/none")
