"""The largest and smallest elements, in order, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import indexing, shape, sizes, types
from torchtrt_converters_aten_core.impl import ranking as impl
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

PLACES = {aten.argmax.default: "MAX", aten.argmin.default: "MIN"}
EXTREMES = {aten.max.dim: "MAX", aten.min.dim: "MIN"}
SORTS = (aten.sort.default, aten.sort.stable, aten.argsort.default, aten.argsort.stable)


def _unsorted(node: Node) -> str | None:
    op = node_arguments(node)
    tensor, k = value_of(op.self), getattr(op, "k", None)
    if k == 0 and isinstance(k, int):
        return "TensorRT does not rank nothing"
    if isinstance(k, int) and k <= impl.LIMIT and impl.ranks(tensor.dtype):
        return None
    if impl.sorts(tensor.dtype, tuple(tensor.shape), op.dim):
        return None
    return (
        f"TensorRT ranks at most {impl.LIMIT} elements; twice as many are put in order from both ends, and "
        f"others by comparing each with each, which is done up to {impl.COUNTING_LIMIT} comparisons"
    )


@converts(*PLACES)
def place(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the index of the largest or smallest element, along one dimension or of the flattened tensor."""
    op = arguments(target, args, kwargs)
    rank = len(op.self.shape)
    tensor = op.self if op.dim is not None else shape.flatten(ctx, op.self, name + "/flat")
    if not len(tensor.shape):
        tensor = shape.to_rank(ctx, tensor, 1, name + "/vector")
    dim = 0 if op.dim is None else op.dim
    index = impl.first_extreme(ctx, PLACES[target], tensor, dim, name)
    if op.dim is None or not rank:
        index = shape.squeeze(ctx, index, [0], name + "/index")
        if op.keepdim:
            index = shape.to_rank(ctx, index, rank, name + "/kept")
    elif not op.keepdim:
        index = shape.squeeze(ctx, index, [dim], name + "/index")
    return types.cast(ctx, index, torch.int64, name + "/index")


@converts(*EXTREMES)
def extreme(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the largest or smallest element along a dimension, and its index."""
    op = arguments(target, args, kwargs)
    scalar = not len(op.self.shape)
    tensor = shape.to_rank(ctx, op.self, 1, name + "/vector") if scalar else op.self
    index = impl.first_extreme(ctx, EXTREMES[target], tensor, op.dim, name)
    value = indexing.gather_elements(ctx, tensor, index, op.dim, name + "/value")
    if scalar or not op.keepdim:
        dim = 0 if scalar else op.dim
        value = shape.squeeze(ctx, value, [dim], name + "/value_alone")
        index = shape.squeeze(ctx, index, [dim], name + "/index")
    return value, types.cast(ctx, index, torch.int64, name + "/index")


@converts(aten.topk.default, unless=_unsorted)
def top_k(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the ``k`` largest or smallest elements along a dimension, and their indices."""
    op = arguments(target, args, kwargs)
    fixed = isinstance(op.k, int) and op.k <= impl.LIMIT
    if fixed and impl.ranks(ctx.dtype_of(op.self)):
        values, indices = impl.top_k(ctx, op.self, op.k, op.dim, op.largest, name)
    else:
        values, indices = impl.sort(ctx, op.self, op.dim, op.largest, name)
        values, indices = (
            _first(ctx, part, op.dim, op.k, f"{name}/{label}")
            for label, part in (("values", values), ("indices", indices))
        )
    return values, types.cast(ctx, indices, torch.int64, name + "/index")


def _first(ctx: Any, tensor: Any, dim: int, count: Any, name: str) -> Any:
    rank = len(tensor.shape)
    if not rank:
        return tensor
    extents = sizes.sizes_of(ctx, tensor, name + "/size")
    extents[dim] = count
    return shape.slice_by(ctx, tensor, [0] * rank, extents, [1] * rank, name)


@converts(*SORTS, unless=_unsorted)
def sort(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts all elements along a dimension in order, and their indices."""
    op = arguments(target, args, kwargs)
    values, indices = impl.sort(ctx, op.self, op.dim, op.descending, name)
    indices = types.cast(ctx, indices, torch.int64, name + "/index")
    return indices if target.overloadpacket is aten.argsort else (values, indices)
