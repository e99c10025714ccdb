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

from torchtrt.conversion import ConversionContext, get_trt_tensor
from torchtrt.registry import ConverterPriority, Reject
from torchtrt.tensorrt.selection import describe
from torchtrt.tensorrt.shims import add_attention, has_attention
from torchtrt_converters_aten_core.converters.attention import (
    KERNELS,
    WHOLE,
    mask_of,
    unlike_attention,
)
from torchtrt_converters_aten_core.impl import elementwise
from torchtrt_converters_aten_core.registration import arguments, node_arguments, value_of
from torchtrt_converters_aten_experimental._pack import pack

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def fits_fused_attention(node: Node) -> bool | Reject:
    """Accepts what ``IAttention`` computes exactly as PyTorch does."""
    # Imported here because sympy, which it brings, takes longer to import than all packs together.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not has_attention():
        return Reject(f"{describe()} has no attention operator")
    op = node_arguments(node)
    query, key, value = (value_of(part) for part in (op.query, op.key, op.value))
    if op.dropout_p:
        return Reject("dropout in attention")
    if any(tensor.dim() != 4 for tensor in (query, key, value)):
        return Reject("fused attention takes tensors of four dimensions")
    if query.dtype not in _DTYPES:
        return Reject(f"fused attention does not take {query.dtype}")
    if op.is_causal and not statically_known_true(query.shape[2] == key.shape[2]):
        return Reject("a causal mask over queries and keys of different lengths")
    if mask_of(op) is not None:
        return Reject(
            "a mask: PyTorch gives 0 to a query that attends to nothing, and what fused attention gives is not "
            "documented"
        )
    if getattr(op, "enable_gqa", False):
        return Reject(
            "fewer heads of keys than of queries, which fused attention does not document"
        )
    return True


def fits_kernel(node: Node) -> bool | Reject:
    """Accepts a kernel of which only the first output is read, and that fits."""
    reason = unlike_attention(node)
    return Reject(reason) if reason else fits_fused_attention(node)


def _fused(ctx: ConversionContext, op: Any, name: str) -> Any:
    query, key, value = (
        get_trt_tensor(ctx, getattr(op, label), f"{name}/{label}")
        for label in ("query", "key", "value")
    )
    scale = 1.0 / math.sqrt(query.shape[-1]) if op.scale is None else op.scale
    scaled = elementwise.arithmetic(ctx, "PROD", query, scale, ctx.dtype_of(query), name + "/scale")
    return add_attention(ctx.net, scaled, key, value, op.is_causal, name)


@pack.converter(
    WHOLE,
    capability_validator=fits_fused_attention,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
def scaled_dot_product_attention(
    ctx: ConversionContext, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """``softmax(query @ key.T * scale) @ value`` in one operator, causal or not."""
    return _fused(ctx, arguments(target, args, kwargs), name)


def kernel(
    ctx: ConversionContext, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """The same where PyTorch has chosen a kernel for it already; the outputs for training are missing."""
    result = _fused(ctx, arguments(target, args, kwargs), name)
    return result, *[None] * (len(target._schema.returns) - 1)


for _target in KERNELS:
    pack.add(
        _target,
        kernel,
        capability_validator=fits_kernel,
        priority=ConverterPriority.HIGH,
        supports_dynamic_shapes=True,
    )
