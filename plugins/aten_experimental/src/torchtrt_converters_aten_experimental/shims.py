"""Fused attention, which TensorRT's versions spell differently."""

from __future__ import annotations

from typing import Any

from torchtrt.tensorrt import Capability, supports, trt


def add_attention(network: Any, query: Any, key: Any, value: Any, causal: bool) -> Any:
    """Returns fused attention without a mask. It does not scale: scale the query before.

    Args:
        network: A network of a TensorRT with the capability ``ATTENTION``.
        query: ``(N, heads, length, depth)``, floating point.
        key: ``(N, heads, key length, depth)``.
        value: Like ``key``.
        causal: Position i attends to positions up to i.
    """
    normalization = trt.AttentionNormalizationOp.SOFTMAX
    if supports(Capability.ATTENTION_V2):
        kind = trt.CausalMaskKind.UPPER_LEFT if causal else trt.CausalMaskKind.NONE
        attention = network.add_attention_v2(query, key, value, normalization, kind)
    else:
        attention = network.add_attention(query, key, value, normalization, causal)
    attention.decomposable = True  # build from ordinary layers where there is no fused kernel
    return attention.get_output(0)
