"""Attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import is_network_tensor
from torchtrt_converters_aten_core.impl import attention as impl
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten


def _unfit(node: Node) -> str | None:
    op = node_arguments(node)
    query, key, value = (value_of(part) for part in (op.query, op.key, op.value))
    if op.dropout_p:
        return "attention with dropout is random"
    if not isinstance(query.shape[-1], int):
        return "the width of a head must be fixed"
    if op.scale is not None and not isinstance(op.scale, (int, float)):
        return "the scale must be fixed"
    if op.enable_gqa and not (
        query.dim() == 4
        and isinstance(query.shape[1], int)
        and isinstance(key.shape[1], int)
        and isinstance(value.shape[1], int)
    ):
        return "grouped queries need a fixed number of heads in the second of four dimensions"
    return None


@converts(aten.scaled_dot_product_attention.default, unless=_unfit, keep_constants=True)
def attention(
    ctx: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """Converts attention with any mask, causal or not, with as many or fewer heads of keys than of queries."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    query, key, value = (
        types.operand(
            ctx, getattr(op, label), dtype, types.rank_of(getattr(op, label)), f"{name}/{label}"
        )
        for label in ("query", "key", "value")
    )
    if op.enable_gqa:
        heads = query.shape[1]
        key = impl.repeat_heads(ctx, key, heads // key.shape[1], name + "/key_heads")
        value = impl.repeat_heads(ctx, value, heads // value.shape[1], name + "/value_heads")
    mask = op.attn_mask
    if is_network_tensor(mask) and ctx.dtype_of(mask) is not torch.bool:
        mask = types.cast(ctx, mask, dtype, name + "/mask")
    return impl.attention(ctx, query, key, value, mask, op.is_causal, op.scale, name)
