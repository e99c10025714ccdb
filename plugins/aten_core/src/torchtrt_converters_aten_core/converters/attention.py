"""Attention."""

from __future__ import annotations

import operator
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

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

WHOLE = aten.scaled_dot_product_attention.default
KERNELS = (
    aten._scaled_dot_product_attention_math.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_fused_attention_overrideable.default,
)
"""What PyTorch makes of attention on one device or another. They have further outputs, for training."""


def only_first(node: Node) -> bool:
    """Returns whether of an op's outputs only the first is read."""
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def unlike_attention(node: Node) -> str | None:
    """Says that an output of a kernel but the first is read, or that its mask is none; else returns ``None``."""
    mask = value_of(mask_of(node_arguments(node)))
    if mask is not None and mask.dtype is torch.bool:
        return "the kernels of attention add masks, and this one holds booleans"
    if only_first(node):
        return None
    return "outputs of attention that are for training have no TensorRT equivalent"


def mask_of(op: Any) -> Any:
    """Returns the mask among an attention op's arguments, or ``None``."""
    return getattr(op, "attn_mask", getattr(op, "attn_bias", None))


def _unfit(node: Node) -> str | None:
    op = node_arguments(node)
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


@converts(WHOLE, unless=_unfit, keep_constants=True)
def attention(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts attention with any mask, causal or not, with as many or fewer heads of keys than of queries."""
    return _attention(ctx, arguments(target, args, kwargs), types.output_dtype(ctx), name)


@converts(*KERNELS, unless=(unlike_attention, _unfit), keep_constants=True)
def kernel(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the same where PyTorch has chosen a kernel for it already."""
    result = _attention(ctx, arguments(target, args, kwargs), types.output_dtype(ctx, 0), name)
    return result, *[None] * (len(target._schema.returns) - 1)


def _attention(ctx: Any, op: Any, dtype: torch.dtype, name: str) -> Any:
    query, key, value = (
        types.operand(
            ctx, getattr(op, label), dtype, types.rank_of(getattr(op, label)), f"{name}/{label}"
        )
        for label in ("query", "key", "value")
    )
    if getattr(op, "enable_gqa", False):
        heads = query.shape[1]
        key = impl.repeat_heads(ctx, key, heads // key.shape[1], name + "/key_heads")
        value = impl.repeat_heads(ctx, value, heads // value.shape[1], name + "/value_heads")
    mask = mask_of(op)
    if is_network_tensor(mask) and ctx.dtype_of(mask) is not torch.bool:
        mask = types.cast(ctx, mask, dtype, name + "/mask")
    return impl.attention(ctx, query, key, value, mask, op.is_causal, op.scale, name)
