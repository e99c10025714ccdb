"""Reductions over dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.tensorrt.shims import reduces_integers_exactly
from torchtrt_converters_aten_core.impl import integer_reduction as exact
from torchtrt_converters_aten_core.impl import reduction as impl
from torchtrt_converters_aten_core.impl import sizes, types, unary
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

TOTALS = {
    aten.sum.default: "SUM",
    aten.sum.dim_IntList: "SUM",
    aten.prod.default: "PROD",
    aten.prod.dim_int: "PROD",
    aten.mean.default: "AVG",
    aten.mean.dim: "AVG",
    aten.amax.default: "MAX",
    aten.amin.default: "MIN",
    aten.max.default: "MAX",
    aten.min.default: "MIN",
}
"""Ops that are one layer in the dtype of their result."""


def _greatest_count(tensor: torch.Tensor, dims: Any) -> int | None:
    """Returns how many elements at most become one, or ``None`` if nothing bounds them."""
    reduced = impl.all_dims(tensor, dims)
    return sizes.greatest_product([tensor.shape[dim] for dim in reduced] if tensor.dim() else [])


def _inexact(node: Node) -> str | None:
    """Rejects what TensorRT would compute in float32 and what no composition makes exact."""
    dtype = node.meta["val"].dtype
    if not types.is_integer(dtype) or reduces_integers_exactly():
        return None
    op = node_arguments(node)
    tensor, kind = value_of(op.self), TOTALS[node.target]
    logical = tensor.dtype is torch.bool
    dims = impl.all_dims(tensor, getattr(op, "dim", None))
    if not tensor.dim() or (exact.has_halves(tensor, dims) and not logical):
        return None
    if kind == "PROD" and not logical:
        return "this TensorRT multiplies whole numbers in float32, unless there is a fixed number of them"
    if kind == "SUM":
        count = _greatest_count(tensor, getattr(op, "dim", None))
        limit = exact.EXACT_LIMIT if logical else exact.SUM_LIMIT
        if count is None or count > limit:
            return f"this TensorRT adds at most {limit} whole numbers exactly"
    return None


@converts(*TOTALS, unless=_inexact, empty=True)
def total(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a sum, product, mean, maximum or minimum."""
    op = arguments(target, args, kwargs)
    kind, dtype = TOTALS[target], types.output_dtype(ctx)
    dims = impl.all_dims(op.self, getattr(op, "dim", None))
    keep = getattr(op, "keepdim", False)
    if dtype is torch.bool:  # maximum and minimum of booleans
        reduce = impl.any_true if kind == "MAX" else impl.all_true
        return reduce(ctx, op.self, dims, keep, name)
    logical = ctx.dtype_of(op.self) is torch.bool
    tensor = types.cast(ctx, op.self, dtype, name + "/input")
    if kind in ("MAX", "MIN") and dtype.is_floating_point:
        return impl.extreme(ctx, kind, tensor, dims, keep, name)
    if dtype.is_floating_point or logical or not len(tensor.shape) or reduces_integers_exactly():
        return impl.reduce(ctx, kind, tensor, dims, keep, name)
    if exact.has_halves(tensor, dims):
        return exact.by_halves(ctx, kind, tensor, dims, keep, name)
    if kind == "SUM":
        count = _greatest_count(ctx.known_value(op.self), getattr(op, "dim", None))
        return exact.exact_sum(ctx, tensor, dims, keep, count or exact.SUM_LIMIT, name)
    return exact.exact_extreme(ctx, kind, tensor, dims, keep, name)


@converts(aten.any.default, aten.any.dim, aten.any.dims, empty=True)
def any_true(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the question whether any element is not zero."""
    op = arguments(target, args, kwargs)
    dims = impl.all_dims(op.self, getattr(op, "dim", None))
    return impl.any_true(ctx, op.self, dims, getattr(op, "keepdim", False), name)


@converts(aten.all.default, aten.all.dim, aten.all.dims, empty=True)
def all_true(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the question whether all elements are not zero."""
    op = arguments(target, args, kwargs)
    dims = impl.all_dims(op.self, getattr(op, "dim", None))
    return impl.all_true(ctx, op.self, dims, getattr(op, "keepdim", False), name)


VARIANCES = (
    aten.var.correction,
    aten.var.dim,
    aten.var.default,
    aten.std.correction,
    aten.std.dim,
    aten.std.default,
)
VARIANCES_WITH_MEAN = (
    aten.var_mean.correction,
    aten.var_mean.dim,
    aten.var_mean.default,
    aten.std_mean.correction,
    aten.std_mean.dim,
    aten.std_mean.default,
)


@converts(*VARIANCES, *VARIANCES_WITH_MEAN)
def variance(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts variance or standard deviation, and the mean where it is asked for; computed in float32 or better."""
    op = arguments(target, args, kwargs)
    with_mean = target in VARIANCES_WITH_MEAN
    dtype = types.output_dtype(ctx, 0 if with_mean else None)
    correction = getattr(op, "correction", None)
    if correction is None:
        correction = float(getattr(op, "unbiased", True))
    tensor = types.cast(ctx, op.self, types.wide(dtype), name + "/input")
    dims = impl.all_dims(tensor, getattr(op, "dim", None))
    keep = getattr(op, "keepdim", False)
    spread, mean = impl.variance(ctx, tensor, dims, float(correction), keep, name)
    if target.overloadpacket in (aten.std, aten.std_mean):
        spread = unary.apply(ctx, "SQRT", spread, name + "/root")
    spread = types.cast(ctx, spread, dtype, name)
    return (spread, types.cast(ctx, mean, dtype, name + "/mean")) if with_mean else spread


@converts(aten.linalg_vector_norm.default, aten.norm.Scalar, aten.norm.ScalarOpt_dim)
def norm(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a vector norm of any order; half precision is computed in float32, as PyTorch does."""
    op = arguments(target, args, kwargs)
    order = op.ord if target is aten.linalg_vector_norm.default else op.p
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, op.self, types.wide(dtype), name + "/input")
    dims = impl.all_dims(tensor, getattr(op, "dim", None))
    keep = getattr(op, "keepdim", False)
    result = impl.norm(ctx, tensor, 2 if order is None else order, dims, keep, name)
    return types.cast(ctx, result, dtype, name)
