"""Attention by its formula, for settings that ask for it."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.decomposition(aten.scaled_dot_product_attention.default)
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> torch.Tensor:
    """Computes attention by products and a softmax. PyTorch would choose a kernel for the device, which is one op."""
    formula = aten._scaled_dot_product_attention_math.default.decompose
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(
            attn_mask.logical_not(), float("-inf")
        )
    result: torch.Tensor = formula(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]
    return result
