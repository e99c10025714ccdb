"""Elements chosen by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
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


def index_by(ctx: Any, tensor: Any, indices: Sequence[Any], name: str) -> Any:
    """Returns ``tensor[indices]`` by NumPy's rules for whole-number index tensors that broadcast.

    The indexed dimensions are brought together and merged, and their indices become one index into
    the merged dimension.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        indices: For each leading dimension an index tensor, or ``None`` for the whole dimension.
        name: The prefix for the names of layers.
    """
    rank = len(tensor.shape)
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    others = [dim for dim in range(rank) if dim not in dims]
    index_rank = types.common_rank([indices[dim] for dim in dims])
    lengths = [sizes.size_of(ctx, tensor, dim, f"{name}/length{dim}") for dim in dims]
    flat = _flat_index(ctx, [indices[dim] for dim in dims], lengths, index_rank, name)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    if len(dims) == 1:
        return gather(ctx, tensor, flat, dims[0], name)
    # Indexed dimensions first; NumPy puts the result's index dimensions there unless they stood side by side.
    moved = shape.permute(ctx, tensor, dims + others, name + "/moved")
    outline = sizes.outline(ctx, tensor)
    kept = [outline[dim] for dim in others]
    merged_size = sizes.product(ctx, lengths, name + "/merged_size")
    source = [sizes.symbol_of(ctx, outline[dim]) for dim in dims + others]
    merged = shape.reshape(ctx, moved, [merged_size, *kept], name + "/merged", source=source)
    place = dims[0] if adjacent else 0
    if place == 0:
        return gather(ctx, merged, flat, 0, name)
    chosen = gather(ctx, merged, flat, 0, name + "/chosen")
    order = [
        *range(index_rank, index_rank + place),
        *range(index_rank),
        *range(index_rank + place, index_rank + len(others)),
    ]
    return shape.permute(ctx, chosen, order, name)


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
