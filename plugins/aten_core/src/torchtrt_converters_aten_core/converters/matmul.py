"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types
from torchtrt_converters_aten_core.impl import matmul as impl
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


PRODUCTS = (
    aten.matmul.default,
    aten.mm.default,
    aten.bmm.default,
    aten.mv.default,
    aten.dot.default,
)
SUMS_OF_PRODUCTS = {
    aten.addmm.default: ("mat1", "mat2"),
    aten.addmv.default: ("mat", "vec"),
    aten.baddbmm.default: ("batch1", "batch2"),
}
"""Ops that add a scaled product to ``self``, and the names of the product's operands."""


_ONE_BY_ONE = 1 << 20
"""The most products of whole numbers that are computed without a layer for matrices."""


def _unfit(node: Node) -> str | None:
    dtype = node.meta["val"].dtype
    if dtype.is_floating_point:
        return None
    first = (
        value_of(getattr(node_arguments(node), SUMS_OF_PRODUCTS[node.target][0]))
        if (node.target in SUMS_OF_PRODUCTS)
        else value_of(node.args[0])
    )
    products = sizes.greatest_product((*node.meta["val"].shape, first.shape[-1]))
    if dtype is torch.bool or products is None or products > _ONE_BY_ONE:
        return "TensorRT multiplies matrices of floating-point numbers only"
    return None


def _product(ctx: Any, first: Any, second: Any, name: str) -> Any:
    dtype = types.output_dtype(ctx)
    tensors = [
        types.operand(ctx, value, dtype, types.rank_of(value), f"{name}/{label}")
        for value, label in ((first, "first"), (second, "second"))
    ]
    multiply = impl.multiply if dtype.is_floating_point else impl.multiply_whole
    return multiply(ctx, *tensors, name)


@converts(*PRODUCTS, unless=_unfit, keep_constants=True)
def product(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a product of matrices or vectors."""
    return _product(ctx, args[0], args[1], name)


@converts(*SUMS_OF_PRODUCTS, unless=_unfit, keep_constants=True)
def sum_of_product(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``beta * self + alpha * (first @ second)``."""
    op = arguments(target, args, kwargs)
    first, second = (getattr(op, label) for label in SUMS_OF_PRODUCTS[target])
    result = _product(ctx, first, second, name + "/product")
    return impl.add_scaled(ctx, op.self, result, op.beta, op.alpha, types.output_dtype(ctx), name)


@converts(aten.linear.default, unless=_unfit, keep_constants=True)
def linear(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``input @ weight.T + bias``."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    if types.is_integer(dtype):
        weight = types.operand(ctx, op.weight, dtype, types.rank_of(op.weight), name + "/weight")
        turned = (
            shape.swap(ctx, weight, -2, -1, name + "/turned") if len(weight.shape) > 1 else weight
        )
        result = _product(ctx, op.input, turned, name + "/product")
        if op.bias is None:
            return result
        return elementwise.arithmetic(ctx, "SUM", result, op.bias, dtype, name)
    tensor = types.operand(ctx, op.input, dtype, types.rank_of(op.input), name + "/input")
    return impl.linear(ctx, tensor, op.weight, op.bias, name)
