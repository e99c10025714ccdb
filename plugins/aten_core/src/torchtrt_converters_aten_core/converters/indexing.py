"""Elements chosen by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, arguments_of, value_of
from torchtrt_blocks import indexing as blocks
from torchtrt_blocks import scatter as scatter_blocks
from torchtrt_blocks import shape, types
from torchtrt_blocks.checks import is_backed, sizes_known_before_data
from torchtrt_blocks.sizes import is_never_negative
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.converter(aten.embedding.default)
def embedding(
    ctx: ConversionContext,
    weight: NetworkTensor | torch.Tensor,
    indices: NetworkTensor | torch.Tensor,
    **_: Any,
) -> NetworkTensor:
    """Converts rows of ``weight`` chosen by ``indices``; the padding row matters only in training."""
    weight = ctx.tensor(weight)
    return blocks.gather(ctx, weight, ctx.tensor(indices), 0)


@pack.converter(aten.index_select.default)
def index_select(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    dim: int,
    index: NetworkTensor | torch.Tensor,
) -> NetworkTensor:
    """Converts the chosen indices of one dimension."""
    tensor = ctx.tensor(self)
    if not len(tensor.shape):
        return tensor
    indices = types.operand(ctx, index, torch.int64, 1)
    return blocks.gather(ctx, tensor, indices, dim)


@pack.converter(aten.gather.default)
def gather(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    dim: int,
    index: NetworkTensor | torch.Tensor,
    **_: Any,
) -> NetworkTensor:
    """Converts, for each place of ``index``, the element of ``self`` there with ``dim`` replaced by the index."""
    rank = max(types.rank_of(self), types.rank_of(index), 1)
    tensor = types.operand(ctx, self, types.output_dtype(ctx), rank)
    indices = types.operand(ctx, index, torch.int64, rank)
    result = blocks.gather_elements(ctx, tensor, indices, dim)
    return result if types.rank_of(index) else shape.squeeze(ctx, result, [0])


def _selects_by_condition(node: Node) -> str | None:
    op = arguments_of(node)
    indices = [value_of(index) for index in op.indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        return "where a boolean index is true depends on the data"
    if not indices:
        return "there is no index tensor"
    return None


def _asks_for_unknown_sizes(node: Node) -> str | None:
    """One index reads the size of the dimension that it is for, and several read all sizes."""
    op = arguments_of(node)
    dims = [dim for dim, index in enumerate(op.indices) if index is not None]
    if len(dims) == 1:
        size = value_of(op.self).shape[dims[0]]
        if isinstance(size, int) or is_backed(size):
            return None
    return sizes_known_before_data(node)


@pack.converter(
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    reject_if=(_selects_by_condition, _asks_for_unknown_sizes),
)
def index(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    indices: Sequence[NetworkTensor | torch.Tensor | None],
) -> NetworkTensor:
    """Converts integer index tensors for any of the dimensions."""
    return blocks.index_by(ctx, ctx.tensor(self), indices)


def _more_indices_than_places(node: Node) -> str | None:
    op = arguments_of(node)
    tensor, index = value_of(op.self), value_of(op.index)
    if not (tensor.dim() and index.dim()):
        return None
    if is_never_negative(tensor.shape[op.dim] - index.shape[op.dim]):
        return None
    return "TensorRT takes no more indices than there are places, so that none is written twice"


@pack.converter(
    aten.scatter.src,
    aten.scatter.value,
    reject_if=_more_indices_than_places,
)
def scatter(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    dim: int,
    index: NetworkTensor | torch.Tensor,
    src: NetworkTensor | torch.Tensor | None = None,
    value: int | float | bool | None = None,
) -> NetworkTensor:
    """Converts values written at the places that ``index`` names along ``dim``."""
    dtype, rank = types.output_dtype(ctx), max(types.rank_of(self), 1)
    logical = dtype is torch.bool
    inner = torch.int32 if logical else dtype  # booleans are scattered as numbers
    tensor = types.operand(ctx, self, inner, rank)
    indices = types.operand(ctx, index, torch.int64, rank)
    updates = blocks.scatter_source(ctx, src, value, indices, inner, rank)
    result = blocks.scatter_elements(ctx, tensor, indices, updates, dim)
    if not types.rank_of(self):
        result = shape.squeeze(ctx, result, [0])
    return types.cast(ctx, result, dtype)


@pack.converter(
    aten.index_put.default,
    aten._unsafe_index_put.default,
    reject_if=_selects_by_condition,
)
def index_put(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    indices: Sequence[NetworkTensor | torch.Tensor | None],
    values: NetworkTensor | torch.Tensor,
    accumulate: bool,
) -> NetworkTensor:
    """Converts elements written, or added, at integer indices of any of the dimensions."""
    dtype, rank = types.output_dtype(ctx), types.rank_of(self)
    inner = torch.int32 if dtype is torch.bool else dtype
    if accumulate:
        inner = types.accumulation_dtype(inner)
        self, values = types.upcast(ctx, self, inner), types.upcast(ctx, values, inner)
    tensor = types.operand(ctx, self, inner, rank)
    values = types.operand(ctx, values, inner, types.rank_of(values))
    result = scatter_blocks.put(ctx, tensor, indices, values, accumulate)
    return types.cast(ctx, result, dtype)
