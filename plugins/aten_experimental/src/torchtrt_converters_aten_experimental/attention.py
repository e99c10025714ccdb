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

from torchtrt.conversion import ConversionContext, TRTTensor, enforce_tensor_types
from torchtrt.registry import ConverterPriority, Reject
from torchtrt.tensorrt.selection import describe
from torchtrt.tensorrt.shims import add_attention, has_attention
from torchtrt_converters_aten_core.impl import elementwise
from torchtrt_converters_aten_experimental._pack import pack

_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def _bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        "attn_mask": None,
        "dropout_p": 0.0,
        "is_causal": False,
        "scale": None,
        "enable_gqa": False,
    }
    return {**defaults, **dict(zip(_PARAMETERS, args, strict=False)), **kwargs}


def fits_fused_attention(node: Node) -> bool | Reject:
    """Accepts what ``IAttention`` computes exactly as PyTorch does."""
    # Imported here because sympy, which it brings, takes longer to import than all packs together.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

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
        return Reject(
            "a mask: PyTorch gives 0 to a query that attends to nothing, and what fused attention gives is not "
            "documented"
        )
    if call["enable_gqa"]:
        return Reject(
            "fewer heads of keys than of queries, which fused attention does not document"
        )
    return True


@pack.converter(
    torch.ops.aten.scaled_dot_product_attention.default,
    capability_validator=fits_fused_attention,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
@enforce_tensor_types({0: (TRTTensor,), 1: (TRTTensor,), 2: (TRTTensor,)})
def scaled_dot_product_attention(
    ctx: ConversionContext, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """``softmax(query @ key.T * scale) @ value`` in one operator, causal or not."""
    call = _bind(args, kwargs)
    query = call["query"]
    scale = call["scale"] or 1.0 / math.sqrt(query.shape[-1])
    scaled = elementwise.arithmetic(ctx, "PROD", query, scale, ctx.dtype_of(query), name + "/scale")
    return add_attention(ctx.net, scaled, call["key"], call["value"], call["is_causal"], name)
