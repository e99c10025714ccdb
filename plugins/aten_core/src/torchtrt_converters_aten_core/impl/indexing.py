"""Elements chosen by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.conversion import is_network_tensor
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types
from torchtrt_converters_aten_core.impl.layers import add, add_layer


def gather(ctx: Any, tensor: Any, indices: Any, dim: int, name: str) -> Any:
    """Returns ``tensor`` with one dimension replaced by the dimensions of ``indices``, which must be from 0 on."""
    return add(ctx, name, "gather", tensor, indices, dim % len(tensor.shape))


def gather_elements(ctx: Any, tensor: Any, indices: Any, dim: int, name: str) -> Any:
    """Returns, for each place of ``indices``, the element there with ``dim`` replaced by the index."""
    layer = add_layer(ctx, name, "gather_v2", tensor, indices, trt.GatherMode.ELEMENT)
    layer.axis = dim % len(tensor.shape)
    return layer.get_output(0)


def scatter_elements(ctx: Any, tensor: Any, indices: Any, updates: Any, dim: int, name: str) -> Any:
    """Returns ``tensor`` with ``updates`` written at the places that ``indices`` name along ``dim``."""
    layer = add_layer(ctx, name, "scatter", tensor, indices, updates, trt.ScatterMode.ELEMENT)
    layer.axis = dim % len(tensor.shape)
    return layer.get_output(0)


def scatter_source(ctx: Any, op: Any, index: Any, dtype: torch.dtype, rank: int, name: str) -> Any:
    """Returns what a scatter writes for each of ``index``: its number, or the part of its source that is used.

    Args:
        ctx: The conversion context.
        op: The op's arguments by name: ``value`` or ``src``.
        index: The indices, a network tensor.
        dtype: The dtype to have.
        rank: The rank of ``index``.
        name: The prefix for the names of layers.
    """
    extents = sizes.sizes_of(ctx, index, name + "/size")
    if hasattr(op, "value"):
        value = types.operand(ctx, op.value, dtype, rank, name + "/value")
        return shape.expand(ctx, value, extents, name + "/source")
    source = types.operand(ctx, op.src, dtype, rank, name + "/source")
    wanted, given = ctx.symbolic_shape(index), ctx.symbolic_shape(source)
    if all(sizes.same(*pair) for pair in zip(wanted, given, strict=True)):
        return source
    return shape.slice_by(ctx, source, [0] * rank, extents, [1] * rank, name + "/used")


def scatter_rows(ctx: Any, tensor: Any, indices: Any, updates: Any, name: str) -> Any:
    """Returns ``tensor`` with rows of its first dimension replaced by those of ``updates``."""
    places = shape.unsqueeze(ctx, indices, [len(indices.shape)], name + "/places")
    return add(ctx, name, "scatter", tensor, places, updates, trt.ScatterMode.ND)


def from_start(ctx: Any, indices: Any, length: sizes.Size, rank: int, name: str) -> Any:
    """Returns indices that may count from the end as ones that count from the beginning.

    Args:
        ctx: The conversion context.
        indices: A network tensor or a PyTorch tensor of whole numbers.
        length: The size of the indexed dimension.
        rank: The rank of the result.
        name: The prefix for the names of layers.
    """
    if not is_network_tensor(indices):
        if isinstance(length, int):
            indices = torch.where(indices < 0, indices + length, indices)
        if not bool((indices < 0).any()):
            return types.operand(ctx, indices, torch.int32, rank, name)
    index = types.operand(ctx, indices, torch.int32, rank, name)
    negative = elementwise.compare(ctx, "lt", index, 0, name + "/negative")
    moved = elementwise.arithmetic(ctx, "SUM", index, length, torch.int32, name + "/moved")
    return elementwise.select(ctx, negative, moved, index, torch.int32, name)


@dataclass(frozen=True, slots=True)
class Merged:
    """A tensor whose indexed dimensions are one, in front of the others.

    Attributes:
        tensor: The network tensor.
        index: One index into its first dimension: an int32 network tensor.
        outline: The sizes before, the indexed dimensions first.
        order: The original dimension at each of those places.
        place: How many other dimensions stand before the index' dimensions in NumPy's result.
    """

    tensor: Any
    index: Any
    outline: list[Any]
    order: list[int]
    place: int


def _merge(ctx: Any, tensor: Any, indices: Sequence[Any], name: str) -> Merged:
    """Brings the indexed dimensions together and makes them one, and their indices one index into it."""
    rank = len(tensor.shape)
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    others = [dim for dim in range(rank) if dim not in dims]
    lengths = [sizes.size_of(ctx, tensor, dim, f"{name}/length{dim}") for dim in dims]
    index_rank = types.common_rank([indices[dim] for dim in dims])
    flat = _flat_index(ctx, [indices[dim] for dim in dims], lengths, index_rank, name)
    order = dims + others
    moved = shape.permute(ctx, tensor, order, name + "/moved")
    outline = [sizes.outline(ctx, tensor)[dim] for dim in order]
    if len(dims) > 1:
        size = sizes.product(ctx, lengths, name + "/merged_size")
        source = [sizes.symbol_of(ctx, extent) for extent in outline]
        kept = outline[len(dims) :]
        moved = shape.reshape(ctx, moved, [size, *kept], name + "/merged", source=source)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    return Merged(moved, flat, outline, order, dims[0] if adjacent else 0)


def _index_last(index_rank: int, others: int, place: int) -> list[int]:
    """Returns the order that moves an index' dimensions from the front to behind ``place`` others."""
    return [
        *range(index_rank, index_rank + place),
        *range(index_rank),
        *range(index_rank + place, index_rank + others),
    ]


