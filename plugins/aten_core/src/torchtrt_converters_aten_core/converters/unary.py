"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt_blocks import elementwise, types
from torchtrt_blocks import unary as blocks
from torchtrt_blocks.checks import STORAGE_DTYPES
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten


FLOATING = {
    aten.acos.default: "ACOS",
    aten.acosh.default: "ACOSH",
    aten.asin.default: "ASIN",
    aten.asinh.default: "ASINH",
    aten.atan.default: "ATAN",
    aten.atanh.default: "ATANH",
    aten.cos.default: "COS",
    aten.cosh.default: "COSH",
    aten.erf.default: "ERF",
    aten.special_erf.default: "ERF",
    aten.exp.default: "EXP",
    aten.log.default: "LOG",
    aten.reciprocal.default: "RECIP",
    aten.sin.default: "SIN",
    aten.sinh.default: "SINH",
    aten.sqrt.default: "SQRT",
    aten.tan.default: "TAN",
}
"""Ops that are one layer over floating point; PyTorch computes integers and booleans in float32."""
ROUNDING = {
    aten.ceil.default: "CEIL",
    aten.floor.default: "FLOOR",
    aten.round.default: "ROUND",
}
"""Ops that leave integers as they are."""


@converts_elementwise(table={"kind": FLOATING})
def unary_float(ctx: ConversionContext, self: NetworkTensor, *, kind: str) -> NetworkTensor:
    """Converts a function that is one layer over floating point."""
    tensor = types.cast(ctx, self, types.output_dtype(ctx))
    return blocks.apply(ctx, kind, tensor)


@converts_elementwise(table={"kind": ROUNDING})
def rounding(ctx: ConversionContext, self: NetworkTensor, *, kind: str) -> NetworkTensor:
    """Converts rounding to an integer; ``round`` takes halves to the even one."""
    if not ctx.dtype_of(self).is_floating_point:
        return self
    return blocks.apply(ctx, kind, self)


@converts_elementwise(aten.trunc.default, aten.fix.default)
def truncate(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts rounding toward zero."""
    if not ctx.dtype_of(self).is_floating_point:
        return self
    return blocks.truncate(ctx, self)


@converts_elementwise(aten.abs.default)
def magnitude(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts the magnitude, one layer over floating point and over integers."""
    return self if ctx.dtype_of(self) is torch.bool else blocks.apply(ctx, "ABS", self)


@converts_elementwise(aten.sign.default, aten.sgn.default)
def sign(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts the sign, which is 0 for NaN, where TensorRT's is NaN."""
    dtype = ctx.dtype_of(self)
    if dtype is torch.bool:
        return self
    result = blocks.apply(ctx, "SIGN", self)
    if not dtype.is_floating_point:
        return result
    return elementwise.select(ctx, blocks.is_nan(ctx, self), 0.0, result, types.output_dtype(ctx))


@converts_elementwise(aten.neg.default, aten.negative.default)
def negative(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts negation."""
    return blocks.negative(ctx, self)


ACCURATE = {
    aten.expm1.default: blocks.expm1,
    aten.special_expm1.default: blocks.expm1,
    aten.log1p.default: blocks.log1p,
    aten.special_log1p.default: blocks.log1p,
}
"""Functions that are accurate near 0, computed in float32 or better."""


@converts_elementwise(table={"function": ACCURATE})
def expm1_log1p(
    ctx: ConversionContext, self: NetworkTensor, *, function: Callable[..., NetworkTensor]
) -> NetworkTensor:
    """Converts a function that must not lose the digits of small numbers."""
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, self, types.accumulation_dtype(dtype))
    return types.cast(ctx, function(ctx, tensor), dtype)


@converts_elementwise(aten.isnan.default)
def is_nan(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts the question which elements are NaN."""
    return blocks.is_nan(ctx, self)


@converts_elementwise(aten.isinf.default)
def is_infinite(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts the question which elements are infinite; an integer never is."""
    dtype = ctx.dtype_of(self)
    tensor = self if dtype.is_floating_point else types.cast(ctx, self, torch.float32)
    return blocks.is_infinite(ctx, tensor)


@converts_elementwise(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.positive.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    dtypes=STORAGE_DTYPES,
)
def identity(ctx: ConversionContext, self: NetworkTensor, **_: Any) -> NetworkTensor:
    """Converts an op that copies: the network needs no copy."""
    return self


@converts_elementwise(aten.square.default)
def square(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts a square."""
    return (Formula(ctx, self, types.output_dtype(ctx)) ** 2).tensor


@converts_elementwise(aten.rsqrt.default)
def reciprocal_root(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``1 / sqrt``."""
    return Formula(ctx, self, types.output_dtype(ctx)).sqrt().apply("RECIP").tensor
