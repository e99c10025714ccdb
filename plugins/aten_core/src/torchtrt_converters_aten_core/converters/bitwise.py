"""Bitwise operations and shifts of integers and booleans, and greatest common divisors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.tensorrt import trt
from torchtrt.tensorrt.dtypes import inner_dtype
from torchtrt.tensorrt.shims import reduces_integers_exactly
from torchtrt_converters_aten_core.impl import bitwise as impl
from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types, unary
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten


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
    is_remainder = COMBINED.get(node.target) == "AND" and any(map(impl.is_low_mask, node.args))
    is_shift_by_number = node.target in SHIFTED_LEFT and not isinstance(second, Node)
    if node.meta["val"].dtype is torch.bool or is_remainder or is_shift_by_number:
        return None
    if reduces_integers_exactly():
        return None
    return "this TensorRT computes fused integers in float32, which loses bits beyond 2^24"


@converts_elementwise(*COMBINED, unless=_loses_bits, keep_constants=True)
def combine(ctx, self, other):
    """Converts a bitwise op: logic on booleans, a table of bytes for integers."""
    dtype, kind = types.output_dtype(ctx), COMBINED[ctx.node.target]
    if dtype is torch.bool:
        return elementwise.logical(ctx, kind, self, other)
    return impl.combine(ctx, kind, self, other, dtype)


@converts_elementwise(aten.bitwise_not.default)
def invert(ctx, self):
    """Converts ``~``."""
    if ctx.dtype_of(self) is torch.bool:
        return unary.apply(ctx, "NOT", self)
    return impl.invert(ctx, self)


def _not_whole(node: Node) -> str | None:
    dtype = node.meta["val"].dtype
    return None if types.is_integer(dtype) else "only integers have bits to shift"


@converts_elementwise(*SHIFTED_LEFT, unless=(_not_whole, _loses_bits), keep_constants=True)
def shift(ctx, self, other):
    """Converts a shift by any number of bits."""
    dtype = types.output_dtype(ctx)
    return impl.shift(ctx, self, other, SHIFTED_LEFT[ctx.node.target], dtype)


_STEPS = {torch.int32: 46, torch.int64: 91}
"""The most steps of Euclid's algorithm: neighbouring Fibonacci numbers take that many."""


@converts_elementwise(aten.gcd.default, keep_constants=True)
def greatest_common_divisor(ctx, self, other):
    """Converts Euclid's algorithm as a loop with as many steps as the dtype may take."""
    dtype = inner_dtype(types.output_dtype(ctx))
    first, second = types.operands(ctx, (self, other), dtype)
    shapes = [ctx.symbolic_shape(each) for each in (first, second)]
    extents = [
        sizes.size_of(ctx, second if mine == 1 else first, dim)
        for dim, (mine, _) in enumerate(zip(*shapes, strict=True))
    ]
    first, second = (
        unary.apply(ctx, "ABS", shape.expand(ctx, each, extents)) for each in (first, second)
    )
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
    return result.get_output(0)
