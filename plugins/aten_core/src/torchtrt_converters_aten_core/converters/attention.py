"""Attention."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, arguments_of, value_of
from torchtrt_blocks import attention as blocks
from torchtrt_blocks import sizes, types
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


def _unsupported_attention(node: Node) -> str | None:
    """Returns why TensorRT cannot compute this attention, or ``None``."""
    op = arguments_of(node)
    query, key, value = (value_of(part) for part in (op.query, op.key, op.value))
    if op.dropout_p:
        return "attention with dropout is random"
    if not isinstance(query.shape[-1], int):
        return "the width of a head must be fixed"
    if op.scale is not None and not isinstance(op.scale, (int, float)):
        return "the scale must be fixed"
    if _is_grouped(op, query, key) and not (
        query.dim() == 4
        and isinstance(query.shape[1], int)
        and isinstance(key.shape[1], int)
        and isinstance(value.shape[1], int)
    ):
        return "grouped queries need a fixed number of heads in the second of four dimensions"
    return None


def _is_grouped(op: Any, query: torch.Tensor, key: torch.Tensor) -> bool:
    """Returns whether several heads of queries share one of keys. Most kernels have no argument for it."""
    if hasattr(op, "enable_gqa"):
        return bool(op.enable_gqa)
    return query.dim() == 4 and not sizes.have_same_sizes(query.shape[1:2], key.shape[1:2])


@pack.converter(blocks.WHOLE, reject_if=_unsupported_attention)
def attention(
    ctx: ConversionContext,
    query: NetworkTensor | torch.Tensor,
    key: NetworkTensor | torch.Tensor,
    value: NetworkTensor | torch.Tensor,
    attn_mask: NetworkTensor | torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool | None = None,
    attn_bias: NetworkTensor | torch.Tensor | None = None,
    **_: Any,
) -> NetworkTensor:
    """Converts attention with any mask, causal or not, with as many or fewer heads of keys than of queries."""
    mask = attn_bias if attn_mask is None else attn_mask
    queries, keys, values = blocks.operands(ctx, query, key, value)
    if enable_gqa or (enable_gqa is None and queries.shape[1] != keys.shape[1]):
        heads = queries.shape[1]
        keys = blocks.repeat_heads(ctx, keys, heads // keys.shape[1])
        values = blocks.repeat_heads(ctx, values, heads // values.shape[1])
    return blocks.attention(ctx, queries, keys, values, mask, is_causal, scale)


@pack.converter(
    *blocks.KERNELS,
    reject_if=(blocks.unlike_attention, _unsupported_attention),
)
def sdpa_kernel(
    ctx: ConversionContext, attn_mask: NetworkTensor | torch.Tensor | None = None, **arguments: Any
) -> tuple[NetworkTensor | None, ...]:
    """Converts the same where PyTorch has chosen a kernel for it already."""
    result = attention(ctx, attn_mask=attn_mask, **arguments)
    return result, *[None] * (len(types.output_value(ctx)) - 1)
