"""Layers that TensorRT's versions spell differently."""

from __future__ import annotations

from typing import Any

from torchtrt.conversion import NetworkTensor
from torchtrt.tensorrt import Capability, supports, trt


def add_rotary_embedding(
    network: Any, x: NetworkTensor, cos: NetworkTensor, sin: NetworkTensor, interleaved: bool
) -> NetworkTensor:
    """Returns rotated features.

    Args:
        network: A network of a TensorRT with the capability ``ROTARY_EMBEDDING``.
        x: ``(batch, heads, length, width)``, floating point.
        cos: ``(batch, length, width / 2)``, of the same dtype.
        sin: Likewise.
        interleaved: Whether the features of a pair are neighbors.
    """
    width = 0  # all features
    layer = network.add_rotary_embedding(x, cos, sin, interleaved, width)
    result: NetworkTensor = layer.get_output(0)
    return result


def add_attention(
    network: Any,
    query: NetworkTensor,
    key: NetworkTensor,
    value: NetworkTensor,
    causal: bool,
    mask: NetworkTensor | None = None,
) -> NetworkTensor:
    """Returns fused attention. It does not scale: scale the query before.

    Args:
        network: A network of a TensorRT with the capability ``ATTENTION``.
        query: ``(N, heads, length, depth)``, floating point.
        key: ``(N, key heads, key length, depth)``; the number of its heads divides the query's.
        value: Like ``key``.
        causal: Position i attends to positions up to i.
        mask: None, or a tensor that broadcasts to ``(N, heads, length, key length)``, of booleans (true attends) or
            of the query's dtype (added). Not with ``causal``.
    """
    normalization = trt.AttentionNormalizationOp.SOFTMAX
    if supports(Capability.ATTENTION_V2):
        kind = trt.CausalMaskKind.UPPER_LEFT if causal else trt.CausalMaskKind.NONE
        attention = network.add_attention_v2(query, key, value, normalization, kind)
    else:
        attention = network.add_attention(query, key, value, normalization, causal)
    if mask is not None:
        attention.mask = mask
    attention.decomposable = True  # build from ordinary layers where there is no fused kernel
    result: NetworkTensor = attention.get_output(0)
    return result
