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
)
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "AND": operator.and_,
    "OR": operator.or_,
    "XOR": operator.xor,
}


def _is_low_mask(value: object) -> TypeGuard[int]:
    """Returns whether a value is a number with its lowest bits set, and no others."""
    return isinstance(value, int) and 0 < value < 1 << 30 and not value & (value + 1)


def _bytes(ctx: ConversionContext, value: Operand, dtype: torch.dtype, rank: int) -> NetworkTensor:
    """Returns the bytes of integers, each from 0 to 255, the lowest first, along a new last dimension."""
    byte_values = torch.tensor([1 << 8 * index for index in range(dtype.itemsize)], dtype=dtype)
    if not is_network_tensor(value):
        constant = torch.as_tensor(value).to(dtype).unsqueeze(-1)
        return types.operand(ctx, constant // byte_values % 256, dtype, rank + 1)
    number = Formula(ctx, types.operand(ctx, value, dtype, rank)).unsqueeze(rank)
    return (number // byte_values % 256).tensor


def _joined(ctx: ConversionContext, parts: NetworkTensor, dtype: torch.dtype) -> NetworkTensor:
    """Returns the integers that ``_bytes`` turns into these.

    Without a reduction, which TensorRT 8.6 computes in float32 together with what follows it. The
    highest bit of the highest byte is the sign: the products wrap to it.
    """
    last = len(parts.shape) - 1
    *lower, highest = range(dtype.itemsize)
    total = Formula(ctx, slicing.select(ctx, parts, last, highest))
    for index in reversed(lower):
        total = total * 256 + slicing.select(ctx, parts, last, index)
    return total.tensor


def _inside(ctx: ConversionContext, amount: NetworkTensor, width: int) -> NetworkTensor:
    """Returns amounts from 0 to ``width``, which stands for all that are negative or larger."""
    # A cast to int32 comes last: it would make another number of a large one.
    dtype = torch.int64 if ctx.dtype_of(amount) is torch.int64 else torch.int32
    limited = Formula(ctx, amount, dtype).minimum(width)
    return (limited < 0).where(width, limited).cast(torch.int32).tensor


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


def _is_fused(node: Node) -> str | None:
    """Seen on TensorRT 8.6.0 and an H200: a fused chain of int32 products and sums is computed in float32."""
    if node.meta["val"].dtype is torch.bool or supports(Capability.INTEGER_REDUCTION):
        return None
    return "this TensorRT computes fused integers in float32, which loses bits beyond 2^24"


def _loses_bits(node: Node, *, kind: str) -> str | None:
    is_remainder = kind == "AND" and any(map(_is_low_mask, node.args))
    return None if is_remainder else _is_fused(node)


def _loses_shifted_bits(node: Node) -> str | None:
    return _is_fused(node) if isinstance(node.args[1], Node) else None


@converts_elementwise(table={"kind": COMBINED}, reject_if=_loses_bits)
def combine(ctx: ConversionContext, self: Operand, other: Operand, *, kind: str) -> NetworkTensor:
    """Converts a bitwise op: logic on booleans, a table of bytes for integers."""
    dtype = types.output_dtype(ctx)
    if dtype is torch.bool:
        return elementwise.logical(ctx, kind, self, other)
    first, second = (other, self) if isinstance(self, int) else (self, other)
    if kind == "AND" and _is_low_mask(second):
        return elementwise.remainder(ctx, first, second + 1, dtype, "floor")
    dtype = engine_dtype(dtype)
    rank = types.common_rank((first, second))
    high, low = (Formula(ctx, _bytes(ctx, value, dtype, rank)) for value in (first, second))
    numbers = torch.arange(256, dtype=dtype)
    table = ctx.tensor(OPERATIONS[kind](numbers.unsqueeze(1), numbers).reshape(-1))
    return _joined(ctx, indexing.gather(ctx, table, (high * 256 + low).tensor, 0), dtype)


@converts_elementwise(aten.bitwise_not.default)
def invert(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``~``."""
    if ctx.dtype_of(self) is torch.bool:
        return (~Formula(ctx, self)).tensor
    return (-1 - Formula(ctx, self)).tensor


def _no_integer(node: Node) -> str | None:
    dtype = node.meta["val"].dtype
    return None if types.is_integer(dtype) else "only integers have bits to shift"


@converts_elementwise(table={"left": SHIFTED_LEFT}, reject_if=(_no_integer, _loses_shifted_bits))
def shift(ctx: ConversionContext, self: Operand, other: Operand, *, left: bool) -> NetworkTensor:
    """Converts a shift, to the right with the sign kept.

    As in PyTorch on a CPU, an amount that is negative or exceeds the width shifts everything out.
    """
    dtype = engine_dtype(types.output_dtype(ctx))
    width = 8 * dtype.itemsize

    def chosen(table: list[int]) -> NetworkTensor | torch.Tensor:
        values = torch.tensor(table, dtype=dtype)
        if not is_network_tensor(other):
            fixed = torch.as_tensor(other)
            return values[torch.where((fixed < 0) | (fixed >= width), width, fixed).long()]
        return indexing.gather(ctx, ctx.tensor(values), _inside(ctx, other, width), 0)

    if left:
        sign = -(1 << (width - 1))
        powers = [*(1 << index for index in range(width - 1)), sign, 0]
        return elementwise.arithmetic(ctx, "PROD", self, chosen(powers), dtype)
    counts = [*range(width), width - 1]
    # No power of two that a signed number holds is as large as its width: two quotients in turn.
    halves = [count // 2 for count in counts]
    half = chosen([1 << part for part in halves])
    rest = chosen([1 << count - part for count, part in zip(counts, halves, strict=True)])
    part = elementwise.floor_divide(ctx, self, half, dtype)
    return elementwise.floor_divide(ctx, part, rest, dtype)


_STEPS = {torch.int32: 46, torch.int64: 91}
"""The maximum number of steps of Euclid's algorithm: neighbouring Fibonacci numbers take that many."""


@pack.converter(aten.gcd.default, supports_empty=True)
def greatest_common_divisor(ctx: ConversionContext, self: Operand, other: Operand) -> NetworkTensor:
    """Converts Euclid's algorithm as a loop with as many steps as the dtype may take."""
    dtype = engine_dtype(types.output_dtype(ctx))
    operands = shape.broadcast(ctx, types.operands(ctx, (self, other), dtype))
    first, second = (abs(Formula(ctx, operand)).tensor for operand in operands)
    loop = ctx.net.add_loop()
    loop.add_trip_limit(ctx.tensor(_STEPS[dtype]), trt.TripLimit.COUNT)
    greater, less = loop.add_recurrence(first), loop.add_recurrence(second)
    old, divisor = (Formula(ctx, layer.get_output(0)) for layer in (greater, less))
    done = divisor == 0
    rest = elementwise.remainder(ctx, old.tensor, done.where(1, divisor).tensor, dtype, "trunc")
    greater.set_input(1, done.where(old, divisor).tensor)
    less.set_input(1, done.where(divisor, rest).tensor)
    result = loop.add_loop_output(old.tensor, trt.LoopOutput.LAST_VALUE, 0)
    output: NetworkTensor = result.get_output(0)
    return output
