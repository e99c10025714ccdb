"""Sizes known at run time, and arithmetic on them.

A size is a 0-d int32 network tensor. A quotient of sizes is a 0-d float32 one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import is_network_tensor
from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types, unary
from torchtrt_converters_aten_core.registration import converts_elementwise, value_of

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

_SYMBOLS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def _not_numbers(node: Node) -> str | None:
    if all(isinstance(value_of(argument), _SYMBOLS) for argument in node.args):
        return None
    return "the operands are not sizes"


@converts_elementwise(aten.sym_size.int)
def size(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Returns one size of a tensor: a number where it is fixed."""
    return sizes.size_of(ctx, args[0], args[1], name)


@converts_elementwise(aten.sym_numel.default)
def numel(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Returns how many elements a tensor has."""
    return shape.numel(ctx, args[0], name)


ARITHMETIC: dict[Callable[..., Any], str] = {
    operator.add: "SUM",
    operator.sub: "SUB",
    operator.mul: "PROD",
    operator.floordiv: "FLOOR_DIV",
    torch.sym_max: "MAX",
    torch.sym_min: "MIN",
}


@converts_elementwise(*ARITHMETIC, unless=_not_numbers)
def arithmetic(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts whole-number arithmetic on sizes, and the same on quotients."""
    kind = ARITHMETIC[target]
    dtype = _dtype(ctx, args)
    if dtype is torch.int32:
        return sizes.combine(ctx, kind, args[0], args[1], name)
    return elementwise.arithmetic(ctx, kind, args[0], args[1], dtype, name)


def _dtype(ctx: Any, values: Args) -> torch.dtype:
    floating = any(
        ctx.dtype_of(value).is_floating_point
        if is_network_tensor(value)
        else isinstance(value, float)
        for value in values
    )
    return torch.float32 if floating else torch.int32


def _not_whole(node: Node) -> str | None:
    values = [value_of(argument) for argument in node.args]
    if all(isinstance(value, (int, torch.SymInt)) for value in values):
        return None
    return "the operands are not whole sizes"


@converts_elementwise(operator.mod, unless=_not_whole)
def modulo(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the remainder of sizes, with the divisor's sign as in Python."""
    first, second = args
    quotient = sizes.combine(ctx, "FLOOR_DIV", first, second, name + "/quotient")
    multiple = sizes.combine(ctx, "PROD", quotient, second, name + "/multiple")
    return sizes.combine(ctx, "SUB", first, multiple, name)


@converts_elementwise(operator.neg, unless=_not_whole)
def negative(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a size with the other sign."""
    return sizes.combine(ctx, "SUB", 0, args[0], name)


@converts_elementwise(operator.truediv, unless=_not_numbers)
def quotient(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a quotient of sizes, in float32."""
    return elementwise.arithmetic(ctx, "DIV", args[0], args[1], torch.float32, name)


def _power_of_sizes(node: Node) -> str | None:
    exponent = node.args[1]
    if isinstance(exponent, int) and 0 < exponent <= 8:
        return _not_whole(node)
    return "only a fixed whole power of a size is a size"


@converts_elementwise(operator.pow, unless=_power_of_sizes)
def power(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a fixed whole power of a size."""
    return sizes.product(ctx, [args[0]] * args[1], name)


COMPARISONS: dict[Callable[..., Any], str] = {
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
}


@converts_elementwise(*COMPARISONS, unless=_not_numbers)
def comparison(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a comparison of sizes: a 0-d bool tensor."""
    return elementwise.compare(ctx, COMPARISONS[target], args[0], args[1], name)


LOGICAL: dict[Callable[..., Any], str] = {
    operator.and_: "AND",
    operator.or_: "OR",
}


def _not_conditions(node: Node) -> str | None:
    if all(isinstance(value_of(argument), (bool, torch.SymBool)) for argument in node.args):
        return None
    return "the operands are not conditions on sizes"


@converts_elementwise(*LOGICAL, unless=_not_conditions)
def logical(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a combination of conditions on sizes."""
    return elementwise.logical(ctx, LOGICAL[target], args[0], args[1], name)


@converts_elementwise(torch.sym_not, unless=_not_conditions)
def negation(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the opposite of a condition on sizes."""
    return unary.apply(ctx, "NOT", args[0], name)


@converts_elementwise(torch.sym_ite, unless=_not_numbers)
def choice(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a choice between two sizes."""
    condition, chosen, other = args
    return elementwise.select(ctx, condition, chosen, other, _dtype(ctx, (chosen, other)), name)


ROUNDING: dict[Callable[..., Any], str] = {
    math.ceil: "CEIL",
    math.floor: "FLOOR",
    round: "ROUND",
}


def _rounds_to_digits(node: Node) -> str | None:
    if len(node.args) > 1 and node.args[1] is not None:
        return "only rounding to a whole number gives a size"
    return None


@converts_elementwise(*ROUNDING, unless=_rounds_to_digits)
def rounding(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a quotient of sizes rounded to a size."""
    if not ctx.dtype_of(args[0]).is_floating_point:
        return args[0]
    rounded = unary.apply(ctx, ROUNDING[target], args[0], name + "/rounded")
    return types.cast(ctx, rounded, torch.int32, name)


@converts_elementwise(math.trunc, unless=_not_numbers)
def truncation(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a quotient of sizes cut to a size; casts cut toward zero."""
    return types.cast(ctx, args[0], torch.int32, name)


@converts_elementwise(torch.sym_float, unless=_not_numbers)
def as_float(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a size to a float32 number."""
    return types.cast(ctx, args[0], torch.float32, name)


@converts_elementwise(torch._sym_sqrt, unless=_not_numbers)
def square_root(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the square root of a size, in float32."""
    number = types.cast(ctx, args[0], torch.float32, name + "/number")
    return unary.apply(ctx, "SQRT", number, name)
