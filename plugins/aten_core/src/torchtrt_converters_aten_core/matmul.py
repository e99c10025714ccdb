"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import matmul as impl
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import arguments, converts

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def _not_floating(node: Any) -> str | None:
    if node.meta["val"].dtype.is_floating_point:
        return None
    return "TensorRT multiplies matrices of floating-point numbers only"


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


def _product(ctx: Any, first: Any, second: Any, name: str) -> Any:
    dtype = types.output_dtype(ctx)
    tensors = [
        types.operand(ctx, value, dtype, types.rank_of(value), f"{name}/{label}")
        for value, label in ((first, "first"), (second, "second"))
    ]
    return impl.multiply(ctx, *tensors, name)


@converts(*PRODUCTS, unless=_not_floating, keep_constants=True)
def product(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a product of matrices or vectors."""
    return _product(ctx, args[0], args[1], name)


@converts(*SUMS_OF_PRODUCTS, unless=_not_floating, keep_constants=True)
def sum_of_product(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``beta * self + alpha * (first @ second)``."""
    op = arguments(target, args, kwargs)
    first, second = (getattr(op, label) for label in SUMS_OF_PRODUCTS[target])
    result = _product(ctx, first, second, name + "/product")
    return impl.add_scaled(ctx, op.self, result, op.beta, op.alpha, types.output_dtype(ctx), name)


@converts(aten.linear.default, unless=_not_floating, keep_constants=True)
def linear(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``input @ weight.T + bias``."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    tensor = types.operand(ctx, op.input, dtype, types.rank_of(op.input), name + "/input")
    return impl.linear(ctx, tensor, op.weight, op.bias, name)
