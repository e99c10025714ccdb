"""Bitwise operations and shifts of integers and booleans, and greatest common divisors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Operand, is_network_tensor
from torchtrt.tensorrt import Capability, engine_dtype, supports, trt
from torchtrt_blocks import (
    elementwise,
    indexing,
    shape,
    slicing,
    types,
    unary,
)
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "AND": operator.and_,
    "OR": operator.or_,
    "XOR": operator.xor,
}


def _combine(
    ctx: ConversionContext, kind: str, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor:
    """Returns ``AND``, ``OR`` or ``XOR`` of two integers, bit by bit.

    Args:
        ctx: The conversion context.
        kind: The operation.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number; the two broadcast.
        dtype: ``torch.int64`` or ``torch.int32``.
    """
    if kind == "AND" and (remainder := _low_bits(ctx, first, second, dtype)) is not None:
        return remainder
    dtype = engine_dtype(dtype)
    rank = types.common_rank((first, second))
    high, low = (
        _bytes(ctx, value, dtype, rank) for label, value in (("first", first), ("second", second))
    )
    row = elementwise.arithmetic(ctx, "PROD", high, 256, dtype)
    pair = elementwise.combine(ctx, "SUM", row, low)
    numbers = torch.arange(256, dtype=dtype)
    results = OPERATIONS[kind](numbers.unsqueeze(1), numbers).reshape(-1)
    table = ctx.tensor(results)
    return _joined(ctx, indexing.gather(ctx, table, pair, 0), dtype)


def _low_bits(
    ctx: ConversionContext, first: Operand, second: Operand, dtype: torch.dtype
) -> NetworkTensor | None:
    """Returns ``first & second`` as a remainder where one is a number with its lowest bits set, else ``None``."""
    if isinstance(first, int):
        first, second = second, first
    if not _is_low_mask(second):
        return None
    return elementwise.remainder(ctx, first, second + 1, dtype, "floor")


def _is_low_mask(value: object) -> TypeGuard[int]:
    """Returns whether a value is a number with its lowest bits set, and no others."""
    return isinstance(value, int) and 0 < value < 1 << 30 and not value & (value + 1)


def _bytes(ctx: ConversionContext, value: Operand, dtype: torch.dtype, rank: int) -> NetworkTensor:
    """Returns the bytes of integers, each from 0 to 255, the lowest first, along a new last dimension."""
    places = torch.tensor([1 << 8 * place for place in range(dtype.itemsize)], dtype=dtype)
    if not is_network_tensor(value):
        number = torch.as_tensor(value).to(dtype).unsqueeze(-1)
        cut = torch.div(number, places, rounding_mode="floor") % 256
        return types.operand(ctx, cut, dtype, rank + 1)
    tensor = types.operand(ctx, value, dtype, rank)
    wide = shape.unsqueeze(ctx, tensor, [rank])
    shifted = elementwise.floor_divide(ctx, wide, places, dtype)
    return elementwise.remainder(ctx, shifted, 256, dtype, "floor")


def _joined(ctx: ConversionContext, parts: NetworkTensor, dtype: torch.dtype) -> NetworkTensor:
    """Returns the integers that ``_bytes`` turns into these.

    Without a reduction, which TensorRT 8.6 computes in float32 together with what follows it. The
    highest bit of the highest byte is the sign: the products wrap to it.
    """
    last = len(parts.shape) - 1
    places = range(dtype.itemsize)
    total = slicing.select(ctx, parts, last, places[-1])
    for place in reversed(places[:-1]):
        part = slicing.select(ctx, parts, last, place)
        total = elementwise.arithmetic(ctx, "PROD", total, 256, dtype)
        total = elementwise.combine(ctx, "SUM", total, part)
    return total


def _invert(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns integers with every bit exchanged: ``-1 - x``."""
    return elementwise.arithmetic(ctx, "SUB", -1, tensor, ctx.dtype_of(tensor))


