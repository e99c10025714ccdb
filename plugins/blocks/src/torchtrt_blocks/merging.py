"""Ways to make one element of two that may be applied in any grouping: what scans and scatters combine by."""

from __future__ import annotations

import math

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt.tensorrt import engine_dtype
from torchtrt_blocks import elementwise
from torchtrt_blocks.formulas import Formula


def neutral(kind: str, dtype: torch.dtype) -> float:
    """Returns what leaves the other operand of ``SUM``, ``PROD``, ``MAX``, ``MIN`` or ``LOGSUMEXP`` as it is."""
    if kind in ("SUM", "PROD"):
        return {"SUM": 0, "PROD": 1}[kind]
    if dtype.is_floating_point:
        return math.inf if kind == "MIN" else -math.inf
    limits = torch.iinfo(engine_dtype(dtype))
    return limits.max if kind == "MIN" else limits.min


def merge(
    ctx: ConversionContext, kind: str, first: NetworkTensor, second: NetworkTensor
) -> NetworkTensor:
    """Returns two network tensors of one dtype and rank combined; NaN where either is NaN.

    Args:
        ctx: The conversion context.
        kind: ``"SUM"``, ``"PROD"``, ``"MAX"``, ``"MIN"``, or ``"LOGSUMEXP"`` of floating-point numbers.
        first: A network tensor.
        second: A network tensor.
    """
    dtype = ctx.dtype_of(first)
    if kind == "LOGSUMEXP":
        return _log_sum(ctx, first, second)
    if kind in ("SUM", "PROD") or not dtype.is_floating_point:
        return elementwise.combine(ctx, kind, first, second)
    low, high = (second, None) if kind == "MAX" else (None, second)
    return elementwise.clamp(ctx, first, low, high, dtype)


def _log_sum(ctx: ConversionContext, first: NetworkTensor, second: NetworkTensor) -> NetworkTensor:
    """Returns ``log(exp(first) + exp(second))``, as the larger and what the smaller adds to it."""
    larger = Formula(ctx, merge(ctx, "MAX", first, second))
    distance = abs(Formula(ctx, first) - Formula(ctx, second))
    total = larger + (-distance).exp().log1p()
    # Equal infinities have no difference; nor has NaN.
    return (distance == distance).where(total, larger).tensor
