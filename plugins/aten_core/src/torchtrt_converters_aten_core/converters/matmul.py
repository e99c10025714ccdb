"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Operand,
    arguments_of,
    value_of,
)
from torchtrt_blocks import matmul as blocks
from torchtrt_blocks import shape, sizes, types
from torchtrt_blocks.checks import sizes_known_before_data
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


PRODUCTS = (
    aten.matmul.default,
    aten.mm.default,
    aten.bmm.default,
    aten.mv.default,
    aten.dot.default,
)
SUMS_OF_PRODUCTS = (
    aten.addmm.default,
    aten.addmv.default,
    aten.baddbmm.default,
)
"""Ops that add a scaled product to ``self``."""


_ONE_BY_ONE = 1 << 20
"""The maximum number of products of integers that are computed without a layer for matrices."""


def _inexact_integer_product(node: Node) -> str | None:
    dtype = node.meta["val"].dtype
    if dtype.is_floating_point:
        return None
    first = _first(node)
    products = sizes.maximum_product((*node.meta["val"].shape, first.shape[-1]))
    if dtype is torch.bool or products is None or products > _ONE_BY_ONE:
        return "TensorRT multiplies matrices of floating-point numbers only"
    return None


def _asks_for_unknown_sizes(node: Node) -> str | None:
    """Sums of whole numbers read sizes, and so do rows that are put together before the product."""
    varying = [size for size in _first(node).shape[:-1] if not isinstance(size, int)]
    is_plain = node.meta["val"].dtype.is_floating_point and len(varying) < 2
    return None if is_plain else sizes_known_before_data(node)


def _first(node: Node) -> torch.Tensor:
    """Returns PyTorch's value of the first factor."""
    target: Any = node.target
    name = target._schema.arguments[int(target in SUMS_OF_PRODUCTS)].name
    tensor: torch.Tensor = value_of(getattr(arguments_of(node), name))
    return tensor


def _factors(ctx: ConversionContext, *values: Operand) -> list[NetworkTensor]:
    dtype = types.output_dtype(ctx)
    return [types.operand(ctx, value, dtype, types.rank_of(value)) for value in values]


def _product(ctx: ConversionContext, first: Operand, second: Operand) -> NetworkTensor:
    return blocks.product(ctx, *_factors(ctx, first, second))


@pack.converter(
    *PRODUCTS,
    reject_if=(_inexact_integer_product, _asks_for_unknown_sizes),
)
def product(
    ctx: ConversionContext, self: NetworkTensor | torch.Tensor, **second: Any
) -> NetworkTensor:
    """Converts a product of matrices or vectors; the second has a name of its own in each op."""
    return _product(ctx, self, *second.values())


@pack.converter(
    *SUMS_OF_PRODUCTS,
    reject_if=(_inexact_integer_product, _asks_for_unknown_sizes),
)
def sum_of_product(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    beta: int | float | bool,
    alpha: int | float | bool,
    **operands: Any,
) -> NetworkTensor:
    """Converts ``beta * self + alpha * (first @ second)``; the operands have names of their own in each op."""
    first, second = _factors(ctx, *operands.values())
    return blocks.sum_of_product(ctx, self, first, second, beta, alpha)


@pack.converter(
    aten.linear.default,
    reject_if=(_inexact_integer_product, _asks_for_unknown_sizes),
)
def linear(
    ctx: ConversionContext,
    input: NetworkTensor | torch.Tensor,
    weight: NetworkTensor | torch.Tensor,
    bias: NetworkTensor | torch.Tensor | None,
) -> NetworkTensor:
    """Converts ``input @ weight.T + bias``."""
    dtype = types.output_dtype(ctx)
    if types.is_integer(dtype):
        weight = types.operand(ctx, weight, dtype, types.rank_of(weight))
        turned = shape.swap(ctx, weight, -2, -1) if len(weight.shape) > 1 else weight
        result = _product(ctx, input, turned)
        return result if bias is None else (Formula(ctx, result, dtype) + bias).tensor
    tensor = types.operand(ctx, input, dtype, types.rank_of(input))
    return blocks.linear(ctx, tensor, weight, bias)
