"""Attention."""

from __future__ import annotations

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt_converters_aten_core.impl import attention as impl
from torchtrt_converters_aten_core.registration import converts

aten = torch.ops.aten


def _unfit(node: Node) -> str | None:
    op = arguments_of(node)
    query, key, value = (value_of(part) for part in (op.query, op.key, op.value))
    if op.dropout_p:
        return "attention with dropout is random"
    if not isinstance(query.shape[-1], int):
        return "the width of a head must be fixed"
    if op.scale is not None and not isinstance(op.scale, (int, float)):
        return "the scale must be fixed"
    if getattr(op, "enable_gqa", False) and not (
        query.dim() == 4
        and isinstance(query.shape[1], int)
        and isinstance(key.shape[1], int)
        and isinstance(value.shape[1], int)
    ):
        return "grouped queries need a fixed number of heads in the second of four dimensions"
    return None


@converts(impl.WHOLE, unless=_unfit, keep_constants=True)
def attention(
    ctx, query, key, value, attn_mask, is_causal, scale, enable_gqa=False, attn_bias=None, **_
):
    """Converts attention with any mask, causal or not, with as many or fewer heads of keys than of queries."""
    mask = attn_bias if attn_mask is None else attn_mask
    query, key, value, mask = impl.operands(ctx, query, key, value, mask)
    if enable_gqa:
        heads = query.shape[1]
        key = impl.repeat_heads(ctx, key, heads // key.shape[1])
        value = impl.repeat_heads(ctx, value, heads // value.shape[1])
    return impl.attention(ctx, query, key, value, mask, is_causal, scale)


@converts(*impl.KERNELS, unless=(impl.unlike_attention, _unfit), keep_constants=True)
def sdpa_kernel(ctx, attn_mask=None, **arguments):
    """Converts the same where PyTorch has chosen a kernel for it already."""
    result = attention(ctx, attn_mask=attn_mask, **arguments)
    return result, *[None] * (len(ctx.node.target._schema.returns) - 1)
