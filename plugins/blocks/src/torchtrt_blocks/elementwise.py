"""Arithmetic, comparison, logic and selection between tensors that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, add, is_network_tensor
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import types, unary


def combine(
    ctx: ConversionContext, kind: str, first: NetworkTensor, second: NetworkTensor
) -> NetworkTensor:
    """Returns ``first <kind> second`` for two network tensors of one dtype and rank: a single layer.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ElementWiseOperation``.
        first: A network tensor.
        second: A network tensor.
    """
    return add(ctx, "elementwise", first, second, getattr(trt.ElementWiseOperation, kind))


def arithmetic(
    ctx: ConversionContext, kind: str, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns ``first <kind> second`` computed in ``dtype``: network tensors, PyTorch tensors or numbers, broadcast.

    Half precision with a number that it cannot represent is computed in float32, as PyTorch does.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ElementWiseOperation``.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype to compute in, and of the result.
    """
    scalars = [value for value in (first, second) if isinstance(value, (int, float))]
    inner = types.compute_dtype(dtype, scalars)
    left, right = types.operands(ctx, (first, second), inner)
    result = combine(ctx, kind, left, right)
    return result if inner is dtype else types.cast(ctx, result, dtype)


def compare(ctx: ConversionContext, kind: str, first: Operand, second: Operand) -> NetworkTensor:
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
    if dtype.is_floating_point and not supports(Capability.INFINITE_CONSTANTS):
        if infinity := types.infinity_of(second):
            return _compare_with_infinity(ctx, kind, first, infinity, dtype)
        if infinity := types.infinity_of(first):
            return _compare_with_infinity(ctx, _MIRRORED[kind], second, infinity, dtype)
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


_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _compare_with_infinity(
    ctx: ConversionContext, kind: str, value: Operand, infinity: float, dtype: torch.dtype
) -> NetworkTensor:
    """Returns ``value <kind> infinity``, without a constant that is infinite."""
    value = types.operand(ctx, value, dtype, types.rank_of(value))
    infinite = unary.is_infinite(ctx, value)
    side = compare(ctx, "gt" if infinity > 0 else "lt", value, 0.0)
    equal = combine(ctx, "AND", infinite, side)
    toward, away = ("lt", "gt") if infinity > 0 else ("gt", "lt")
    if kind == "ne":
        return unary.apply(ctx, "NOT", equal)
    if kind == away:
        return combine(ctx, "LESS", value, value)  # nothing is beyond
    if kind not in (toward, toward.replace("t", "e")):
        return equal
    number = combine(ctx, "EQUAL", value, value)
    if kind != toward:
        return number
    opposite = unary.apply(ctx, "NOT", equal)
    return combine(ctx, "AND", number, opposite)


def logical(ctx: ConversionContext, kind: str, first: Operand, second: Operand) -> NetworkTensor:
    """Returns ``AND``, ``OR`` or ``XOR`` of two values taken as booleans.

    Args:
        ctx: The conversion context.
        kind: ``"AND"``, ``"OR"`` or ``"XOR"``.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number.
    """
    left, right = types.operands(ctx, (first, second), torch.bool)
    return combine(ctx, kind, left, right)


def divide(
    ctx: ConversionContext,
    first: Operand,
    second: Operand,
    dtype: torch.dtype,
    rounding: str | None,
) -> NetworkTensor:
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
    if types.is_integer(dtype) and rounding == "floor":
        return floor_divide(ctx, first, second, dtype)
    if types.is_integer(dtype):
        return arithmetic(ctx, "DIV", first, second, dtype)
    # Half precision would round the quotient up to an integer before it is floored.
    inner = types.accumulation_dtype(dtype)
    first, second = types.upcast(ctx, first, inner), types.upcast(ctx, second, inner)
    quotient = arithmetic(ctx, "DIV", first, second, inner)
    whole = unary.truncate if rounding == "trunc" else unary.floor
    return types.cast(ctx, whole(ctx, quotient), dtype)


