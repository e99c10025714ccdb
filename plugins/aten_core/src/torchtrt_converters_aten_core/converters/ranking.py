"""The largest and smallest elements, in order, and where they are."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Size, arguments_of, value_of
from torchtrt_blocks import indexing, shape, sizes, types
from torchtrt_blocks import ranking as blocks
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


PLACES = {aten.argmax.default: "MAX", aten.argmin.default: "MIN"}
EXTREMES = {aten.max.dim: "MAX", aten.min.dim: "MIN"}
SORTS = {
    aten.sort.default: False,
    aten.sort.stable: False,
    aten.argsort.default: True,
    aten.argsort.stable: True,
}
"""Ops that put elements in order, and whether they return the indices alone."""


def _unsorted(node: Node) -> str | None:
    """Returns why elements cannot be ranked, or ``None``: by TopK, from both ends, or by counting the smaller ones."""
    op = arguments_of(node)
    tensor, k = value_of(op.self), getattr(op, "k", None)
    if k == 0 and isinstance(k, int):
        return "TensorRT does not rank nothing"
    if isinstance(k, int) and k <= blocks.LIMIT and blocks.ranks(tensor.dtype):
        return None
    if blocks.sorts(tensor.dtype, tuple(tensor.shape), op.dim):
        return None
    return (
        f"TensorRT ranks at most {blocks.LIMIT} elements; twice as many are put in order from both ends, and "
        f"others by comparing each with each, which is done up to {blocks.COUNTING_LIMIT} comparisons"
    )


@pack.converter(table={"kind": PLACES})
def index_of_extreme(
    ctx: ConversionContext, self: NetworkTensor, dim: int | None, keepdim: bool, *, kind: str
) -> NetworkTensor:
    """Converts the index of the largest or smallest element, along one dimension or of the flattened tensor."""
    rank = len(self.shape)
    tensor = self if dim is not None else shape.flatten(ctx, self)
    if not len(tensor.shape):
        tensor = shape.to_rank(ctx, tensor, 1)
    index = blocks.first_extreme(ctx, kind, tensor, 0 if dim is None else dim)
    if dim is None or not rank:
        index = shape.squeeze(ctx, index, [0])
        if keepdim:
            index = shape.to_rank(ctx, index, rank)
    elif not keepdim:
        index = shape.squeeze(ctx, index, [dim])
    return types.cast(ctx, index, torch.int64)


@pack.converter(table={"kind": EXTREMES})
def extreme(
    ctx: ConversionContext, self: NetworkTensor, dim: int, keepdim: bool, *, kind: str
) -> tuple[NetworkTensor, NetworkTensor]:
    """Converts the largest or smallest element along a dimension, and its index."""
    scalar = not len(self.shape)
    tensor = shape.to_rank(ctx, self, 1) if scalar else self
    index = blocks.first_extreme(ctx, kind, tensor, dim)
    value = indexing.gather_elements(ctx, tensor, index, dim)
    if scalar or not keepdim:
        dim = 0 if scalar else dim
        value = shape.squeeze(ctx, value, [dim])
        index = shape.squeeze(ctx, index, [dim])
    return value, types.cast(ctx, index, torch.int64)


@pack.converter(aten.topk.default, reject_if=_unsorted)
def top_k(
    ctx: ConversionContext, self: NetworkTensor, k: Size, dim: int, largest: bool, **_: Any
) -> tuple[NetworkTensor, NetworkTensor]:
    """Converts the ``k`` largest or smallest elements along a dimension, and their indices."""
    if isinstance(k, int) and k <= blocks.LIMIT and blocks.ranks(ctx.dtype_of(self)):
        values, indices = blocks.top_k(ctx, self, k, dim, largest)
    else:
        values, indices = blocks.sort(ctx, self, dim, largest)
        values, indices = (_first(ctx, part, dim, k) for part in (values, indices))
    return values, types.cast(ctx, indices, torch.int64)


def _first(ctx: ConversionContext, tensor: NetworkTensor, dim: int, count: Size) -> NetworkTensor:
    rank = len(tensor.shape)
    if not rank:
        return tensor
    extents = sizes.sizes_of(ctx, tensor)
    extents[dim] = count
    return shape.slice_by(ctx, tensor, [0] * rank, extents, [1] * rank)


@pack.converter(table={"indices_only": SORTS}, reject_if=_unsorted)
def sort(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: int,
    descending: bool,
    *,
    indices_only: bool,
    **_: Any,
) -> NetworkTensor | tuple[NetworkTensor, NetworkTensor]:
    """Converts all elements along a dimension in order, and their indices."""
    values, indices = blocks.sort(ctx, self, dim, descending)
    indices = types.cast(ctx, indices, torch.int64)
    return indices if indices_only else (values, indices)
