"""Bags of embeddings: rows of a table, summed, averaged or their largest elements taken."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, arguments_of, value_of
from torchtrt_blocks import (
    creation,
    indexing,
    merging,
    scatter,
    shape,
    sizes,
    types,
)
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

BAGS = {
    aten.embedding_bag.default: False,
    aten.embedding_bag.padding_idx: True,
    aten._embedding_bag.default: False,
    aten._embedding_bag_forward_only.default: False,
}
"""For each op whether a negative ``padding_idx`` counts from the end; elsewhere it means that there is no padding."""
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


def _padding_varies(node: Node, *, counts_from_end: bool) -> str | None:
    op = arguments_of(node)
    is_negative = counts_from_end and op.padding_idx is not None and op.padding_idx < 0
    if is_negative and not isinstance(value_of(op.weight).shape[0], int):
        return "a padding index counts from the end of a table whose number of rows varies"
    return None


@pack.converter(
    table={"counts_from_end": BAGS}, reject_if=(_reads_more, _no_vector, _padding_varies)
)
def embedding_bag(
    ctx: ConversionContext,
    weight: NetworkTensor | torch.Tensor,
    indices: NetworkTensor | torch.Tensor,
    offsets: NetworkTensor | torch.Tensor,
    mode: int,
    per_sample_weights: NetworkTensor | torch.Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None = None,
    *,
    counts_from_end: bool,
    **_: Any,
) -> tuple[NetworkTensor | None, ...]:
    """Converts bags of rows. A bag is a place that its rows are scattered to; an empty one is 0."""
    dtype = types.output_dtype(ctx, 0)
    inner = types.accumulation_dtype(dtype)
    indices = types.operand(ctx, indices, torch.int32, 1)
    offsets = types.operand(ctx, offsets, torch.int32, 1)
    kept = end = None
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding < 0 and counts_from_end:
        padding += weight.shape[0]
    if padding >= 0:
        kept = Formula(ctx, indices) != padding
    if include_last_offset:
        count = sizes.combine(ctx, "SUB", sizes.size_of(ctx, offsets, 0), 1)
        end = shape.slice_by(ctx, offsets, [count], [1], [1])
        offsets = shape.slice_by(ctx, offsets, [0], [count], [1])
    rows = Formula(ctx, indexing.gather(ctx, ctx.tensor(weight), indices, 0), inner)
    if per_sample_weights is not None:
        scale = types.operand(ctx, types.upcast(ctx, per_sample_weights, inner), inner, 1)
        rows = rows * Formula(ctx, scale).unsqueeze(1)
    if end is not None and padding < 0 and _MODES[mode] != "amax":
        # PyTorch's largest elements, and what it divides by, take in the rows behind the end.
        positions = Formula(ctx, creation.indices_along(ctx, indices, 0, torch.int32))
        rows = (positions < end).unsqueeze(1).where(rows, 0)
    bags = _bags(ctx, indices, offsets)
    result = _reduced(_MODES[mode], rows, bags, offsets, kept)
    return result.cast(dtype).tensor, *[None] * (len(types.output_value(ctx)) - 1)


def _bags(ctx: ConversionContext, indices: NetworkTensor, offsets: NetworkTensor) -> NetworkTensor:
    """Returns the bag of each index: as many as offsets are not beyond it, less one."""
    positions = Formula(ctx, creation.indices_along(ctx, indices, 0, torch.int32)).unsqueeze(1)
    begun = positions >= Formula(ctx, offsets).unsqueeze(0)
    return (begun.cast(torch.int32).sum([1], keep=False) - 1).tensor


def _reduced(
    mode: str, rows: Formula, bags: NetworkTensor, offsets: NetworkTensor, kept: Formula | None
) -> Formula:
    """Returns each bag's sum, mean or maximum of rows, by scattering the rows to their bags."""
    ctx, dtype, kind = rows.ctx, rows.dtype, scatter.KINDS[mode]
    bag_indices = scatter.broadcast_index(ctx, bags, 2, 0)
    neutral = merging.neutral(kind, dtype)
    if kept is not None:
        kept = kept.unsqueeze(1)
        rows = kept.where(rows, neutral)
    count = sizes.size_of(ctx, offsets, 0)
    width = sizes.size_of(ctx, rows.tensor, 1)
    start = creation.full(ctx, neutral, [count, width], dtype)
    result = Formula(ctx, scatter.combine_at(ctx, kind, start, bag_indices, rows.tensor, 0))
    if mode == "sum":
        return result
    length = sizes.size_of(ctx, rows.tensor, 0)
    ones = creation.full(ctx, 1, [length, 1], dtype)
    if kept is not None:
        ones = kept.cast(dtype).tensor
    zeros = creation.full(ctx, 0, [count, 1], dtype)
    members = Formula(ctx, scatter.combine_at(ctx, "SUM", zeros, bag_indices, ones, 0))
    return result / members.clamp(1) if mode == "mean" else (members > 0).where(result, 0)
