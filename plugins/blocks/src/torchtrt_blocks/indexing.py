"""Elements chosen by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    add,
    add_layer,
    is_network_tensor,
)
from torchtrt.tensorrt import trt
from torchtrt_blocks import shape, sizes, types
from torchtrt_blocks.formulas import Formula
from torchtrt_blocks.sizes import Deferred


def gather(
    ctx: ConversionContext, tensor: NetworkTensor, indices: NetworkTensor, dim: int
) -> NetworkTensor:
    """Returns ``tensor`` with one dimension replaced by the dimensions of ``indices``, which must be from 0 on.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        indices: An integer network tensor of any shape, with indices from 0 on.
        dim: The dimension; negative ones count from the last.
    """
    return add(ctx, "gather", tensor, indices, dim % len(tensor.shape))


def gather_elements(
    ctx: ConversionContext, tensor: NetworkTensor, indices: NetworkTensor, dim: int
) -> NetworkTensor:
    """Returns, for each place of ``indices``, the element there with ``dim`` replaced by the index.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        indices: An integer network tensor of the same rank, with indices from 0 on.
        dim: The dimension; negative ones count from the last.
    """
    layer = add_layer(ctx, "gather_v2", tensor, indices, trt.GatherMode.ELEMENT)
    layer.axis = dim % len(tensor.shape)
    return layer.get_output(0)


def scatter_elements(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    indices: NetworkTensor,
    updates: NetworkTensor,
    dim: int,
) -> NetworkTensor:
    """Returns ``tensor`` with ``updates`` written at the places that ``indices`` name along ``dim``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        indices: An integer network tensor of the same rank, with indices from 0 on.
        updates: A network tensor of the same dtype as ``tensor`` and the shape of ``indices``.
        dim: The dimension; negative ones count from the last.
    """
    layer = add_layer(ctx, "scatter", tensor, indices, updates, trt.ScatterMode.ELEMENT)
    layer.axis = dim % len(tensor.shape)
    return layer.get_output(0)


def scatter_source(
    ctx: ConversionContext,
    source: NetworkTensor | torch.Tensor | None,
    value: int | float | bool | None,
    index: NetworkTensor,
    dtype: torch.dtype,
    rank: int,
) -> NetworkTensor:
    """Returns what a scatter writes for each of ``index``: its number, or the part of its source that is used.

    Args:
        ctx: The conversion context.
        source: A tensor of the elements to write, or ``None``.
        value: The number to write where there is no source; ``None`` where there is one.
        index: The indices, a network tensor.
        dtype: The dtype to have.
        rank: The rank of ``index``.
    """
    extents = sizes.sizes_of(ctx, index)
    if source is None:
        number = types.operand(ctx, 0 if value is None else value, dtype, rank)
        return shape.expand(ctx, number, extents)
    updates = types.operand(ctx, source, dtype, rank)
    wanted, update_sizes = ctx.symbolic_shape(index), ctx.symbolic_shape(updates)
    if all(sizes.same(*pair) for pair in zip(wanted, update_sizes, strict=True)):
        return updates
    return shape.slice_by(ctx, updates, [0] * rank, extents, [1] * rank)


def scatter_rows(
    ctx: ConversionContext, tensor: NetworkTensor, indices: NetworkTensor, updates: NetworkTensor
) -> NetworkTensor:
    """Returns ``tensor`` with rows of its first dimension replaced by those of ``updates``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        indices: An integer network tensor of shape ``(count,)``.
        updates: A network tensor of the same dtype, of shape ``(count, *row)``.
    """
    row_indices = shape.unsqueeze(ctx, indices, [len(indices.shape)])
    return add(ctx, "scatter", tensor, row_indices, updates, trt.ScatterMode.ND)


def from_start(
    ctx: ConversionContext, indices: NetworkTensor | torch.Tensor, length: Size, rank: int
) -> NetworkTensor:
    """Returns indices that may count from the end as ones that count from the beginning.

    Args:
        ctx: The conversion context.
        indices: A network tensor or a PyTorch tensor of integers.
        length: The size of the indexed dimension.
        rank: The rank of the result.
    """
    if not is_network_tensor(indices):
        if isinstance(length, int):
            indices = torch.where(indices < 0, indices + length, indices)
        if not bool((indices < 0).any()):
            return types.operand(ctx, indices, torch.int32, rank)
    index = Formula(ctx, types.operand(ctx, indices, torch.int32, rank))
    return (index < 0).where(index + length, index).tensor


@dataclass(frozen=True, slots=True)
class Merged:
    """A tensor whose indexed dimensions are one, in front of the others.

    Attributes:
        tensor: The network tensor.
        index: One index into its first dimension: an int32 network tensor.
        outline: The sizes before, the indexed dimensions first.
        order: The original dimension at each of those positions.
        result_dim: How many other dimensions stand before the index' dimensions in NumPy's result.
    """

    tensor: NetworkTensor
    index: NetworkTensor
    outline: list[int | Deferred]
    order: list[int]
    result_dim: int


def merge_indexed(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    indices: Sequence[NetworkTensor | torch.Tensor | None],
) -> Merged:
    """Brings the indexed dimensions together and makes them one, and their indices one index into it.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        indices: For each dimension an integer network tensor or ``None``; the tensors broadcast.
    """
    rank = len(tensor.shape)
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    others = [dim for dim in range(rank) if dim not in dims]
    lengths = [sizes.size_of(ctx, tensor, dim) for dim in dims]
    used = [index for index in indices if index is not None]
    flat = _flat_index(ctx, used, lengths, types.common_rank(used))
    order = dims + others
    moved = shape.permute(ctx, tensor, order)
    outline = [sizes.lazy_shape(ctx, tensor)[dim] for dim in order]
    if len(dims) > 1:
        size = sizes.product(ctx, lengths)
        source = [sizes.symbol_of(ctx, extent) for extent in outline]
        kept = outline[len(dims) :]
        moved = shape.reshape(ctx, moved, [size, *kept], source=source)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    return Merged(moved, flat, outline, order, dims[0] if adjacent else 0)


def index_by(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    indices: Sequence[NetworkTensor | torch.Tensor | None],
) -> NetworkTensor:
    """Returns ``tensor[indices]`` by NumPy's rules for integer index tensors that broadcast.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        indices: For each leading dimension an index tensor, or ``None`` for the whole dimension.
    """
    used = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(used) == 1:
        ((dim, index),) = used
        length = sizes.size_of(ctx, tensor, dim)
        positions = from_start(ctx, index, length, types.rank_of(index))
        return gather(ctx, tensor, positions, dim)
    merged = merge_indexed(ctx, tensor, indices)
    chosen = gather(ctx, merged.tensor, merged.index, 0)
    # The dimensions of the index move from the front to behind as many others.
    rank, last = len(merged.index.shape), len(merged.index.shape) + merged.result_dim
    order = [*range(rank, last), *range(rank), *range(last, len(chosen.shape))]
    return shape.permute(ctx, chosen, order)


def _flat_index(
    ctx: ConversionContext,
    indices: Sequence[NetworkTensor | torch.Tensor],
    lengths: Sequence[Size],
    rank: int,
) -> NetworkTensor:
    """Returns the places in the dimensions of these lengths, taken as one; negative indices count from the end."""
    parts = [
        from_start(ctx, index, length, rank) for index, length in zip(indices, lengths, strict=True)
    ]
    result = Formula(ctx, parts[0])
    for part, length in zip(parts[1:], lengths[1:], strict=True):
        result = result * length + part
    return result.tensor