def index_by(ctx: Any, tensor: Any, indices: Sequence[Any], name: str) -> Any:
    """Returns ``tensor[indices]`` by NumPy's rules for whole-number index tensors that broadcast.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        indices: For each leading dimension an index tensor, or ``None`` for the whole dimension.
        name: The prefix for the names of layers.
    """
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    if len(dims) == 1:
        length = sizes.size_of(ctx, tensor, dims[0], name + "/length")
        index = indices[dims[0]]
        index = from_start(ctx, index, length, types.rank_of(index), name + "/index")
        return gather(ctx, tensor, index, dims[0], name)
    merged = _merge(ctx, tensor, indices, name)
    if merged.place == 0:
        return gather(ctx, merged.tensor, merged.index, 0, name)
    chosen = gather(ctx, merged.tensor, merged.index, 0, name + "/chosen")
    others = len(merged.tensor.shape) - 1
    return shape.permute(
        ctx, chosen, _index_last(len(merged.index.shape), others, merged.place), name
    )


def put(
    ctx: Any, tensor: Any, indices: Sequence[Any], values: Any, accumulate: bool, name: str
) -> Any:
    """Returns ``tensor`` after ``tensor[indices] = values``, or ``+= values`` for every index.

    Args:
        ctx: The conversion context.
        tensor: A network tensor, no booleans.
        indices: As for :func:`index_by`.
        values: A network tensor of the tensor's dtype that broadcasts to ``tensor[indices]``.
        accumulate: Whether values are added, each as often as its place is named.
        name: The prefix for the names of layers.
    """
    from torchtrt_converters_aten_core.impl import scatter

    merged = _merge(ctx, tensor, indices, name)
    index, rest = merged.index, sizes.sizes_of(ctx, merged.tensor, name + "/size")[1:]
    rank = len(index.shape)
    rows = sizes.sizes_of(ctx, index, name + "/rows")
    wanted = [*rest[: merged.place], *rows, *rest[merged.place :]]
    values = shape.expand(ctx, values, wanted, name + "/updates")
    back = [*range(merged.place, merged.place + rank)]
    order = [*back, *(dim for dim in range(len(wanted)) if dim not in back)]
    values = shape.permute(ctx, values, order, name + "/rows_first")
    if rank != 1:  # one row for each index
        values = shape.reshape(ctx, values, [_count(ctx, rows, name), *rest], name + "/flat_rows")
        index = shape.flatten(ctx, index, name + "/flat_index")
    if accumulate:
        index = scatter.broadcast_index(ctx, index, len(values.shape), 0, name + "/index_wide")
        result = scatter.combine_at(ctx, "SUM", merged.tensor, index, values, 0, name + "/sum")
    else:
        result = scatter_rows(ctx, merged.tensor, index, values, name + "/written")
    source = ctx.symbolic_shape(merged.tensor)
    result = shape.reshape(ctx, result, merged.outline, name + "/parted", source=source)
    return shape.permute(ctx, result, _inverse(merged.order), name)


def _count(ctx: Any, rows: Sequence[sizes.Size], name: str) -> sizes.Size:
    return sizes.product(ctx, rows, name + "/row_count")


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(place) for place in range(len(order))]


def _flat_index(
    ctx: Any, indices: Sequence[Any], lengths: Sequence[sizes.Size], rank: int, name: str
) -> Any:
    result = None
    for place, (index, length) in enumerate(zip(indices, lengths, strict=True)):
        part = from_start(ctx, index, length, rank, f"{name}/index{place}")
        if result is None:
            result = part
        else:
            row = elementwise.arithmetic(
                ctx, "PROD", result, length, torch.int32, f"{name}/row{place}"
            )
            result = elementwise.combine(ctx, "SUM", row, part, f"{name}/flat{place}")
    return result
