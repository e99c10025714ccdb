"""Ways to make one element of two that may be applied in any grouping: what scans and scatters combine by."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import elementwise, types, unary


def neutral(kind: str, dtype: torch.dtype) -> float:
    """Returns what leaves the other operand of ``SUM``, ``PROD``, ``MAX``, ``MIN`` or ``LOGSUMEXP`` as it is."""
    if kind in ("SUM", "PROD"):
        return {"SUM": 0, "PROD": 1}[kind]
    if dtype.is_floating_point:
        return math.inf if kind == "MIN" else -math.inf
    limits = torch.iinfo(types.network_type(dtype))
    return limits.max if kind == "MIN" else limits.min


def merge(ctx: Any, kind: str, first: Any, second: Any, name: str) -> Any:
    """Returns two network tensors of one dtype and rank combined; not a number where either is none.

    Args:
        ctx: The conversion context.
        kind: ``"SUM"``, ``"PROD"``, ``"MAX"``, ``"MIN"``, or ``"LOGSUMEXP"`` of floating-point numbers.
        first: A network tensor.
        second: A network tensor.
        name: The prefix for the names of layers.
    """
    dtype = ctx.dtype_of(first)
    if kind == "LOGSUMEXP":
        return _log_sum(ctx, first, second, name)
    if kind in ("SUM", "PROD") or not dtype.is_floating_point:
        return elementwise.combine(ctx, kind, first, second, name)
    # TensorRT returns the second operand where the first is not a number.
    chosen = elementwise.combine(ctx, kind, first, second, name + "/extreme")
    number = elementwise.combine(ctx, "EQUAL", first, first, name + "/number")
    return elementwise.select(ctx, number, chosen, first, dtype, name)


def _log_sum(ctx: Any, first: Any, second: Any, name: str) -> Any:
    """Returns ``log(exp(first) + exp(second))``, as the larger and what the smaller adds to it."""
    dtype = ctx.dtype_of(first)
    larger = merge(ctx, "MAX", first, second, name + "/larger")
    difference = elementwise.combine(ctx, "SUB", first, second, name + "/difference")
    distance = unary.apply(ctx, "ABS", difference, name + "/distance")
    ratio = unary.apply(ctx, "EXP", unary.negative(ctx, distance, name + "/less"), name + "/ratio")
    more = unary.log1p(ctx, ratio, name + "/more")
    total = elementwise.combine(ctx, "SUM", larger, more, name + "/total")
    # Equal infinities have no difference; nor has a number that is none.
    same = elementwise.combine(ctx, "EQUAL", distance, distance, name + "/finite")
    return elementwise.select(ctx, same, total, larger, dtype, name)
