"""Attention, as matrix products around a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt.conversion import is_network_tensor
from torchtrt_converters_aten_core.impl import (
    creation,
    elementwise,
    matmul,
    reduction,
    shape,
    sizes,
    softmax,
)


def attention(
    ctx: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    is_causal: bool,
    scale: float | None,
    name: str,
) -> Any:
    """Returns ``softmax(query @ key.T * scale + mask) @ value``.

    Args:
        ctx: The conversion context.
        query: A floating-point network tensor of shape ``(..., queries, width)``.
        key: A network tensor of shape ``(..., keys, width)``; its batch dimensions broadcast.
        value: A network tensor of shape ``(..., keys, width of the result)``.
        mask: ``None``, or a network or PyTorch tensor that broadcasts to ``(..., queries, keys)``:
            bool (true takes part) or floating point (added).
        is_causal: Whether query ``i`` sees keys up to ``i`` only.
        scale: The factor; 1 over the root of the width without it.
        name: The name of the last layer.

    A query whose mask leaves no key has a result of 0, as in PyTorch.
    """
    dtype = ctx.dtype_of(query)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scaled = query
    if scale != 1:
        scaled = elementwise.arithmetic(ctx, "PROD", query, scale, dtype, name + "/scaled")
    scores = matmul.multiply(ctx, scaled, key, name + "/scores", transpose_second=True)
    keep = None
    if is_causal:
        rows = sizes.size_of(ctx, query, -2, name + "/queries")
        columns = sizes.size_of(ctx, key, -2, name + "/keys")
        seen = creation.triangle_mask(ctx, rows, columns, 0, True, name + "/causal")
        scores = _hide(ctx, seen, scores, dtype, name)
    elif mask is not None and _dtype(ctx, mask) is torch.bool:
        keep = _any_key(ctx, mask, name)
        scores = _hide(ctx, mask, scores, dtype, name)
    elif mask is not None:
        keep = _any_finite(ctx, mask, name)
        bounded = elementwise.clamp(ctx, mask, _lowest(dtype), None, dtype, name + "/bounded")
        scores = elementwise.arithmetic(ctx, "SUM", scores, bounded, dtype, name + "/masked")
    weights = softmax.softmax(ctx, scores, -1, name + "/softmax")
    if keep is None:
        return matmul.multiply(ctx, weights, value, name)
    result = matmul.multiply(ctx, weights, value, name + "/weighted")
    return elementwise.arithmetic(ctx, "PROD", result, keep, dtype, name)


def _dtype(ctx: Any, mask: Any) -> torch.dtype:
    return ctx.dtype_of(mask) if is_network_tensor(mask) else mask.dtype  # type: ignore[no-any-return]


def _lowest(dtype: torch.dtype) -> float:
    """Returns a number that softmax makes 0 of, yet finite: a query that sees nothing but it has weights."""
    return torch.finfo(dtype).min / 2


def _hide(ctx: Any, seen: Any, scores: Any, dtype: torch.dtype, name: str) -> Any:
    return elementwise.select(ctx, seen, scores, _lowest(dtype), dtype, name + "/masked")


def _any_key(ctx: Any, mask: Any, name: str) -> Any:
    """Returns 1 for each query that sees a key and 0 for the others, or ``None`` if all are known to see one."""
    if not is_network_tensor(mask):
        kept = mask.any(-1, keepdim=True)
        return None if bool(kept.all()) else kept
    if not len(mask.shape):
        return mask
    return reduction.any_true(ctx, mask, [-1], True, name + "/any_key")


def _any_finite(ctx: Any, mask: Any, name: str) -> Any:
    if not is_network_tensor(mask):
        return _any_key(ctx, mask != -math.inf, name)
    largest = reduction.reduce(ctx, "MAX", mask, [-1], True, name + "/largest")
    return elementwise.compare(ctx, "gt", largest, -math.inf, name + "/any_key")


def repeat_heads(ctx: Any, tensor: Any, times: int, name: str) -> Any:
    """Returns ``(batch, heads, length, width)`` with each head ``times`` times in a row."""
    if times == 1:
        return tensor
    outline = sizes.outline(ctx, tensor)
    wide = shape.unsqueeze(ctx, tensor, [2], name + "/wide")
    spread = shape.expand(ctx, wide, [-1, -1, times, -1, -1], name + "/spread")
    merged = [outline[0], outline[1] * times, *outline[2:]]
    source = [sizes.symbol_of(ctx, size) for size in (*outline[:2], times, *outline[2:])]
    return shape.reshape(ctx, spread, merged, name, source=source)
