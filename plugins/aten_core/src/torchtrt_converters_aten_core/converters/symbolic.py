"""Sizes known at run time, and arithmetic on them.

A size is a 0-d int32 network tensor. A quotient of sizes is a 0-d float32 one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    arguments_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks import elementwise, shape, sizes, types, unary
from torchtrt_blocks.checks import COMPUTE_DTYPES
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.converters.exact_numbers import differs_in_float32
from torchtrt_converters_aten_core.registration import converts_elementwise
from torchtrt_converters_aten_core.torch_internals import sym_sqrt

aten = torch.ops.aten


_SYMBOLS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def _not_numbers(node: Node) -> str | None:
    if all(isinstance(value_of(argument), _SYMBOLS) for argument in node.args):
        return None
    return "the operands are not sizes"


def _leaves_int32(node: Node) -> str | None:
    value = value_of(node)
    if isinstance(value, torch.SymInt) and sizes.leaves_int32(value):
        return "the result may be beyond int32, the dtype of sizes in engines"
    return None


_SIZED_DTYPES = COMPUTE_DTYPES | {torch.float8_e4m3fn, torch.int8}
"""The dtypes of tensors whose sizes TensorRT returns."""


def _is_int8_without_scale(node: Node) -> str | None:
    tensor = value_of(arguments_of(node).self)
    if tensor.dtype is torch.int8 and not supports(Capability.STRONG_TYPING):
        return "this TensorRT takes int8 as quantized values only"
    return None


@pack.converter(
    aten.sym_size.int, supports_empty=True, dtypes=_SIZED_DTYPES, reject_if=_is_int8_without_scale
)
def size(ctx: ConversionContext, self: NetworkTensor, dim: int) -> Size:
    """Returns one size of a tensor: a number where it is fixed."""
    return sizes.size_of(ctx, self, dim)


@pack.converter(
    aten.sym_numel.default,
    supports_empty=True,
    dtypes=_SIZED_DTYPES,
    reject_if=_is_int8_without_scale,
)
def numel(ctx: ConversionContext, self: NetworkTensor) -> Size:
    """Returns how many elements a tensor has."""
    return shape.numel(ctx, self)


ARITHMETIC: dict[Callable[..., Any], str] = {
    operator.add: "SUM",
    operator.sub: "SUB",
    operator.mul: "PROD",
    operator.floordiv: "FLOOR_DIV",
    torch.sym_max: "MAX",
    torch.sym_min: "MIN",
}


def _floors_otherwise(node: Node) -> str | None:
    return differs_in_float32(node) if node.target is operator.floordiv else None


@converts_elementwise(
    table={"kind": ARITHMETIC}, reject_if=(_not_numbers, _leaves_int32, _floors_otherwise)
)
def arithmetic(ctx: ConversionContext, first: Any, second: Any, *, kind: str) -> Any:
    """Converts integer arithmetic on sizes, and the same on quotients."""
    dtype = _dtype(ctx, (first, second))
    if dtype is torch.int32:
        return sizes.combine(ctx, kind, first, second)
    return elementwise.arithmetic(ctx, kind, first, second, dtype)


def _dtype(ctx: ConversionContext, values: Sequence[Any]) -> torch.dtype:
    floating = any(
        ctx.dtype_of(value).is_floating_point
        if is_network_tensor(value)
        else isinstance(value, float)
        for value in values
    )
    return torch.float32 if floating else torch.int32


def _no_integers(node: Node) -> str | None:
    values = [value_of(argument) for argument in node.args]
    if all(isinstance(value, (int, torch.SymInt)) for value in values):
        return None
    return "the operands are not integers"


@converts_elementwise(operator.mod, reject_if=_no_integers)
def modulo(ctx: ConversionContext, first: Any, second: Any) -> Any:
    """Converts the remainder of sizes, with the divisor's sign as in Python."""
    quotient = sizes.combine(ctx, "FLOOR_DIV", first, second)
    multiple = sizes.combine(ctx, "PROD", quotient, second)
    return sizes.combine(ctx, "SUB", first, multiple)


