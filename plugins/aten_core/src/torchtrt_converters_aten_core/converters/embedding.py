"""Bags of embeddings: rows of a table, summed, averaged or their largest elements taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import get_trt_tensor
from torchtrt_converters_aten_core.converters.attention import only_first
from torchtrt_converters_aten_core.impl import (
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
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

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
        None if only_first(node) else "only the bags themselves are read, not what training needs"
    )


def _no_vector(node: Node) -> str | None:
    op = node_arguments(node)
    if value_of(op.indices).dim() != 1:
        return "the indices of all bags stand in one vector"
    if op.include_last_offset and not isinstance(value_of(op.offsets).shape[0], int):
        return "the number of bags must be fixed where the last offset is the end"
    return None


@converts(*BAGS, unless=(_reads_more, _no_vector), keep_constants=True)
def embedding_bag(
    ctx: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """Converts bags of rows. A bag is a place that its rows are scattered to; an empty one is 0."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx, 0)
    inner = types.wide(dtype)
    indices = types.operand(ctx, op.indices, torch.int32, 1, name + "/indices")
    offsets = types.operand(ctx, op.offsets, torch.int32, 1, name + "/offsets")
    if op.include_last_offset:
        count = offsets.shape[0] - 1
        offsets = shape.slice_by(ctx, offsets, [0], [count], [1], name + "/starts")
    weight = get_trt_tensor(ctx, op.weight, name + "/weight")
    rows = indexing.gather(ctx, weight, indices, 0, name + "/rows")
    rows = types.cast(ctx, rows, inner, name + "/wide_rows")
    if op.per_sample_weights is not None:
        scale = types.operand(ctx, op.per_sample_weights, inner, 1, name + "/scale")
        scale = shape.unsqueeze(ctx, scale, [1], name + "/scale_wide")
        rows = elementwise.combine(ctx, "PROD", rows, scale, name + "/scaled")
    bags = _bags(ctx, indices, offsets, name)
    kept = None
    padding = getattr(op, "padding_idx", None)
    if padding is not None and padding >= 0:
        kept = elementwise.compare(ctx, "ne", indices, padding, name + "/kept")
    result = _reduced(ctx, _MODES[op.mode], rows, bags, offsets, kept, name)
    result = types.cast(ctx, result, dtype, name)
    return result, *[None] * (len(target._schema.returns) - 1)


def _bags(ctx: Any, indices: Any, offsets: Any, name: str) -> Any:
    """Returns the bag of each index: as many as offsets are not beyond it, less one."""
    places = creation.places(ctx, indices, 0, torch.int32, name + "/places")
    places = shape.unsqueeze(ctx, places, [1], name + "/places_wide")
    starts = shape.unsqueeze(ctx, offsets, [0], name + "/starts_wide")
    begun = elementwise.compare(ctx, "ge", places, starts, name + "/begun")
    number = types.cast(ctx, begun, torch.int32, name + "/begun_number")
    count = reduction.reduce(ctx, "SUM", number, [1], False, name + "/begun_count")
    return elementwise.arithmetic(ctx, "SUB", count, 1, torch.int32, name + "/bags")


def _reduced(ctx: Any, mode: str, rows: Any, bags: Any, offsets: Any, kept: Any, name: str) -> Any:
    dtype, kind = ctx.dtype_of(rows), scatter.KINDS[mode]
    places = scatter.broadcast_index(ctx, bags, 2, 0, name + "/places_of_rows")
    if kept is not None:
        kept = shape.unsqueeze(ctx, kept, [1], name + "/kept_wide")
        neutral = merging.neutral(kind, dtype)
        rows = elementwise.select(ctx, kept, rows, neutral, dtype, name + "/kept_rows")
    count = sizes.size_of(ctx, offsets, 0, name + "/bag_count")
    width = sizes.size_of(ctx, rows, 1, name + "/width")
    start = creation.full(ctx, merging.neutral(kind, dtype), [count, width], dtype, name + "/start")
    result = scatter.combine_at(ctx, kind, start, places, rows, 0, name + "/total")
    if mode == "sum":
        return result
    length = sizes.size_of(ctx, rows, 0, name + "/length")
    ones = creation.full(ctx, 1, [length, 1], dtype, name + "/ones")
    if kept is not None:
        ones = types.cast(ctx, kept, dtype, name + "/ones_kept")
    zeros = creation.full(ctx, 0, [count, 1], dtype, name + "/zeros")
    members = scatter.combine_at(ctx, "SUM", zeros, places, ones, 0, name + "/members")
    if mode == "mean":
        divisor = elementwise.clamp(ctx, members, 1, None, dtype, name + "/divisor")
        return elementwise.combine(ctx, "DIV", result, divisor, name + "/mean")
    filled = elementwise.compare(ctx, "gt", members, 0, name + "/filled")
    return elementwise.select(ctx, filled, result, 0, dtype, name + "/largest")
