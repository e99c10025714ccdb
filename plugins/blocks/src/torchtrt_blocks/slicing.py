"""Pieces of tensors, and tensors put together."""

from __future__ import annotations

from collections.abc import Sequence

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    SymbolicSize,
    add,
    add_layer,
    is_network_tensor,
)
from torchtrt.tensorrt import trt
from torchtrt_blocks import shape, sizes
from torchtrt_blocks.sizes import same, symbol_of

_NO_END = 2**31 - 1


def slice_dim(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    dim: int,
    start: Size | None,
    end: Size | None,
    step: int,
    count: SymbolicSize = None,
) -> NetworkTensor:
    """Returns ``tensor[start:end:step]`` along one dimension, by Python's rules for negative and excessive bounds.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        dim: The dimension.
        start: The first index; ``None`` for the beginning.
        end: The index to stop before; ``None`` for the end.
        step: The distance between elements, at least 1.
        count: The number of elements in PyTorch, if it is known.
    """
    rank = len(tensor.shape)
    dim %= rank
    if step == 1 and same(ctx.symbolic_shape(tensor)[dim], count):
        return tensor
    length = sizes.size_of(ctx, tensor, dim)
    first = _bound(ctx, 0 if start is None else start, length)
    if isinstance(count, int):
        extent: Size = count
    elif step == 1 and first == 0 and is_network_tensor(end) and same(symbol_of(ctx, end), count):
        extent = end
    else:
        last = _bound(ctx, length if end is None else end, length)
        span = sizes.combine(ctx, "SUB", last, first)
        span = sizes.combine(ctx, "MAX", span, 0)
        extent = sizes.ceil_divide(ctx, span, step)
    starts: list[Size] = [0] * rank
    steps: list[Size] = [1] * rank
    extents = [
        extent if index == dim else sizes.size_of(ctx, tensor, index) for index in range(rank)
    ]
    starts[dim], steps[dim] = first, step
    return shape.slice_by(ctx, tensor, starts, extents, steps)


def _bound(ctx: ConversionContext, bound: Size, length: Size) -> Size:
    """Returns a bound of a slice as an index from 0 to ``length``."""
    if isinstance(bound, int):
        if isinstance(length, int):
            return max(0, min(bound + length if bound < 0 else bound, length))
        if bound == 0:
            return 0
        if bound >= _NO_END:
            return length
        if bound < 0:
            from_end = sizes.combine(ctx, "SUM", length, bound)
            return sizes.combine(ctx, "MAX", from_end, 0)
        return sizes.combine(ctx, "MIN", length, bound)
    if bound is length or same(symbol_of(ctx, bound), symbol_of(ctx, length)):
        return bound
    limited = sizes.combine(ctx, "MIN", bound, length)
    if sizes.is_never_negative(symbol_of(ctx, bound)):
        return limited
    wrapped = wrap(ctx, limited, length)
    return sizes.combine(ctx, "MAX", wrapped, 0)


def from_beginning(ctx: ConversionContext, tensor: NetworkTensor, dim: int, index: Size) -> Size:
    """Returns an index of a dimension that may count from the end as one that counts from the beginning.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dim: The dimension; negative ones count from the last.
        index: An ``int`` or a 0-d integer network tensor.
    """
    if sizes.is_never_negative(symbol_of(ctx, index)):
        return index
    return wrap(ctx, index, sizes.size_of(ctx, tensor, dim))


def wrap(ctx: ConversionContext, index: Size, length: Size) -> Size:
    """Returns an index that may count from the end as one that counts from the beginning.

    Args:
        ctx: The conversion context.
        index: An ``int`` or a 0-d integer network tensor.
        length: The size of the dimension: an ``int`` or a 0-d int32 network tensor.
    """
    if isinstance(index, int):
        return index if index >= 0 else sizes.combine(ctx, "SUM", length, index)
    zero = ctx.tensor(0)
    negative = add(ctx, "elementwise", index, zero, trt.ElementWiseOperation.LESS)
    moved = sizes.combine(ctx, "SUM", index, length)
    return add(ctx, "select", negative, moved, index)


def select(ctx: ConversionContext, tensor: NetworkTensor, dim: int, index: Size) -> NetworkTensor:
    """Returns ``tensor`` at one index of a dimension, which is dropped.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dim: The dimension; negative ones count from the last.
        index: An ``int`` or a 0-d integer network tensor; negative ones count from the end.
    """
    dim %= len(tensor.shape)
    position = ctx.tensor(from_beginning(ctx, tensor, dim, index))
    return add(ctx, "gather", tensor, position, dim)


def concatenate(
    ctx: ConversionContext, tensors: Sequence[NetworkTensor], dim: int
) -> NetworkTensor:
    """Returns network tensors of one dtype and rank joined along a dimension.

    Args:
        ctx: The conversion context.
        tensors: Network tensors of one dtype and rank, at least one.
        dim: The dimension; negative ones count from the last.
    """
    if len(tensors) == 1:
        return tensors[0]
    layer = add_layer(ctx, "concatenation", list(tensors))
    layer.axis = dim % len(tensors[0].shape)
    return layer.get_output(0)


def split(
    ctx: ConversionContext, tensor: NetworkTensor, dim: int, extents: Sequence[Size]
) -> tuple[NetworkTensor, ...]:
    """Returns consecutive pieces of ``tensor`` along a dimension.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dim: The dimension; negative ones count from the last.
        extents: The size of each piece: an ``int`` or a 0-d int32 network tensor.
    """
    rank = len(tensor.shape)
    dim %= rank
    whole = [sizes.size_of(ctx, tensor, index) for index in range(rank)]
    pieces = []
    offset: Size = 0
    for index, extent in enumerate(extents):
        if same(symbol_of(ctx, whole[dim]), symbol_of(ctx, extent)) and len(extents) == 1:
            return (tensor,)
        starts: list[Size] = [0] * rank
        starts[dim] = offset
        piece = [*whole[:dim], extent, *whole[dim + 1 :]]
        pieces.append(shape.slice_by(ctx, tensor, starts, piece, [1] * rank))
        if index + 1 < len(extents):
            offset = sizes.combine(ctx, "SUM", offset, extent)
    return tuple(pieces)


def strided_indices(size: Sequence[int], stride: Sequence[int], offset: int) -> list[int]:
    """Returns where strides find each element in flat memory, in the order of a contiguous tensor of shape ``size``."""
    offsets = [offset]
    for count, distance in zip(size, stride, strict=True):
        offsets = [base + step * distance for base in offsets for step in range(count)]
    return offsets


def strided_bounds(size: Sequence[int], stride: Sequence[int], offset: int) -> tuple[int, int]:
    """Returns the first and the last place in flat memory that strides reach."""
    return offset, offset + sum(
        (count - 1) * distance for count, distance in zip(size, stride, strict=True)
    )
