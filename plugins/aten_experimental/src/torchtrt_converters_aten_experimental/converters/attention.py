"""Scaled-dot-product attention as TensorRT's own fused operator, where the TensorRT in use has it.

These converters have HIGH priority: they are asked before aten_core's, which build the same from
matrix products and a softmax, and step aside with a reason where they do not apply.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt.registry import ConverterPriority
from torchtrt.tensorrt import Capability
from torchtrt_converters_aten_core.impl import attention, elementwise
from torchtrt_converters_aten_experimental import pack
from torchtrt_converters_aten_experimental.shims import add_attention

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def unlike_fused_attention(node: Node) -> str | None:
    """Says what ``IAttention`` does not compute exactly as PyTorch does, or returns ``None``."""
    # Imported here because sympy, which it brings, takes longer to import than all packs together.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    op = arguments_of(node)
    query, key, value = (value_of(part) for part in (op.query, op.key, op.value))
    if op.dropout_p:
        return "dropout in attention"
    if any(tensor.dim() != 4 for tensor in (query, key, value)):
        return "fused attention takes tensors of four dimensions"
    if query.dtype not in _DTYPES:
        return f"fused attention does not take {query.dtype}"
    if op.is_causal and not statically_known_true(query.shape[2] == key.shape[2]):
        return "a causal mask over queries and keys of different lengths"
    if attention.mask_of(op) is not None:
        return (
            "a mask: PyTorch gives 0 to a query that attends to nothing, and what fused attention gives is not "
            "documented"
        )
    if getattr(op, "enable_gqa", False):
        return "fewer heads of keys than of queries, which fused attention does not document"
    return None


@pack.converter(
    attention.WHOLE,
    unless=unlike_fused_attention,
    requires=Capability.ATTENTION,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
def scaled_dot_product_attention(ctx, query, key, value, is_causal, scale, **_):
    """``softmax(query @ key.T * scale) @ value`` in one operator, causal or not."""
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scaled = elementwise.arithmetic(ctx, "PROD", query, factor, ctx.dtype_of(query))
    return add_attention(ctx.net, scaled, key, value, is_causal)


@pack.converter(
    *attention.KERNELS,
    unless=(attention.unlike_attention, unlike_fused_attention),
    requires=Capability.ATTENTION,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
def sdpa_kernel(ctx, **arguments):
    """The same where PyTorch has chosen a kernel for it already; the outputs for training are missing."""
    result = scaled_dot_product_attention(ctx, **arguments)
    return result, *[None] * (len(ctx.node.target._schema.returns) - 1)