def _shift(
    ctx: ConversionContext, tensor: Operand, amount: Operand, left: bool, dtype: torch.dtype
) -> NetworkTensor:
    """Returns ``tensor << amount`` or ``tensor >> amount``, the latter with the sign kept.

    As in PyTorch on a CPU, an amount that is negative or exceeds the width shifts everything out.

    Args:
        ctx: The conversion context.
        tensor: A network tensor, a PyTorch tensor or a number.
        amount: A network tensor, a PyTorch tensor or a number; the two broadcast.
        left: Whether to shift to the left.
        dtype: ``torch.int64`` or ``torch.int32``.
    """
    dtype = engine_dtype(dtype)
    width = 8 * dtype.itemsize

    def chosen(table: list[int], label: str) -> NetworkTensor | torch.Tensor:
        values = torch.tensor(table, dtype=dtype)
        if not is_network_tensor(amount):
            fixed = torch.as_tensor(amount)
            return values[torch.where((fixed < 0) | (fixed >= width), width, fixed).long()]
        table_ = ctx.tensor(values)
        return indexing.gather(ctx, table_, _inside(ctx, amount, width), 0)

    if left:
        sign = -(1 << (width - 1))
        powers = [*(1 << place for place in range(width - 1)), sign, 0]
        return elementwise.arithmetic(ctx, "PROD", tensor, chosen(powers, "power"), dtype)
    counts = [*range(width), width - 1]
    # No power of two that a signed number holds is as large as its width: two quotients in turn.
    halves = [count // 2 for count in counts]
    half = chosen([1 << part for part in halves], "half")
    rest = chosen([1 << count - part for count, part in zip(counts, halves, strict=True)], "rest")
    part = elementwise.floor_divide(ctx, tensor, half, dtype)
    return elementwise.floor_divide(ctx, part, rest, dtype)


def _inside(ctx: ConversionContext, amount: NetworkTensor, width: int) -> NetworkTensor:
    """Returns amounts from 0 to ``width``, which stands for all that are negative or larger."""
    number = types.cast(ctx, amount, torch.int32)
    limited = elementwise.clamp(ctx, number, None, width, torch.int32)
    negative = elementwise.compare(ctx, "lt", limited, 0)
    return elementwise.select(ctx, negative, width, limited, torch.int32)


def _overloads(table: Mapping[str, Any]) -> dict[Any, Any]:
    """Returns the overloads of two operands of each op in a table."""
    return {
        getattr(getattr(aten, packet), overload): value
        for packet, value in table.items()
        for overload in getattr(aten, packet).overloads()
        if overload in ("Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar")
    }


COMBINED = _overloads(
    {
        "bitwise_and": "AND",
        "bitwise_or": "OR",
        "bitwise_xor": "XOR",
        "__and__": "AND",
        "__or__": "OR",
        "__xor__": "XOR",
    }
)
SHIFTED_LEFT = _overloads(
    {
        "bitwise_left_shift": True,
        "bitwise_right_shift": False,
        "__lshift__": True,
        "__rshift__": False,
    }
)


def _loses_bits(node: Node) -> str | None:
    """Seen on TensorRT 8.6.0 and an H200: a fused chain of int32 products and sums is computed in float32."""
    _, second = node.args
    is_remainder = COMBINED.get(node.target) == "AND" and any(map(_is_low_mask, node.args))
    is_shift_by_number = node.target in SHIFTED_LEFT and not isinstance(second, Node)
    if node.meta["val"].dtype is torch.bool or is_remainder or is_shift_by_number:
        return None
    if supports(Capability.INTEGER_REDUCTION):
        return None
    return "this TensorRT computes fused integers in float32, which loses bits beyond 2^24"


@converts_elementwise(COMBINED, reject_if=_loses_bits, keep_constants=True)
def combine(ctx: ConversionContext, self: Operand, other: Operand, *, kind: str) -> NetworkTensor:
    """Converts a bitwise op: logic on booleans, a table of bytes for integers."""
    dtype = types.output_dtype(ctx)
    if dtype is torch.bool:
        return elementwise.logical(ctx, kind, self, other)
    return _combine(ctx, kind, self, other, dtype)


@converts_elementwise(aten.bitwise_not.default)
def invert(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``~``."""
    if ctx.dtype_of(self) is torch.bool:
        return unary.apply(ctx, "NOT", self)
    return _invert(ctx, self)


def _no_integer(node: Node) -> str | None:
    dtype = node.meta["val"].dtype
    return None if types.is_integer(dtype) else "only integers have bits to shift"


@converts_elementwise(SHIFTED_LEFT, reject_if=(_no_integer, _loses_bits), keep_constants=True)
def shift(ctx: ConversionContext, self: Operand, other: Operand, *, left: bool) -> NetworkTensor:
    """Converts a shift by any number of bits."""
    return _shift(ctx, self, other, left, types.output_dtype(ctx))


_STEPS = {torch.int32: 46, torch.int64: 91}
"""The maximum number of steps of Euclid's algorithm: neighbouring Fibonacci numbers take that many."""


@converts_elementwise(aten.gcd.default, keep_constants=True, reads_runtime_shape=True)
def greatest_common_divisor(ctx: ConversionContext, self: Operand, other: Operand) -> NetworkTensor:
    """Converts Euclid's algorithm as a loop with as many steps as the dtype may take."""
    dtype = engine_dtype(types.output_dtype(ctx))
    operands = shape.broadcast(ctx, types.operands(ctx, (self, other), dtype))
    first, second = (unary.apply(ctx, "ABS", each) for each in operands)
    loop = ctx.net.add_loop()
    loop.add_trip_limit(ctx.tensor(_STEPS[dtype]), trt.TripLimit.COUNT)
    greater, less = loop.add_recurrence(first), loop.add_recurrence(second)
    old, divisor = greater.get_output(0), less.get_output(0)
    done = elementwise.compare(ctx, "eq", divisor, 0)
    safe = elementwise.select(ctx, done, 1, divisor, dtype)
    rest = elementwise.remainder(ctx, old, safe, dtype, "trunc")
    greater.set_input(1, elementwise.select(ctx, done, old, divisor, dtype))
    less.set_input(1, elementwise.select(ctx, done, divisor, rest, dtype))
    result = loop.add_loop_output(old, trt.LoopOutput.LAST_VALUE, 0)
    output: NetworkTensor = result.get_output(0)
    return output
