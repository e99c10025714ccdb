"""Reductions over dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, arguments_of, value_of
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks import integer_reduction as exact
from torchtrt_blocks import reduction as blocks
from torchtrt_blocks import sizes, types
from torchtrt_blocks.checks import sizes_known_before_data
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


TOTALS: dict[object, str] = {
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


def _inexact(node: Node, *, kind: str) -> str | None:
    """Rejects what TensorRT would compute in float32 and what no composition makes exact."""
    dtype = node.meta["val"].dtype
    if not types.is_integer(dtype) or supports(Capability.INTEGER_REDUCTION):
        return None
    op = arguments_of(node)
    tensor = value_of(op.self)
    logical = tensor.dtype is torch.bool
    dims = blocks.all_dims(tensor, getattr(op, "dim", None))
    if not tensor.dim():
        return None
    if exact.has_halves(tensor, dims) and not logical:
        return sizes_known_before_data(node)
    if kind == "PROD" and not logical:
        return (
            "this TensorRT multiplies integers in float32, unless there is a fixed number of them"
        )
    if kind == "SUM":
        count = sizes.maximum_product([tensor.shape[dim] for dim in dims])
        limit = exact.EXACT_LIMIT if logical else exact.SUM_LIMIT
        if count is None or count > limit:
            return f"this TensorRT adds at most {limit} integers exactly"
    return None


@pack.converter(table={"kind": TOTALS}, reject_if=_inexact, supports_empty=True)
def reduce(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    kind: str,
    **_: Any,
) -> NetworkTensor:
    """Converts a sum, product, mean, maximum or minimum."""
    dtype = types.output_dtype(ctx)
    dims = blocks.all_dims(self, dim)
    if dtype is torch.bool:  # maximum and minimum of booleans
        reduce = blocks.any_true if kind == "MAX" else blocks.all_true
        return reduce(ctx, self, dims, keepdim)
    logical = ctx.dtype_of(self) is torch.bool
    tensor = types.cast(ctx, self, dtype)
    if kind in ("MAX", "MIN") and dtype.is_floating_point:
        return blocks.extreme(ctx, kind, tensor, dims, keepdim)
    if (
        dtype.is_floating_point
        or logical
        or not len(tensor.shape)
        or supports(Capability.INTEGER_REDUCTION)
    ):
        return blocks.reduce(ctx, kind, tensor, dims, keepdim)
    if kind == "SUM":
        return exact.total(ctx, tensor, dims, keepdim)
    if exact.has_halves(tensor, dims):
        return exact.by_halves(ctx, kind, tensor, dims, keepdim)
    return exact.exact_extreme(ctx, kind, tensor, dims, keepdim)


TRUTHS = {
    getattr(packet, overload): reduce_booleans
    for packet, reduce_booleans in ((aten.any, blocks.any_true), (aten.all, blocks.all_true))
    for overload in ("default", "dim", "dims")
}
"""Ops that ask whether any element, or every element, is not zero."""


@pack.converter(table={"reduce_booleans": TRUTHS}, supports_empty=True)
def truth(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    reduce_booleans: Callable[..., NetworkTensor],
) -> NetworkTensor:
    """Converts the question whether any element, or every element, is not zero."""
    if isinstance(dim, Sequence) and not dim:  # PyTorch asks this of each element
        return types.cast(ctx, self, torch.bool)
    return reduce_booleans(ctx, self, blocks.all_dims(self, dim), keepdim)


@dataclass(frozen=True, slots=True)
class Spread:
    """A measure of how far elements lie apart.

    Attributes:
        is_deviation: Whether it is the standard deviation, and not the variance.
        with_mean: Whether the op returns the mean, too.
    """

    is_deviation: bool
    with_mean: bool


SPREADS = {
    getattr(getattr(aten, packet), overload): spread
    for packet, spread in {
        "var": Spread(is_deviation=False, with_mean=False),
        "std": Spread(is_deviation=True, with_mean=False),
        "var_mean": Spread(is_deviation=False, with_mean=True),
        "std_mean": Spread(is_deviation=True, with_mean=True),
    }.items()
    for overload in ("correction", "dim", "default")
}


@pack.converter(table={"measure": SPREADS})
def variance(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: Sequence[int] | None = None,
    correction: int | float | bool | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
    *,
    measure: Spread,
) -> NetworkTensor | tuple[NetworkTensor, NetworkTensor]:
    """Converts variance or standard deviation, with the mean if the op returns it; computed in float32 or better."""
    dtype = types.output_dtype(ctx, 0 if measure.with_mean else None)
    if correction is None:
        correction = float(unbiased)
    tensor = types.cast(ctx, self, types.accumulation_dtype(dtype))
    dims = blocks.all_dims(tensor, dim)
    spread, mean = (
        Formula(ctx, moment)
        for moment in blocks.variance(ctx, tensor, dims, float(correction), keepdim)
    )
    result = (spread.sqrt() if measure.is_deviation else spread).cast(dtype).tensor
    return (result, mean.cast(dtype).tensor) if measure.with_mean else result


@pack.converter(aten.linalg_vector_norm.default, aten.norm.Scalar, aten.norm.ScalarOpt_dim)
def norm(
    ctx: ConversionContext,
    self: NetworkTensor,
    ord: int | float | bool | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    p: int | float | bool | None = None,
    **_: Any,
) -> NetworkTensor:
    """Converts a vector norm of any order; half precision is computed in float32, as PyTorch does."""
    order = p if ord is None else ord
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, self, types.accumulation_dtype(dtype))
    dims = blocks.all_dims(tensor, dim)
    result = blocks.norm(ctx, tensor, 2 if order is None else order, dims, keepdim)
    return types.cast(ctx, result, dtype)
