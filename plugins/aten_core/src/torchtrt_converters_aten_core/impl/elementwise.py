"""Arithmetic, comparison, logic and selection between tensors that broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import add
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import types, unary


def combine(ctx: Any, kind: str, first: Any, second: Any) -> Any:
    """Returns ``first <kind> second`` for two network tensors of one dtype and rank: a single layer.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ElementWiseOperation``.
        first: A network tensor.
        second: A network tensor.
    """
    return add(ctx, "elementwise", first, second, getattr(trt.ElementWiseOperation, kind))


def arithmetic(ctx: Any, kind: str, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns ``first <kind> second`` computed in ``dtype``: network tensors, PyTorch tensors or numbers, broadcast.

    Half precision with a number that it cannot represent is computed in float32, as PyTorch does.
    """
    scalars = [value for value in (first, second) if isinstance(value, (int, float))]
    inner = types.compute_dtype(dtype, scalars)
    left, right = types.operands(ctx, (first, second), inner)
    return types.cast(ctx, combine(ctx, kind, left, right), dtype)


def compare(ctx: Any, kind: str, first: Any, second: Any) -> Any:
    """Returns a bool tensor: ``first <kind> second`` in the dtype that PyTorch compares in.

    Args:
        ctx: The conversion context.
        kind: ``"eq"``, ``"ne"``, ``"lt"``, ``"le"``, ``"gt"`` or ``"ge"``.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number.
    """
    dtype = types.result_type(ctx, first, second)
    scalars = [value for value in (first, second) if isinstance(value, (int, float))]
    dtype = types.compute_dtype(dtype, scalars)
    if dtype is torch.bool:
        dtype = torch.int32  # TensorRT orders no booleans
    left, right = types.operands(ctx, (first, second), dtype)
    if kind in ("eq", "lt", "gt"):
        kinds = {"eq": "EQUAL", "lt": "LESS", "gt": "GREATER"}
        return combine(ctx, kinds[kind], left, right)
    if kind == "ne":
        equal = combine(ctx, "EQUAL", left, right)
        return unary.apply(ctx, "NOT", equal)
    strict = combine(ctx, "LESS" if kind == "le" else "GREATER", left, right)
    equal = combine(ctx, "EQUAL", left, right)
    return combine(ctx, "OR", strict, equal)


def logical(ctx: Any, kind: str, first: Any, second: Any) -> Any:
    """Returns ``AND``, ``OR`` or ``XOR`` of two values taken as booleans."""
    left, right = types.operands(ctx, (first, second), torch.bool)
    return combine(ctx, kind, left, right)


def divide(ctx: Any, first: Any, second: Any, dtype: torch.dtype, rounding: str | None) -> Any:
    """Returns ``first / second`` in ``dtype``.

    Args:
        ctx: The conversion context.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype to compute in; floating point without rounding.
        rounding: ``None``, ``"trunc"`` or ``"floor"``. Integers are divided exactly.
    """
    if rounding is None:
        return arithmetic(ctx, "DIV", first, second, dtype)
    if types.is_integer(dtype):
        return arithmetic(ctx, "DIV" if rounding == "trunc" else "FLOOR_DIV", first, second, dtype)
    # Half precision would round the quotient up to an integer before it is floored.
    inner = torch.float32 if dtype in types.HALF_TYPES else dtype
    quotient = arithmetic(ctx, "DIV", first, second, inner)
    whole = unary.truncate if rounding == "trunc" else unary.floor
    return types.cast(ctx, whole(ctx, quotient), dtype)


def remainder(ctx: Any, first: Any, second: Any, dtype: torch.dtype, rounding: str) -> Any:
    """Returns the remainder: with the divisor's sign for ``"floor"``, the dividend's for ``"trunc"``.

    Exact for integers, and for floating point where the divisor is a power of two.
    """
    left, right = types.operands(ctx, (first, second), dtype)
    quotient = divide(ctx, left, right, dtype, rounding)
    whole = combine(ctx, "PROD", quotient, right)
    return combine(ctx, "SUB", left, whole)


def select(ctx: Any, condition: Any, chosen: Any, other: Any, dtype: torch.dtype) -> Any:
    """Returns ``chosen`` where ``condition`` is true and ``other`` elsewhere, as ``dtype``; all three broadcast."""
    rank = types.common_rank((condition, chosen, other))
    chosen, other = _spread_infinity(chosen, other), _spread_infinity(other, chosen)
    return add(
        ctx,
        "select",
        types.operand(ctx, condition, torch.bool, rank),
        types.operand(ctx, chosen, dtype, rank),
        types.operand(ctx, other, dtype, rank),
    )


def _spread_infinity(value: Any, beside: Any) -> Any:
    """Returns an infinite number or one-element tensor as a row as wide as the tensor beside it, where that is known.

    TensorRT 8.6 makes -1e38 of a single infinite element that it selects, but keeps a row of them.
    """
    shape = getattr(beside, "shape", ())
    number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
    if isinstance(number, float) and math.isinf(number) and len(shape) and shape[-1] > 1:
        return torch.full((*getattr(value, "shape", ())[:-1], shape[-1]), number)
    return value


def clamp(ctx: Any, value: Any, low: Any, high: Any, dtype: torch.dtype) -> Any:
    """Returns ``value`` limited to ``low`` and ``high`` (either may be ``None``); ``high`` wins where they cross."""
    if dtype is torch.bool:  # booleans are limited as numbers
        return types.cast(ctx, clamp(ctx, value, low, high, torch.int32), dtype)
    # The bound comes first: TensorRT's MAX and MIN return the second operand where one is NaN.
    if low is not None:
        value = arithmetic(ctx, "MAX", low, value, dtype)
    if high is not None:
        value = arithmetic(ctx, "MIN", high, value, dtype)
    return value


def chain(ctx: Any, kind: str, tensors: Sequence[Any]) -> Any:
    """Returns ``tensors`` combined from left to right; all of one dtype and rank."""
    result = tensors[0]
    for tensor in tensors[1:]:
        result = combine(ctx, kind, result, tensor)
    return result