def floor_divide(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the quotient of integers, rounded down; not by FLOOR_DIV, which overflows near the smallest in 8.6.

    Args:
        ctx: The conversion context.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number.
        dtype: The integer dtype of the result.
    """
    if supports(Capability.INTEGER_REDUCTION):
        return arithmetic(ctx, "FLOOR_DIV", first, second, dtype)
    left, right = types.operands(ctx, (first, second), dtype)
    quotient = combine(ctx, "DIV", left, right)
    rest = combine(ctx, "SUB", left, combine(ctx, "PROD", quotient, right))
    is_uneven = compare(ctx, "ne", rest, 0)
    apart = logical(ctx, "XOR", compare(ctx, "lt", rest, 0), compare(ctx, "lt", right, 0))
    lower = types.cast(ctx, combine(ctx, "AND", is_uneven, apart), dtype)
    return combine(ctx, "SUB", quotient, lower)


def remainder(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype, rounding: str
) -> NetworkTensor:
    """Returns the remainder: with the divisor's sign for ``"floor"``, the dividend's for ``"trunc"``.

    Exact for integers, and for floating point where the divisor is a power of two.

    Args:
        ctx: The conversion context.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype of the result.
        rounding: ``"floor"`` or ``"trunc"``.
    """
    left, right = types.operands(ctx, (first, second), dtype)
    quotient = divide(ctx, left, right, dtype, rounding)
    whole = combine(ctx, "PROD", quotient, right)
    return combine(ctx, "SUB", left, whole)


def select(
    ctx: ConversionContext,
    condition: NetworkTensor | torch.Tensor,
    chosen: Operand,
    other: Operand,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns ``chosen`` where ``condition`` is true and ``other`` elsewhere, as ``dtype``; all three broadcast.

    Args:
        ctx: The conversion context.
        condition: A bool network tensor or PyTorch tensor.
        chosen: A network tensor, a PyTorch tensor or a number.
        other: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype of the result.
    """
    rank = types.common_rank((condition, chosen, other))
    computed = is_network_tensor(condition)
    condition = types.operand(ctx, condition, torch.bool, rank)
    if not supports(Capability.INFINITE_CONSTANTS) and not computed and dtype.is_floating_point:
        chosen, other = types.operands(ctx, (chosen, other), dtype)
    elif not supports(Capability.INFINITE_CONSTANTS):
        if infinity := types.infinity_of(chosen):
            chosen = _endless(ctx, condition, infinity, dtype)
        if infinity := types.infinity_of(other):
            opposite = unary.apply(ctx, "NOT", condition)
            other = _endless(ctx, opposite, infinity, dtype)
    return add(
        ctx,
        "select",
        condition,
        types.operand(ctx, chosen, dtype, rank),
        types.operand(ctx, other, dtype, rank),
    )


def _endless(
    ctx: ConversionContext, condition: NetworkTensor, infinity: float, dtype: torch.dtype
) -> NetworkTensor:
    """Returns an infinity where ``condition`` is true and 0 elsewhere: the logarithm of 0 or 1, no constant."""
    opposite = unary.apply(ctx, "NOT", condition)
    logarithm = unary.apply(ctx, "LOG", types.cast(ctx, opposite, dtype))
    return logarithm if infinity < 0 else unary.negative(ctx, logarithm)


def clamp(
    ctx: ConversionContext,
    value: Operand,
    low: Operand | None,
    high: Operand | None,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns ``value`` limited to ``low`` and ``high`` (either may be ``None``); ``high`` wins where they cross.

    NaN in the value or in a limit makes the result NaN.

    Args:
        ctx: The conversion context.
        value: A network tensor, a PyTorch tensor or a number.
        low: The lower limit: a network tensor, a PyTorch tensor, a number or ``None``.
        high: The upper limit, likewise.
        dtype: The dtype of the result.
    """
    if dtype is torch.bool:  # booleans are limited as numbers
        return types.cast(ctx, clamp(ctx, value, low, high, torch.int32), dtype)
    for limit, kind in ((low, "MAX"), (high, "MIN")):
        if limit is not None:
            limited = _limit if dtype.is_floating_point else arithmetic
            value = limited(ctx, kind, value, limit, dtype)
    if is_network_tensor(value):
        return value
    return types.operand(ctx, value, dtype, types.rank_of(value))


def _limit(
    ctx: ConversionContext, kind: str, value: Operand, limit: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the larger or the smaller of each pair of elements (``MAX`` or ``MIN``), and NaN where either is NaN."""
    # Not by MAX and MIN: where one operand is NaN, TensorRT returns the other in one kernel and NaN in the next.
    inner = types.compute_dtype(dtype, [limit] if isinstance(limit, (int, float)) else [])
    rank = types.common_rank((value, limit))
    value = types.operand(ctx, value, inner, rank)
    if types.infinity_of(limit) is None:
        limit = types.operand(ctx, limit, inner, rank)
    kept = compare(ctx, "lt" if kind == "MAX" else "gt", limit, value)
    nan = unary.is_nan(ctx, value)
    kept = combine(ctx, "OR", kept, nan)
    result = select(ctx, kept, value, limit, inner)
    return result if inner is dtype else types.cast(ctx, result, dtype)


def chain(ctx: ConversionContext, kind: str, tensors: Sequence[NetworkTensor]) -> NetworkTensor:
    """Returns ``tensors`` combined from left to right; all of one dtype and rank.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ElementWiseOperation``.
        tensors: Network tensors of one dtype and rank, at least one.
    """
    result = tensors[0]
    for tensor in tensors[1:]:
        result = combine(ctx, kind, result, tensor)
    return result
