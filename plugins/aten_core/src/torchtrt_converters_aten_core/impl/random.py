"""Random numbers, drawn anew in every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import add_fill
from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types
from torchtrt_converters_aten_core.impl.sizes import Size

_BELOW_ONE = {torch.float32: 1 - 2.0**-24, torch.float16: 1 - 2.0**-11, torch.bfloat16: 1 - 2.0**-8}
"""The greatest number below 1 of a dtype: TensorRT's uniform numbers may reach their upper bound."""


def uniform(ctx: Any, extents: Sequence[Size], dtype: torch.dtype) -> Any:
    """Returns numbers from 0 to below 1, all equally likely.

    Args:
        ctx: The conversion context.
        extents: The sizes: numbers or 0-d int32 network tensors.
        dtype: The floating-point dtype of the result; they are drawn in float32.
    """
    drawn = _draw(ctx, "RANDOM_UNIFORM", extents, 0.0, _BELOW_ONE[dtype])
    return types.cast(ctx, drawn, dtype)


def normal(ctx: Any, extents: Sequence[Size], dtype: torch.dtype) -> Any:
    """Returns numbers of the standard normal distribution; the arguments are :func:`uniform`'s."""
    drawn = _draw(ctx, "RANDOM_NORMAL", extents, 0.0, 1.0)
    return types.cast(ctx, drawn, dtype)


def _draw(ctx: Any, kind: str, extents: Sequence[Size], alpha: float, beta: float) -> Any:
    operation = getattr(trt.FillOperation, kind)
    if not extents:
        single = add_fill(ctx.net, (1,), operation, torch.float32, alpha, beta)
        return shape.squeeze(ctx, single, [0])
    if sizes.is_static(extents):
        return add_fill(ctx.net, tuple(extents), operation, torch.float32, alpha, beta)
    return add_fill(
        ctx.net,
        sizes.to_tensor(ctx, extents),
        operation,
        torch.float32,
        types.operand(ctx, alpha, torch.float32, 0),
        types.operand(ctx, beta, torch.float32, 0),
    )


def chance(ctx: Any, extents: Sequence[Size], probability: Any) -> Any:
    """Returns a bool tensor: true with a probability, which is a number or a tensor that broadcasts to the sizes."""
    drawn = uniform(ctx, extents, torch.float32)
    return elementwise.compare(ctx, "lt", drawn, probability)


def integers(ctx: Any, extents: Sequence[Size], low: int, high: int, dtype: torch.dtype) -> Any:
    """Returns whole numbers from ``low`` to below ``high``, at most 2**24 of them, as ``dtype``."""
    drawn = uniform(ctx, extents, torch.float32)
    scaled = elementwise.arithmetic(ctx, "PROD", drawn, float(high - low), torch.float32)
    inner = dtype if types.is_integer(dtype) else torch.int32
    whole = types.cast(ctx, scaled, inner)  # casts cut toward zero
    number = elementwise.arithmetic(ctx, "SUM", whole, low, inner)
    return types.cast(ctx, number, dtype)


def dropout(
    ctx: Any, tensor: Any, extents: Sequence[Size], probability: float, dtype: torch.dtype
) -> Any:
    """Returns ``tensor`` with elements set to zero with a probability, the others scaled to keep the mean.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        extents: The sizes of what is drawn: the tensor's, or such that it broadcasts to the tensor.
        probability: From 0 to 1.
        dtype: The dtype of the result.
    """
    kept = 1.0 - probability
    if kept == 0:
        return elementwise.arithmetic(ctx, "PROD", tensor, 0.0, dtype)
    stays = chance(ctx, extents, kept)
    factor = elementwise.select(ctx, stays, 1 / kept, 0.0, dtype)
    return elementwise.arithmetic(ctx, "PROD", tensor, factor, dtype)


_ALPHA = 1.7580993408473766
"""``-alpha * scale`` of SELU: what alpha dropout puts in place of an element (Klambauer et al., 2017)."""


def alpha_dropout(
    ctx: Any, tensor: Any, extents: Sequence[Size], probability: float, dtype: torch.dtype
) -> Any:
    """Returns ``tensor`` with elements set to SELU's least value, then scaled and shifted to keep mean and variance.

    The arguments are :func:`dropout`'s.
    """
    if probability == 1:
        return elementwise.arithmetic(ctx, "PROD", tensor, 0.0, dtype)
    scale = ((_ALPHA**2 * probability + 1) * (1 - probability)) ** -0.5
    stays = chance(ctx, extents, 1.0 - probability)
    factor = elementwise.select(ctx, stays, scale, 0.0, dtype)
    put = _ALPHA * scale * probability
    shift = elementwise.select(ctx, stays, put, put - _ALPHA * scale, dtype)
    scaled = elementwise.arithmetic(ctx, "PROD", tensor, factor, dtype)
    return elementwise.arithmetic(ctx, "SUM", scaled, shift, dtype)
