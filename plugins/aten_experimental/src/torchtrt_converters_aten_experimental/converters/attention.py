"""Scaled-dot-product attention as TensorRT's own fused operator, where the TensorRT in use has it.

These converters have HIGH priority and precede aten_core's, which build the same from matrix products
and a softmax. Where they do not apply, they reject with a reason.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    arguments_of,
    is_network_tensor,
    value_of,
)
from torchtrt.registry import ConverterPriority
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks import attention, elementwise, shape, sizes, types
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_experimental import pack
from torchtrt_converters_aten_experimental.shims import add_attention

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def unlike_fused_attention(node: Node) -> str | None:
    """Returns what ``IAttention`` does not compute exactly as PyTorch does, or ``None``."""
    op = arguments_of(node)
    query, key, value = (value_of(part) for part in (op.query, op.key, op.value))
    if op.dropout_p:
        return "dropout in attention"
    if any(tensor.dim() != 4 for tensor in (query, key, value)):
        return "fused attention takes tensors of four dimensions"
    if query.dtype not in _DTYPES:
        return f"fused attention does not take {query.dtype}"
    if not isinstance(query.shape[-1], int):
        return "the width of a head must be fixed"
    if op.scale is not None and not isinstance(op.scale, (int, float)):
        return "the scale must be fixed"
    if not all(isinstance(tensor.shape[1], int) for tensor in (query, key, value)):
        return "fused attention needs a fixed number of heads"
    return _unlike_heads(query.shape[1], key.shape[1], value.shape[1], op)


def _unlike_heads(queries: int, keys: int, values: int, op: Any) -> str | None:
    """Returns why the heads of an attention do not fit ``IAttention``, or ``None``."""
    if getattr(op, "enable_gqa", False):
        if keys != values or queries % keys:
            return "fused attention needs as many heads of keys as of values, which divide the queries'"
    elif not queries == keys == values:
        return "fused attention does not broadcast heads"
    return None


@pack.converter(
    attention.WHOLE,
    reject_if=unlike_fused_attention,
    requires=Capability.ATTENTION,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
def scaled_dot_product_attention(
    ctx: ConversionContext,
    query: NetworkTensor | torch.Tensor,
    key: NetworkTensor | torch.Tensor,
    value: NetworkTensor | torch.Tensor,
    attn_mask: NetworkTensor | torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    attn_bias: NetworkTensor | torch.Tensor | None = None,
    **_: Any,
) -> NetworkTensor:
    """``softmax(query @ key.T * scale + mask) @ value`` in one operator, causal or not."""
    mask = attn_bias if attn_mask is None else attn_mask
    query, key, value = attention.operands(ctx, query, key, value)
    dtype = ctx.dtype_of(query)
    mask = attention.added_mask(ctx, mask, dtype)
    if is_causal and not _is_square(ctx, query, key) and not supports(Capability.ATTENTION_V2):
        mask = attention.causal_mask(ctx, query, key) if mask is None else mask
    if is_causal and mask is not None:
        mask, is_causal = attention.with_causal(ctx, query, key, mask), False
    keep = None
    if mask is not None:
        mask, keep = _whole_mask(ctx, mask, query, key, dtype)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scaled = Formula(ctx, query) * factor
    attended = add_attention(ctx.net, scaled.tensor, key, value, is_causal, mask)
    # The layer's result for a query that sees no key is not documented; PyTorch's is 0.
    return attended if keep is None else elementwise.select(ctx, keep, attended, 0.0, dtype)


def _is_square(ctx: ConversionContext, query: NetworkTensor, key: NetworkTensor) -> bool:
    """Returns whether there are as many queries as keys, whatever the sizes."""
    return sizes.same(*(ctx.symbolic_shape(tensor)[2] for tensor in (query, key)))


def _whole_mask(
    ctx: ConversionContext,
    mask: NetworkTensor | torch.Tensor,
    query: NetworkTensor,
    key: NetworkTensor,
    dtype: torch.dtype,
) -> tuple[NetworkTensor, NetworkTensor | torch.Tensor | None]:
    """Returns a mask as the layer takes it, and which queries see a key.

    Both are made once for all layers that share the mask and have the same lengths.
    The layer broadcasts over sequences and heads only: the mask becomes ``(..., ..., queries, keys)``.
    """
    made: dict[Any, tuple[NetworkTensor, NetworkTensor | torch.Tensor | None]] = (
        ctx.attachments.setdefault(__name__, {})
    )
    cache_key = None
    if is_network_tensor(mask) and not ctx.depth:
        lengths = [ctx.symbolic_shape(tensor)[2] for tensor in (query, key)]
        cache_key = None if None in lengths else (mask.name, *map(str, lengths))
    if cache_key is not None and cache_key in made:
        return made[cache_key]
    keep = attention.seeing_queries(ctx, mask)
    if not is_network_tensor(mask):
        mask = ctx.tensor(mask, mask.dtype if mask.dtype is torch.bool else dtype)
    extent = [-1, -1, sizes.size_of(ctx, query, 2), sizes.size_of(ctx, key, 2)]
    whole = shape.expand(ctx, shape.to_rank(ctx, mask, 4), extent)
    if cache_key is not None:
        made[cache_key] = whole, keep
    return whole, keep


@pack.converter(
    *attention.KERNELS,
    reject_if=(attention.unlike_attention, unlike_fused_attention),
    requires=Capability.ATTENTION,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
def sdpa_kernel(
    ctx: ConversionContext, attn_mask: NetworkTensor | torch.Tensor | None = None, **arguments: Any
) -> tuple[NetworkTensor | None, ...]:
    """The same where PyTorch has chosen a kernel for it already; the outputs for training are missing."""
    result = scaled_dot_product_attention(ctx, attn_mask=attn_mask, **arguments)
    return result, *[None] * (len(types.output_value(ctx)) - 1)
