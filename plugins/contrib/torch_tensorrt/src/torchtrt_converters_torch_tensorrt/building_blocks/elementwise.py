"""Building blocks that work element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchtrt.conversion import add, add_layer
from torchtrt_converters_torch_tensorrt.building_blocks.table import block, layer_block

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil"),
            *("cos", "cosh", "erf", "exp", "expm1", "floor", "isinf", "log", "log10", "log1p"),
            *("log2", "logical_not", "neg", "round", "sign", "sin", "sinh", "sqrt", "tan", "trunc"),
        )
    },
    "recip": torch.reciprocal,
}
for _name, _function in UNARY.items():

    def _apply(input_val: Any, function: Callable[[Tensor], Tensor] = _function) -> Tensor:
        return function(torch.as_tensor(input_val))

    block(f"unary.{_name}")(_apply)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "pow": operator.pow,
    "max": torch.maximum,
    "min": torch.minimum,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}


def _with_numbers(
    function: Callable[[Any, Any], Any], first: Any, second: Any, as_tensors: bool
) -> Any:
    """Returns ``function(first, second)``; a number takes the dtype of the tensor beside it where it fits."""
    if not as_tensors or (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return function(first, second)
    dtype = torch.result_type(first, second)
    return function(*(torch.as_tensor(operand, dtype=dtype) for operand in (first, second)))


for _name, _binary in BINARY.items():
    _takes_tensors = _name in ("max", "min", "logical_and", "logical_or", "logical_xor")

    def _combine(
        lhs_val: Any,
        rhs_val: Any,
        function: Callable[[Any, Any], Any] = _binary,
        as_tensors: bool = _takes_tensors,
    ) -> Any:
        return _with_numbers(function, lhs_val, rhs_val, as_tensors)

    block(f"elementwise.{_name}")(_combine)

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "atan2": torch.atan2,
    "trunc_div": lambda first, second: torch.div(first, second, rounding_mode="trunc"),
}
for _name, _binary in _OPERATIONS.items():

    def _operate(input: Any, other: Any, function: Callable[[Any, Any], Any] = _binary) -> Any:
        return _with_numbers(function, input, other, True)

    block(f"elementwise.{_name}")(_operate)


_BY_OPERATION = {
    "SUM": operator.add,
    "SUB": operator.sub,
    "PROD": operator.mul,
    "POW": operator.pow,
    "FLOOR_DIV": operator.floordiv,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
    "AND": torch.logical_and,
    "OR": torch.logical_or,
    "XOR": torch.logical_xor,
    "EQUAL": operator.eq,
    "GREATER": operator.gt,
    "LESS": operator.lt,
}


@block("elementwise.base.convert_binary_elementwise")
def _convert_binary_elementwise(op_type: Any, lhs_val: Any, rhs_val: Any) -> Any:
    if op_type.name == "DIV":  # TensorRT's division of integers truncates
        floating = torch.result_type(lhs_val, rhs_val).is_floating_point
        return torch.div(lhs_val, rhs_val, rounding_mode=None if floating else "trunc")
    return _with_numbers(_BY_OPERATION[op_type.name], lhs_val, rhs_val, True)


@layer_block("unary.base.convert_unary")
def _convert_unary(
    ctx: Any, target: Any, source_ir: Any, name: str, operation_type: Any, input_val: Any
) -> Any:
    """Adds one unary layer."""
    del target, source_ir
    with ctx.part(name):
        return add(ctx, "unary", ctx.tensor(input_val), operation_type)


@layer_block("activation.base.convert_activation")
def _convert_activation(
    ctx: Any,
    target: Any,
    source_ir: Any,
    name: str,
    operation_type: Any,
    input_val: Any,
    alpha: Any = None,
    beta: Any = None,
    dyn_range_fn: Any = None,
) -> Any:
    """Adds one activation layer."""
    del target, source_ir, dyn_range_fn
    with ctx.part(name):
        layer = add_layer(ctx, "activation", ctx.tensor(input_val), operation_type)
    if alpha is not None:
        layer.alpha = alpha
    if beta is not None:
        layer.beta = beta
    return layer.get_output(0)


@block("activation.elu")
def _elu(input_val: Tensor, alpha: float = 1.0, beta: float | None = None) -> Tensor:
    del beta
    return F.elu(input_val, alpha)
