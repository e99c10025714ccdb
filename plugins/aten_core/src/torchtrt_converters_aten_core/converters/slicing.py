"""Pieces of tensors, and tensors put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Size, add, arguments_of, value_of
from torchtrt_blocks import shape, sizes, types
from torchtrt_blocks import slicing as blocks
from torchtrt_blocks.checks import is_empty, sizes_known_before_data
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


def _strides_leave_tensor(node: Node) -> str | None:
    """Returns why ``as_strided`` cannot read the elements from a flat tensor at fixed places, or ``None``."""
    op = arguments_of(node)
    tensor = value_of(op.self)
    if not all(isinstance(number, int) for number in (*tensor.shape, *op.size, *op.stride)):
        return "sizes and strides must be fixed"
    if not tensor.is_contiguous():
        return "the strides are those of a tensor that is not contiguous"
    offset = tensor.storage_offset() if op.storage_offset is None else op.storage_offset
    first, last = blocks.strided_bounds(op.size, op.stride, offset - tensor.storage_offset())
    if first < 0 or last >= tensor.numel():
        return "the strides reach memory outside the tensor"
    return None


@pack.converter(
    aten.as_strided.default, aten.as_strided_copy.default, reject_if=_strides_leave_tensor
)
def as_strided(
    ctx: ConversionContext,
    self: NetworkTensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None,
) -> NetworkTensor:
    """Converts elements picked by their places in memory."""
    flat_places = blocks.strided_indices(size, stride, storage_offset or 0)
    offsets = torch.tensor(flat_places, dtype=torch.int32).reshape(tuple(size))
    flat = shape.flatten(ctx, self)
    return add(ctx, "gather", flat, ctx.tensor(offsets), 0)


def _known_step(node: Node) -> str | None:
    step = arguments_of(node).step
    return None if isinstance(step, int) else "the step of a slice must be fixed"


@pack.converter(
    aten.slice.Tensor,
    aten.slice_copy.Tensor,
    reject_if=_known_step,
    supports_empty=True,
)
def slice_(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: int,
    start: Size | None,
    end: Size | None,
    step: int,
) -> NetworkTensor:
    """Converts ``self[start:end:step]`` along one dimension."""
    count = types.output_value(ctx).shape[dim]
    return blocks.slice_dim(ctx, self, dim, start, end, step, count)


@pack.converter(aten.narrow.default)
def narrow(
    ctx: ConversionContext, self: NetworkTensor, dim: int, start: Size, length: Size
) -> NetworkTensor:
    """Converts ``length`` elements from ``start`` on."""
    rank = len(self.shape)
    dim = dim % rank
    first = blocks.from_beginning(ctx, self, dim, start)
    starts = [first if index == dim else 0 for index in range(rank)]
    extents = sizes.sizes_of(ctx, self)
    extents[dim] = length
    return shape.slice_by(ctx, self, starts, extents, [1] * rank)


def _counts_from_unknown_end(node: Node) -> str | None:
    op = arguments_of(node)
    is_from_start = isinstance(op.index, int) and op.index >= 0
    fixed = isinstance(op.index, int) and isinstance(value_of(op.self).shape[op.dim], int)
    return None if is_from_start or fixed else sizes_known_before_data(node)


@pack.converter(
    aten.select.int,
    aten.select_copy.int,
    reject_if=_counts_from_unknown_end,
)
def select(ctx: ConversionContext, self: NetworkTensor, dim: int, index: Size) -> NetworkTensor:
    """Converts one index of a dimension, which is dropped."""
    return blocks.select(ctx, self, dim, index)


@pack.converter(aten.unbind.int)
def unbind(ctx: ConversionContext, self: Any, dim: int) -> tuple[NetworkTensor, ...]:
    """Converts every index of a dimension, as separate tensors."""
    count = len(types.output_value(ctx))
    return tuple(blocks.select(ctx, self, dim, index) for index in range(count))


def _unknown_pieces(node: Node) -> str | None:
    """Returns why a split cannot be slices, or ``None``. The last piece may be of any size, since it takes the rest."""
    op = arguments_of(node)
    requested = getattr(op, "split_size", getattr(op, "split_sizes", None))
    pieces = [piece.shape[op.dim] for piece in node.meta["val"]]
    wanted = requested if isinstance(requested, (list, tuple)) else [requested] * len(pieces)
    unknown = [
        index
        for index, (piece, size) in enumerate(zip(pieces, wanted, strict=True))
        if not isinstance(piece, int) and not sizes.same(value_of(size), piece)
    ]
    if unknown in ([], [len(pieces) - 1]):
        return None
    return "the pieces' sizes depend on a size that is known only at run time"


@pack.converter(
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.split_copy.Tensor,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.chunk.default,
    aten.unsafe_chunk.default,
    aten.tensor_split.sections,
    reject_if=_unknown_pieces,
)
def split(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: int,
    split_size: Size | Sequence[Size] | None = None,
    split_sizes: Sequence[Size] | None = None,
    **_: Any,
) -> tuple[NetworkTensor, ...]:
    """Converts consecutive pieces along a dimension; PyTorch's own result has their number and sizes."""
    requested = split_sizes if split_size is None else split_size
    pieces = types.output_value(ctx)
    extents: list[Size] = []
    for index, piece in enumerate(pieces):
        extent = piece.shape[dim]
        wanted: Size | None = requested[index] if isinstance(requested, Sequence) else requested
        if isinstance(extent, int):
            extents.append(extent)
        elif wanted is not None and sizes.same(sizes.symbol_of(ctx, wanted), extent):
            extents.append(wanted)
        else:
            extents.append(_rest(ctx, self, dim, extents))
    return blocks.split(ctx, self, dim, extents)


def _rest(ctx: ConversionContext, tensor: NetworkTensor, dim: int, before: list[Size]) -> Size:
    rest = sizes.size_of(ctx, tensor, dim)
    for extent in before:
        rest = sizes.combine(ctx, "SUB", rest, extent)
    return rest


@pack.converter(
    aten.cat.default,
    aten.concat.default,
    aten.concatenate.default,
    supports_empty=True,
)
def concatenate(
    ctx: ConversionContext, tensors: Sequence[NetworkTensor | torch.Tensor], dim: int
) -> NetworkTensor:
    """Converts tensors joined along a dimension, in the dtype PyTorch promotes to; empty ones add nothing."""
    result = types.output_value(ctx)
    pieces = [
        types.operand(ctx, tensor, result.dtype, result.dim())
        for tensor in tensors
        if not is_empty(tensor) or is_empty(result)
    ]
    return blocks.concatenate(ctx, pieces, dim)


@pack.converter(aten.stack.default)
def stack(
    ctx: ConversionContext, tensors: Sequence[NetworkTensor | torch.Tensor], dim: int
) -> NetworkTensor:
    """Converts tensors joined along a new dimension."""
    result = types.output_value(ctx)
    pieces = []
    for tensor in tensors:
        piece = types.operand(ctx, tensor, result.dtype, result.dim() - 1)
        pieces.append(shape.unsqueeze(ctx, piece, [dim % result.dim()]))
    return blocks.concatenate(ctx, pieces, dim)
