"""Elements added around a tensor, and tensors turned around."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, Size, add, add_layer
from torchtrt.tensorrt import trt
from torchtrt_blocks import (
    creation,
    elementwise,
    shape,
    sizes,
    slicing,
    types,
)

FILLABLE = (torch.float32, torch.float16, torch.int32)
"""The dtypes that TensorRT extends with a value."""


def pad(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    before: Sequence[Size],
    after: Sequence[Size],
    mode: str,
    value: Operand,
) -> NetworkTensor:
    """Returns ``tensor`` with elements added around it; negative numbers take elements away.

    Numbers may be sizes of the engine: 0-d int32 network tensors.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        before: How many elements to add before the first, for each dimension.
        after: How many elements to add after the last, for each dimension.
        mode: The name of a ``trt.SampleMode``: ``"FILL"``, ``"REFLECT"``, ``"CLAMP"`` or ``"WRAP"``.
        value: What to add, with ``"FILL"``.
    """
    dtype = ctx.dtype_of(tensor)
    if all(isinstance(number, int) and not number for number in (*before, *after)):
        return tensor
    if dtype is torch.bool:
        number = types.cast(ctx, tensor, torch.int32)
        padded = pad(ctx, number, before, after, mode, int(bool(value)))
        return types.cast(ctx, padded, torch.bool)
    if mode == "FILL" and dtype not in FILLABLE:
        if sizes.is_static(before) and sizes.is_static(after):
            return _pad_by_joining(ctx, tensor, before, after, value)
        return _pad_by_choosing(ctx, tensor, before, after, value)
    rank = len(before)
    start = [sizes.combine(ctx, "SUB", 0, number) for number in before]
    extent = _padded_sizes(ctx, tensor, before, after)
    parts = [tuple(part) if sizes.is_static(part) else (0,) * rank for part in (start, extent)]
    layer = add_layer(ctx, "slice", tensor, *parts, (1,) * rank)
    layer.mode = getattr(trt.SampleMode, mode)
    for index, part in enumerate((start, extent), 1):
        if not sizes.is_static(part):
            layer.set_input(index, sizes.to_tensor(ctx, part))
    if mode == "FILL":
        layer.set_input(4, types.operand(ctx, value, dtype, 0))
    return layer.get_output(0)


def _padded_sizes(
    ctx: ConversionContext, tensor: NetworkTensor, before: Sequence[Size], after: Sequence[Size]
) -> list[Size]:
    added = (sizes.combine(ctx, "SUM", *pair) for pair in zip(before, after, strict=True))
    extents = sizes.sizes_of(ctx, tensor)
    return [sizes.combine(ctx, "SUM", *pair) for pair in zip(extents, added, strict=True)]


def _pad_by_choosing(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    before: Sequence[Size],
    after: Sequence[Size],
    value: Operand,
) -> NetworkTensor:
    """Returns a tensor padded by numbers that the engine computes, each element chosen by its index.

    The value is behind the elements of the tensor, so that there is an element to choose in an empty one.
    """
    dtype = ctx.dtype_of(tensor)
    padded = _padded_sizes(ctx, tensor, before, after)
    for dim, (low, high, size) in enumerate(zip(before, after, padded, strict=True)):
        if isinstance(low, int) and isinstance(high, int) and not (low or high):
            continue
        extents = sizes.sizes_of(ctx, tensor)
        length = extents[dim]
        filling = creation.full(ctx, value, [*extents[:dim], 1, *extents[dim + 1 :]], dtype)
        joined = slicing.concatenate(ctx, [tensor, filling], dim)
        positions = creation.arange(ctx, 0, size, 1, sizes.symbol_of(ctx, size), torch.int32)
        positions = elementwise.arithmetic(ctx, "SUB", positions, low, torch.int32)
        inside = elementwise.logical(
            ctx,
            "AND",
            elementwise.compare(ctx, "ge", positions, 0),
            elementwise.compare(ctx, "lt", positions, length),
        )
        chosen = elementwise.select(ctx, inside, positions, length, torch.int32)
        tensor = add(ctx, "gather", joined, chosen, dim)
    return tensor


def _pad_by_joining(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    before: Sequence[int],
    after: Sequence[int],
    value: Operand,
) -> NetworkTensor:
    """Returns a tensor padded by pieces that are joined to it, and cut where the padding is negative."""
    dtype = ctx.dtype_of(tensor)
    for dim, (low, high) in enumerate(zip(before, after, strict=True)):
        extents = sizes.sizes_of(ctx, tensor)
        if low < 0 or high < 0:
            first, last = max(-low, 0), max(-high, 0)
            starts = [first if index == dim else 0 for index in range(len(extents))]
            extents[dim] = sizes.combine(ctx, "SUB", extents[dim], first + last)
            tensor = shape.slice_by(ctx, tensor, starts, extents, [1] * len(extents))
        pieces = []
        for count, side in ((low, "before"), (0, ""), (high, "after")):
            if not side:
                pieces.append(tensor)
            elif count > 0:
                block = [*extents[:dim], count, *extents[dim + 1 :]]
                pieces.append(creation.full(ctx, value, block, dtype))
        tensor = slicing.concatenate(ctx, pieces, dim)
    return tensor


def flip(ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int]) -> NetworkTensor:
    """Returns ``tensor`` with the order of elements reversed along dimensions.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dims: The dimensions; negative ones count from the last.
    """
    rank = len(tensor.shape)
    flipped = {dim % rank for dim in dims} if rank else set()
    if not flipped:
        return tensor
    extents = sizes.sizes_of(ctx, tensor)
    starts = [
        sizes.combine(ctx, "SUB", extents[dim], 1) if dim in flipped else 0 for dim in range(rank)
    ]
    steps = [-1 if dim in flipped else 1 for dim in range(rank)]
    return shape.slice_by(ctx, tensor, starts, extents, steps)


def roll(ctx: ConversionContext, tensor: NetworkTensor, shifts: dict[int, int]) -> NetworkTensor:
    """Returns ``tensor`` with elements moved along dimensions, the last ones coming first.

    Two pieces change places. A slice that wraps around is one layer, which tensors of dynamic sizes get, but TensorRT
    8.6 computes it by itself, without what comes before and after it.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of rank 1 or more.
        shifts: For each dimension, by how many places; negative ones move to the front.
    """
    extents = list(tensor.shape)
    counts = [
        shifts.get(dim, 0) % size if size > 0 else shifts.get(dim, 0)
        for dim, size in enumerate(extents)
    ]
    if any(size < 0 for size in extents):
        return pad(ctx, tensor, counts, [-count for count in counts], "WRAP", 0)
    for dim, (size, count) in enumerate(zip(extents, counts, strict=True)):
        if size and count:
            first, last = slicing.split(ctx, tensor, dim, [size - count, count])
            tensor = slicing.concatenate(ctx, [last, first], dim)
    return tensor
