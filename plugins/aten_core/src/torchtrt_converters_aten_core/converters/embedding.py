"""Bags of embeddings: rows of a table, summed, averaged or their largest elements taken."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, arguments_of, value_of
from torchtrt_blocks import (
    creation,
    elementwise,
    indexing,
    merging,
    reduction,
    scatter,
    shape,
    sizes,
    types,
)
from torchtrt_converters_aten_core.registration import converts

aten = torch.ops.aten

BAGS = (
    aten.embedding_bag.default,
    aten.embedding_bag.padding_idx,
    aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
)
_MODES = ("sum", "mean", "amax")


def _reads_more(node: Node) -> str | None:
    return (
        None
        if types.reads_first_only(node)
        else "only the bags themselves are read, not what training needs"
    )


def _no_vector(node: Node) -> str | None:
    op = arguments_of(node)
    if value_of(op.indices).dim() != 1:
        return "the indices of all bags stand in one vector"
    return None


@converts(*BAGS, reject_if=(_reads_more, _no_vector), keep_constants=True)
def embedding_bag(
    ctx: ConversionContext,
    weight: NetworkTensor | torch.Tensor,
    indices: NetworkTensor | torch.Tensor,
    offsets: NetworkTensor | torch.Tensor,
    mode: int,
    per_sample_weights: NetworkTensor | torch.Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None = None,
    **_: Any,
) -> tuple[NetworkTensor | None, ...]:
    """Converts bags of rows. A bag is a place that its rows are scattered to; an empty one is 0."""
    dtype = types.output_dtype(ctx, 0)
    inner = types.accumulation_dtype(dtype)
    indices = types.operand(ctx, indices, torch.int32, 1)
    offsets = types.operand(ctx, offsets, torch.int32, 1)
    kept = end = None
    padding = -1 if padding_idx is None else padding_idx
    if padding >= 0:
        kept = elementwise.compare(ctx, "ne", indices, padding)
    if include_last_offset:
        count = sizes.combine(ctx, "SUB", sizes.size_of(ctx, offsets, 0), 1)
        end = shape.slice_by(ctx, offsets, [count], [1], [1])
        offsets = shape.slice_by(ctx, offsets, [0], [count], [1])
    weight = ctx.tensor(weight)
    rows = indexing.gather(ctx, weight, indices, 0)
    rows = types.cast(ctx, rows, inner)
    if per_sample_weights is not None:
        scale = types.operand(ctx, types.upcast(ctx, per_sample_weights, inner), inner, 1)
        scale = shape.unsqueeze(ctx, scale, [1])
        rows = elementwise.combine(ctx, "PROD", rows, scale)
    if end is not None and padding < 0 and _MODES[mode] != "amax":
        # PyTorch's largest elements, and what it divides by, take in the rows behind the end.
        places = creation.places(ctx, indices, 0, torch.int32)
        inside = elementwise.compare(ctx, "lt", places, end)
        inside = shape.unsqueeze(ctx, inside, [1])
        rows = elementwise.select(ctx, inside, rows, 0, inner)
    bags = _bags(ctx, indices, offsets)
    result = _reduced(ctx, _MODES[mode], rows, bags, offsets, kept)
    result = types.cast(ctx, result, dtype)
    return result, *[None] * (len(types.output_value(ctx)) - 1)


def _bags(ctx: ConversionContext, indices: NetworkTensor, offsets: NetworkTensor) -> NetworkTensor:
    """Returns the bag of each index: as many as offsets are not beyond it, less one."""
    places = creation.places(ctx, indices, 0, torch.int32)
    places = shape.unsqueeze(ctx, places, [1])
    starts = shape.unsqueeze(ctx, offsets, [0])
    begun = elementwise.compare(ctx, "ge", places, starts)
    number = types.cast(ctx, begun, torch.int32)
    count = reduction.reduce(ctx, "SUM", number, [1], False)
    return elementwise.arithmetic(ctx, "SUB", count, 1, torch.int32)


def _reduced(
    ctx: ConversionContext,
    mode: str,
    rows: NetworkTensor,
    bags: NetworkTensor,
    offsets: NetworkTensor,
    kept: NetworkTensor | None,
) -> NetworkTensor:
    """Returns each bag's sum, mean or maximum of rows, by scattering the rows to their bags."""
    dtype, kind = ctx.dtype_of(rows), scatter.KINDS[mode]
    places = scatter.broadcast_index(ctx, bags, 2, 0)
    if kept is not None:
        kept = shape.unsqueeze(ctx, kept, [1])
        neutral = merging.neutral(kind, dtype)
        rows = elementwise.select(ctx, kept, rows, neutral, dtype)
    count = sizes.size_of(ctx, offsets, 0)
    width = sizes.size_of(ctx, rows, 1)
    start = creation.full(ctx, merging.neutral(kind, dtype), [count, width], dtype)
    result = scatter.combine_at(ctx, kind, start, places, rows, 0)
    if mode == "sum":
        return result
    length = sizes.size_of(ctx, rows, 0)
    ones = creation.full(ctx, 1, [length, 1], dtype)
    if kept is not None:
        ones = types.cast(ctx, kept, dtype)
    zeros = creation.full(ctx, 0, [count, 1], dtype)
    members = scatter.combine_at(ctx, "SUM", zeros, places, ones, 0)
    if mode == "mean":
        divisor = elementwise.clamp(ctx, members, 1, None, dtype)
        return elementwise.combine(ctx, "DIV", result, divisor)
    filled = elementwise.compare(ctx, "gt", members, 0)
    return elementwise.select(ctx, filled, result, 0, dtype)
