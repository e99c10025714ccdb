"""Attention, as matrix products around a softmax."""

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
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks import (
    creation,
    elementwise,
    matmul,
    reduction,
    shape,
    sizes,
    softmax,
    types,
)

aten = torch.ops.aten

WHOLE = aten.scaled_dot_product_attention.default
KERNELS = (
    aten._scaled_dot_product_attention_math.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_fused_attention_overrideable.default,
)
"""The ops of attention on one device or another. They have further outputs, for training."""


def unlike_attention(node: Node) -> str | None:
    """Returns a reason if a further output of a kernel is read, or if its mask is not a mask; else ``None``."""
    mask = value_of(mask_of(arguments_of(node)))
    if mask is not None and mask.dtype is torch.bool:
        return "the kernels of attention add masks, and this one holds booleans"
    if types.reads_first_only(node):
        return None
    return "outputs of attention that are for training have no TensorRT equivalent"


def mask_of(op: Any) -> Any:
    """Returns the mask among an attention op's arguments, or ``None``."""
    return getattr(op, "attn_mask", getattr(op, "attn_bias", None))


def operands(
    ctx: ConversionContext,
    query: NetworkTensor | torch.Tensor,
    key: NetworkTensor | torch.Tensor,
    value: NetworkTensor | torch.Tensor,
) -> list[NetworkTensor]:
    """Returns query, keys and values of the attention in conversion, in the dtype of its result.

    Args:
        ctx: The conversion context.
        query: A network or PyTorch tensor.
        key: Likewise.
        value: Likewise.
    """
    result = types.output_value(ctx)
    dtype = (result[0] if isinstance(result, tuple) else result).dtype
    return [types.operand(ctx, part, dtype, types.rank_of(part)) for part in (query, key, value)]


def added_mask(
    ctx: ConversionContext, mask: NetworkTensor | torch.Tensor | None, dtype: torch.dtype
) -> NetworkTensor | torch.Tensor | None:
    """Returns a mask that is added to scores of a dtype. Booleans, and constants, stay as they are.

    Args:
        ctx: The conversion context.
        mask: ``None``, or a network or PyTorch tensor.
        dtype: The dtype of the scores.
    """
    if is_network_tensor(mask) and ctx.dtype_of(mask) is not torch.bool:
        return types.cast(ctx, mask, dtype)
    return mask


