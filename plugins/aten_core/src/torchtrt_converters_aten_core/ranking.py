"""The largest and smallest elements, in order, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.tensorrt.shims import ranks_integers
from torchtrt_converters_aten_core.impl import ranking as impl
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

PLACES = {aten.argmax.default: True, aten.argmin.default: False}
EXTREMES = {aten.max.dim: True, aten.min.dim: False}
SORTS = (aten.sort.default, aten.sort.stable, aten.argsort.default, aten.argsort.stable)


def _unranked(node: Node) -> str | None:
    tensor = value_of(node_arguments(node).self)
    if tensor.dtype in (torch.int64, torch.int32) and not ranks_integers():
        return "this TensorRT ranks floating-point numbers only"
    return None


def _too_many(node: Node) -> str | None:
    op = node_arguments(node)
    tensor = value_of(op.self)
    count = getattr(op, "k", None)
    if count is None:
        count = tensor.shape[op.dim] if tensor.dim() else 1
    if not isinstance(count, int):
        return "how many elements to rank is known only at run time"
    if not 1 <= count <= impl.LIMIT:
        return f"TensorRT ranks 1 to {impl.LIMIT} elements, not {count}"
    return None


@converts(*PLACES, unless=_unranked)
def place(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the index of the largest or smallest element, along one dimension or of the flattened tensor."""
    op = arguments(target, args, kwargs)
    tensor = op.self if op.dim is not None else shape.flatten(ctx, op.self, name + "/flat")
    rank = len(tensor.shape)
    dim = 0 if op.dim is None else op.dim % max(rank, 1)
    _, indices = impl.top_k(ctx, tensor, 1, dim, PLACES[target], name)
    if op.dim is None:
        full_rank = len(op.self.shape)
        indices = shape.squeeze(ctx, indices, [0], name + "/index")
        if op.keepdim:
            indices = shape.to_rank(ctx, indices, full_rank, name + "/kept")
    elif not op.keepdim and rank:
        indices = shape.squeeze(ctx, indices, [dim], name + "/index")
    return types.cast(ctx, indices, torch.int64, name + "/index")


@converts(*EXTREMES, unless=_unranked)
def extreme(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the largest or smallest element along a dimension, and its index."""
    op = arguments(target, args, kwargs)
    values, indices = impl.top_k(ctx, op.self, 1, op.dim, EXTREMES[target], name)
    if not op.keepdim and len(op.self.shape):
        values = shape.squeeze(ctx, values, [op.dim], name + "/value")
        indices = shape.squeeze(ctx, indices, [op.dim], name + "/index")
    return values, types.cast(ctx, indices, torch.int64, name + "/index")


@converts(aten.topk.default, unless=(_unranked, _too_many))
def top_k(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the ``k`` largest or smallest elements along a dimension, and their indices."""
    op = arguments(target, args, kwargs)
    values, indices = impl.top_k(ctx, op.self, op.k, op.dim, op.largest, name)
    return values, types.cast(ctx, indices, torch.int64, name + "/index")


@converts(*SORTS, unless=(_unranked, _too_many))
def sort(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts all elements along a dimension in order, and their indices."""
    op = arguments(target, args, kwargs)
    count = op.self.shape[op.dim] if len(op.self.shape) else 1
    values, indices = impl.top_k(ctx, op.self, count, op.dim, op.descending, name)
    indices = types.cast(ctx, indices, torch.int64, name + "/index")
    return indices if target.overloadpacket is aten.argsort else (values, indices)
