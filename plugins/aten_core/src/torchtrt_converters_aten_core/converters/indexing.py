"""Elements chosen by index tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import get_trt_tensor
from torchtrt_converters_aten_core.impl import indexing as impl
from torchtrt_converters_aten_core.impl import shape, types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


@converts(aten.embedding.default, keep_constants=True)
def embedding(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts rows of ``weight`` chosen by ``indices``; the padding row matters only in training."""
    op = arguments(target, args, kwargs)
    weight = get_trt_tensor(ctx, op.weight, name + "/weight")
    return impl.gather(ctx, weight, get_trt_tensor(ctx, op.indices, name + "/indices"), 0, name)


@converts(aten.index_select.default, keep_constants=True)
def index_select(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the chosen indices of one dimension."""
    op = arguments(target, args, kwargs)
    if not len(op.self.shape):
        return op.self
    tensor = get_trt_tensor(ctx, op.self, name + "/tensor")
    indices = types.operand(ctx, op.index, torch.int64, 1, name + "/index")
    return impl.gather(ctx, tensor, indices, op.dim, name)


@converts(aten.gather.default, keep_constants=True)
def gather(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts, for each place of ``index``, the element of ``self`` there with ``dim`` replaced by the index."""
    op = arguments(target, args, kwargs)
    rank = max(types.rank_of(op.self), types.rank_of(op.index), 1)
    tensor = types.operand(ctx, op.self, types.output_dtype(ctx), rank, name + "/tensor")
    indices = types.operand(ctx, op.index, torch.int64, rank, name + "/index")
    result = impl.gather_elements(ctx, tensor, indices, op.dim, name)
    return result if types.rank_of(op.index) else shape.squeeze(ctx, result, [0], name + "/scalar")


def _masks(node: Node) -> str | None:
    op = node_arguments(node)
    indices = [value_of(index) for index in op.indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        return "where a boolean index is true depends on the data"
    if not indices:
        return "there is no index tensor"
    return None


@converts(
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    unless=_masks,
    keep_constants=True,
)
def index(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts whole-number index tensors for any of the dimensions."""
    op = arguments(target, args, kwargs)
    return impl.index_by(ctx, get_trt_tensor(ctx, op.self, name + "/tensor"), op.indices, name)


def _repeats(node: Node) -> str | None:
    op = node_arguments(node)
    tensor, index = value_of(op.self), value_of(op.index)
    if tensor.dim() and index.dim():
        places, count = tensor.shape[op.dim], index.shape[op.dim]
        if isinstance(places, int) and isinstance(count, int) and count > places:
            return "TensorRT takes no more indices than there are places, so that none is written twice"
    return None


@converts(aten.scatter.src, aten.scatter.value, unless=_repeats, keep_constants=True)
def scatter(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts values written at the places that ``index`` names along ``dim``."""
    op = arguments(target, args, kwargs)
    dtype, rank = types.output_dtype(ctx), max(types.rank_of(op.self), 1)
    logical = dtype is torch.bool
    inner = torch.int32 if logical else dtype  # booleans are scattered as numbers
    tensor = types.operand(ctx, op.self, inner, rank, name + "/tensor")
    indices = types.operand(ctx, op.index, torch.int64, rank, name + "/index")
    updates = impl.scatter_source(ctx, op, indices, inner, rank, name)
    result = impl.scatter_elements(ctx, tensor, indices, updates, op.dim, name)
    if not types.rank_of(op.self):
        result = shape.squeeze(ctx, result, [0], name + "/scalar")
    return types.cast(ctx, result, dtype, name)


@converts(
    aten.index_put.default, aten._unsafe_index_put.default, unless=_masks, keep_constants=True
)
def index_put(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts elements written, or added, at whole-number indices of any of the dimensions."""
    op = arguments(target, args, kwargs)
    dtype, rank = types.output_dtype(ctx), types.rank_of(op.self)
    inner = torch.int32 if dtype is torch.bool else dtype
    if op.accumulate:
        inner = types.wide(inner)
    tensor = types.operand(ctx, op.self, inner, rank, name + "/tensor")
    values = types.operand(ctx, op.values, inner, types.rank_of(op.values), name + "/values")
    result = impl.put(ctx, tensor, op.indices, values, op.accumulate, name)
    return types.cast(ctx, result, dtype, name)
