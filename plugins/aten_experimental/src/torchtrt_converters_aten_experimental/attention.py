"""Scaled-dot-product attention as TensorRT's own fused operator, where the TensorRT in use has it.

These converters have HIGH priority: they are asked before aten_core's, which build the same from
matrix products and a softmax, and step aside with a reason where they do not apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torchtrt.conversion import ConversionContext, TRTTensor, enforce_tensor_types
from torchtrt.registry import ConverterPriority, Reject
from torchtrt.tensorrt.selection import describe
from torchtrt.tensorrt.shims import add_attention, has_attention
from torchtrt_converters_aten_core import impl
from torchtrt_converters_aten_experimental._pack import pack

_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def _bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None}
    return {**defaults, **dict(zip(_PARAMETERS, args, strict=False)), **kwargs}


def fits_fused_attention(node: Node) -> bool | Reject:
    """Accepts what ``IAttention`` computes exactly as PyTorch does."""
    if not has_attention():
        return Reject(f"{describe()} has no attention operator")
    call = _bind(node.args, node.kwargs)
    query, key, value = (call[name].meta["val"] for name in ("query", "key", "value"))
    if call["dropout_p"]:
        return Reject("dropout in attention")
    if any(tensor.dim() != 4 for tensor in (query, key, value)):
        return Reject("fused attention takes tensors of four dimensions")
    if query.dtype not in _DTYPES:
        return Reject(f"fused attention does not take {query.dtype}")
    if call["is_causal"] and not statically_known_true(query.shape[2] == key.shape[2]):
        return Reject("a causal mask over queries and keys of different lengths")
    if call["attn_mask"] is not None:
        mask = call["attn_mask"].meta["val"]
        if mask.dim() > 4:
            return Reject("a mask of more than four dimensions")
        if mask.dtype not in (torch.bool, query.dtype):
            return Reject(f"a mask of {mask.dtype} for scores of {query.dtype}")
        if mask.dtype is torch.bool:
            return Reject(
                "a boolean mask: rows that attend to nothing are 0 in PyTorch, not so here"
            )
    return True


@pack.converter(
    torch.ops.aten.scaled_dot_product_attention.default,
    capability_validator=fits_fused_attention,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
@enforce_tensor_types({0: (TRTTensor,), 1: (TRTTensor,), 2: (TRTTensor,), 3: (TRTTensor,)})
def scaled_dot_product_attention(
    ctx: ConversionContext, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """``softmax(query @ key.T * scale + mask) @ value`` in one operator."""
    call = _bind(args, kwargs)
    query, mask = call["query"], call["attn_mask"]
    scale = call["scale"] or 1.0 / math.sqrt(query.shape[-1])
    scaled = impl.elementwise.multiply(ctx, query, scale, name + "/scale")
    if mask is not None:
        mask = impl.shape.align_rank(ctx, mask, 4, name + "/mask")
    return add_attention(ctx.net, scaled, call["key"], call["value"], mask, call["is_causal"], name)