@converts_elementwise(operator.neg, reject_if=_no_integers)
def negative(ctx: ConversionContext, first: Any) -> Any:
    """Converts a size with the other sign."""
    return sizes.combine(ctx, "SUB", 0, first)


@converts_elementwise(operator.truediv, reject_if=_not_numbers)
def quotient(ctx: ConversionContext, first: Any, second: Any) -> Any:
    """Converts a quotient of sizes, in float32."""
    return (Formula(ctx, first, torch.float32) / second).tensor


def _power_of_sizes(node: Node) -> str | None:
    exponent = node.args[1]
    if isinstance(exponent, int) and 0 < exponent <= 8:
        return _no_integers(node)
    return "only a fixed integer power of a size is a size"


@converts_elementwise(operator.pow, reject_if=(_power_of_sizes, _leaves_int32))
def power(ctx: ConversionContext, first: Any, second: Any) -> Any:
    """Converts a fixed integer power of a size."""
    return sizes.product(ctx, [first] * second)


COMPARISONS: dict[Callable[..., Any], str] = {
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
}


@converts_elementwise(table={"kind": COMPARISONS}, reject_if=(_not_numbers, differs_in_float32))
def comparison(ctx: ConversionContext, first: Any, second: Any, *, kind: str) -> Any:
    """Converts a comparison of sizes: a 0-d bool tensor."""
    return elementwise.compare(ctx, kind, first, second)


LOGICAL: dict[Callable[..., Any], str] = {
    operator.and_: "AND",
    operator.or_: "OR",
}


def _not_conditions(node: Node) -> str | None:
    if all(isinstance(value_of(argument), (bool, torch.SymBool)) for argument in node.args):
        return None
    return "the operands are not conditions on sizes"


@converts_elementwise(table={"kind": LOGICAL}, reject_if=_not_conditions)
def logical(ctx: ConversionContext, first: Any, second: Any, *, kind: str) -> Any:
    """Converts a combination of conditions on sizes."""
    return elementwise.logical(ctx, kind, first, second)


@converts_elementwise(torch.sym_not, reject_if=_not_conditions)
def negation(ctx: ConversionContext, first: Any) -> Any:
    """Converts the opposite of a condition on sizes."""
    return unary.apply(ctx, "NOT", first)


@converts_elementwise(torch.sym_ite, reject_if=_not_numbers)
def choice(ctx: ConversionContext, first: Any, second: Any, third: Any) -> Any:
    """Converts a choice between two sizes."""
    return elementwise.select(ctx, first, second, third, _dtype(ctx, (second, third)))


ROUNDING: dict[Callable[..., Any], str] = {
    math.ceil: "CEIL",
    math.floor: "FLOOR",
    round: "ROUND",
}


def _rounds_to_digits(node: Node) -> str | None:
    if len(node.args) > 1 and node.args[1] is not None:
        return "only rounding to an integer gives a size"
    return None


@converts_elementwise(table={"kind": ROUNDING}, reject_if=(_rounds_to_digits, differs_in_float32))
def rounding(ctx: ConversionContext, first: Any, digits: Any = None, *, kind: str) -> Any:
    """Converts a quotient of sizes rounded to a size."""
    if not ctx.dtype_of(first).is_floating_point:
        return first
    rounded = unary.apply(ctx, kind, first)
    return types.cast(ctx, rounded, torch.int32)


@converts_elementwise(math.trunc, reject_if=(_not_numbers, differs_in_float32))
def truncation(ctx: ConversionContext, first: Any) -> Any:
    """Converts a quotient of sizes cut to a size; casts cut toward zero."""
    return types.cast(ctx, first, torch.int32)


@converts_elementwise(torch.sym_float, reject_if=_not_numbers)
def as_float(ctx: ConversionContext, first: Any) -> Any:
    """Converts a size to a float32 number."""
    return types.cast(ctx, first, torch.float32)


@converts_elementwise(sym_sqrt, reject_if=_not_numbers)
def square_root(ctx: ConversionContext, first: Any) -> Any:
    """Converts the square root of a size, in float32."""
    return Formula(ctx, first, torch.float32).sqrt().tensor