def attention(
    ctx: ConversionContext,
    query: NetworkTensor,
    key: NetworkTensor,
    value: NetworkTensor,
    mask: NetworkTensor | torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> NetworkTensor:
    """Returns ``softmax(query @ key.T * scale + mask) @ value``.

    Args:
        ctx: The conversion context.
        query: A floating-point network tensor of shape ``(..., queries, width)``.
        key: A network tensor of shape ``(..., keys, width)``; its batch dimensions broadcast.
        value: A network tensor of shape ``(..., keys, width of the result)``.
        mask: ``None``, or a network or PyTorch tensor that broadcasts to ``(..., queries, keys)``:
            bool (true takes part) or floating point (added).
        is_causal: Whether query ``i`` reads keys up to ``i`` only, in addition to the mask.
        scale: The factor; 1 over the root of the width without it.

    A query whose mask leaves no key has a result of 0, as in PyTorch. Where the settings ask for sums in float32, the
    scores and their softmax are in float32, because scores may exceed the range of float16.
    """
    result_dtype = ctx.dtype_of(query)
    is_wide = matmul.is_summed_wide(ctx, query, key)
    if is_wide:
        query, key = (types.cast(ctx, operand, torch.float32) for operand in (query, key))
    has_mask = is_causal or mask is not None
    by_heads = has_mask and _is_slow_with_mask(ctx, query, key, value)
    dtype = ctx.dtype_of(query)
    mask = added_mask(ctx, mask, dtype)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    # TensorRT 8.6 computes attention with a mask in one kernel only where the products are scaled, and half precision
    # keeps them only where a factor is scaled down before: see the pass attention_scales.
    behind = 1.0
    if has_mask and not supports(Capability.FREE_FORM_ATTENTION):
        behind = scale if scale > 1 else 2.0
    if is_wide:
        behind = scale  # TensorRT takes casts right in front of a product for its sum in float32
    if scale != behind:
        query = elementwise.arithmetic(ctx, "PROD", query, scale / behind, dtype)
    multiply: Any = matmul.multiply_heads if by_heads else matmul.multiply
    scores = multiply(ctx, query, key, transpose_second=True)
    if behind != 1:
        scores = elementwise.arithmetic(ctx, "PROD", scores, behind, dtype)
    keep = None
    if is_causal and mask is None:
        seen = causal_mask(ctx, query, key)
        scores = _hide(ctx, seen, scores, dtype, torch.finfo(dtype).min)
    elif mask is not None:
        mask = with_causal(ctx, query, key, mask) if is_causal else mask
        keep = seeing_queries(ctx, mask)
        if mask_dtype(ctx, mask) is torch.bool:
            scores = _hide(ctx, mask, scores, dtype, _lowest(dtype))
        else:
            bounded = elementwise.clamp(ctx, mask, _lowest(dtype), None, dtype)
            scores = elementwise.arithmetic(ctx, "SUM", scores, bounded, dtype)
    weights = types.cast(ctx, softmax.softmax(ctx, scores, -1), result_dtype)
    # Where the scores are transposed, this product need not be.
    result = multiply(ctx, weights, value, may_transpose=False)
    # Not a product: in float16, whose lowest is less low, what sees nothing may have become NaN.
    return result if keep is None else elementwise.select(ctx, keep, result, 0.0, result_dtype)


def _is_slow_with_mask(ctx: ConversionContext, *operands: NetworkTensor) -> bool:
    """Returns whether the batch of attention varies, and TensorRT is slow where a mask is added to its products."""
    batches = [ctx.symbolic_shape(operand)[:-2] for operand in operands]
    varies = len(operands[0].shape) == 4 and operands[0].shape[0] == -1
    are_same = all(
        len(batch) == 2 and sizes.have_same_sizes(batch, batches[0]) for batch in batches
    )
    return varies and are_same and not supports(Capability.SEVERAL_VARYING_SIZES)


def mask_dtype(ctx: ConversionContext, mask: NetworkTensor | torch.Tensor) -> torch.dtype:
    """Returns the dtype of a mask.

    Args:
        ctx: The conversion context.
        mask: A network or PyTorch tensor.
    """
    return ctx.dtype_of(mask) if is_network_tensor(mask) else mask.dtype


def causal_mask(
    ctx: ConversionContext, query: NetworkTensor, key: NetworkTensor
) -> NetworkTensor | torch.Tensor:
    """Returns booleans ``(queries, keys)``, true where query ``i`` sees key ``j``: ``j <= i``.

    They are a PyTorch tensor where the sizes are fixed, and a network tensor elsewhere.

    Args:
        ctx: The conversion context.
        query: A network tensor ``(..., queries, width)``.
        key: A network tensor ``(..., keys, width)``.
    """
    rows, columns = sizes.size_of(ctx, query, -2), sizes.size_of(ctx, key, -2)
    if isinstance(rows, int) and isinstance(columns, int):
        return torch.ones(rows, columns, dtype=torch.bool).tril()
    return creation.triangle_mask(ctx, rows, columns, 0, True)


def with_causal(
    ctx: ConversionContext,
    query: NetworkTensor,
    key: NetworkTensor,
    mask: NetworkTensor | torch.Tensor,
) -> NetworkTensor | torch.Tensor:
    """Returns a mask that hides what another mask hides, and from each query the keys behind it.

    Args:
        ctx: The conversion context.
        query: A network tensor ``(..., queries, width)``.
        key: A network tensor ``(..., keys, width)``.
        mask: A network or PyTorch tensor that broadcasts to ``(..., queries, keys)``: bool, or floating point.
    """
    seen = causal_mask(ctx, query, key)
    if isinstance(mask, torch.Tensor) and isinstance(seen, torch.Tensor):
        mask = mask.cpu()
        return seen & mask if mask.dtype is torch.bool else mask.masked_fill(~seen, -math.inf)
    dtype = mask_dtype(ctx, mask)
    if dtype is torch.bool:
        return elementwise.logical(ctx, "AND", seen, mask)
    return elementwise.select(ctx, seen, mask, -math.inf, dtype)


def seeing_queries(
    ctx: ConversionContext, mask: NetworkTensor | torch.Tensor
) -> NetworkTensor | torch.Tensor | None:
    """Returns which queries see a key: booleans ``(..., queries, 1)``, or ``None`` if all are known to see one.

    Args:
        ctx: The conversion context.
        mask: A network or PyTorch tensor that broadcasts to ``(..., queries, keys)``: bool, or floating point.
    """
    is_bool = mask_dtype(ctx, mask) is torch.bool
    if not is_network_tensor(mask):
        kept = (mask if is_bool else mask != -math.inf).any(-1, keepdim=True)
        return None if bool(kept.all()) else kept
    if is_bool:
        return reduction.any_true(ctx, mask, [-1], True) if len(mask.shape) else mask
    largest = reduction.reduce(ctx, "MAX", mask, [-1], True)
    return elementwise.compare(ctx, "gt", largest, -math.inf)


def _lowest(dtype: torch.dtype) -> float:
    """Returns a number that softmax makes 0 of, yet finite: a query that sees nothing but it has weights."""
    return torch.finfo(dtype).min / 2


def _hide(
    ctx: ConversionContext,
    seen: NetworkTensor | torch.Tensor,
    scores: NetworkTensor,
    dtype: torch.dtype,
    lowest: float,
) -> NetworkTensor:
    """Returns the scores, with a low number for those that are not seen.

    TensorRT 8.6 computes attention in one kernel where it is added, and not where it is selected.
    """
    if supports(Capability.FREE_FORM_ATTENTION):
        return elementwise.select(ctx, seen, scores, lowest, dtype)
    hidden: NetworkTensor | torch.Tensor
    if is_network_tensor(seen):
        hidden = elementwise.select(ctx, seen, 0.0, lowest, dtype)
    else:
        hidden = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen.cpu(), lowest)
    return elementwise.arithmetic(ctx, "SUM", scores, hidden, dtype)


def repeat_heads(ctx: ConversionContext, tensor: NetworkTensor, times: int) -> NetworkTensor:
    """Returns ``(batch, heads, length, width)`` with each head ``times`` times in a row.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of shape ``(batch, heads, length, width)``.
        times: How often each head occurs.
    """
    if times == 1:
        return tensor
    outline = sizes.lazy_shape(ctx, tensor)
    wide = shape.unsqueeze(ctx, tensor, [2])
    spread = shape.expand(ctx, wide, [-1, -1, times, -1, -1])
    heads = sizes.combine(ctx, "PROD", sizes.resolve(ctx, outline[1]), times)
    merged = [outline[0], heads, *outline[2:]]
    source = [sizes.symbol_of(ctx, size) for size in (*outline[:2], times, *outline[2:])]
    return shape.reshape(ctx, spread, merged, source=source)
