"""Fake quantization: quantize to int8 and back, so that TensorRT can run what lies between in int8."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, constant_of, value_of
from torchtrt_converters_quantization import pack
from torchtrt_converters_quantization.converters.layers import (
    add_dequantize,
    add_quantize,
    by_channel,
)


def unlike_int8(node: Node) -> str | None:
    """Rejects what is not TensorRT's int8: zero point 0 and the range -128 to 127."""
    source, scale, zero_point, minimum, maximum = node.args[:5]
    if value_of(source).dim() == 0:
        return "TensorRT does not quantize a tensor of no dimensions"
    if not isinstance(scale, float) or scale <= 0:
        return "the scale must be a positive number"
    if zero_point != 0:
        return f"zero point {zero_point}: TensorRT quantizes symmetrically"
    if (minimum, maximum) != (-128, 127):
        return f"the range {minimum} to {maximum}: TensorRT's int8 is -128 to 127"
    return None


def unlike_int8_per_channel(node: Node) -> str | None:
    """Rejects scales that are not known, zero points other than 0 and ranges other than -128 to 127."""
    source, scale, zero_point, _, minimum, maximum = node.args
    if value_of(source).dim() == 0:
        return "TensorRT does not quantize a tensor of no dimensions"
    scales, zero_points = constant_of(scale), constant_of(zero_point)
    if scales is None or zero_points is None:
        return "TensorRT takes scales that are known when the engine is built"
    if not bool((scales > 0).all()):
        return "the scales must be positive numbers"
    if bool(zero_points.any()):
        return "zero points other than 0: TensorRT quantizes symmetrically"
    if (minimum, maximum) != (-128, 127):
        return f"the range {minimum} to {maximum}: TensorRT's int8 is -128 to 127"
    return None


@pack.converter(
    torch.ops.aten.fake_quantize_per_tensor_affine.default,
    reject_if=unlike_int8,
    supports_dynamic_shapes=True,
)
def fake_quantize_per_tensor_affine(
    ctx: ConversionContext, self: NetworkTensor, scale: float, **_: Any
) -> NetworkTensor:
    """``clamp(round(x / scale), -128, 127) * scale`` with one scale for the whole tensor."""
    return _quantize_and_dequantize(ctx, self, scale, None)


@pack.converter(
    torch.ops.aten.fake_quantize_per_channel_affine.default,
    reject_if=unlike_int8_per_channel,
    supports_dynamic_shapes=True,
)
def fake_quantize_per_channel_affine(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    scale: torch.Tensor,
    axis: int,
    **_: Any,
) -> NetworkTensor:
    """As above, with one scale for each index of dimension ``axis``."""
    return _quantize_and_dequantize(ctx, ctx.tensor(self), scale, axis % len(self.shape))


def _quantize_and_dequantize(
    ctx: ConversionContext, source: NetworkTensor, scale: float | torch.Tensor, axis: int | None
) -> NetworkTensor:
    dtype = ctx.dtype_of(source)
    factor = ctx.tensor(scale, torch.float32)
    quantized = add_quantize(ctx, source, factor, axis)
    return add_dequantize(ctx, quantized, factor, axis, dtype)


# A weight that TensorRT is to multiply in int8 must come to it with these layers.
pack.disable_constant_folding(
    torch.ops.aten.fake_quantize_per_tensor_affine.default,
    torch.ops.aten.fake_quantize_per_channel_affine.default,
)

# What is not TensorRT's int8 is computed as PyTorch does, with ordinary layers.


@pack.decomposition(torch.ops.aten.fake_quantize_per_tensor_affine.default)
def quantize_by_arithmetic(
    x: torch.Tensor, scale: float, zero_point: int, minimum: int, maximum: int
) -> torch.Tensor:
    """``(clamp(round(x / scale) + zero_point, minimum, maximum) - zero_point) * scale``, in float32."""
    factor = torch.tensor(scale, dtype=torch.float32)
    return _quantized(x, float(factor), float(1 / factor), zero_point, minimum, maximum)


@pack.decomposition(torch.ops.aten.fake_quantize_per_tensor_affine.tensor_qparams)
def quantize_by_tensors(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, minimum: int, maximum: int
) -> torch.Tensor:
    """As above, with a scale and a zero point that are tensors of one element."""
    factor, offset = scale.reshape(()), zero_point.reshape(()).to(torch.float32)
    return _quantized(x, factor, 1 / factor, offset, minimum, maximum)


@pack.decomposition(torch.ops.aten.fake_quantize_per_channel_affine.default)
def quantize_channels_by_arithmetic(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    axis: int,
    minimum: int,
    maximum: int,
) -> torch.Tensor:
    """As above, with a scale and a zero point for each index of a dimension; fractions are added before rounding."""
    factor = by_channel(scale, x, axis)
    offset = by_channel(zero_point, x, axis).to(torch.float32)
    fraction = zero_point.dtype.is_floating_point
    return _quantized(x, factor, 1 / factor, offset, minimum, maximum, fraction)


def _quantized(
    x: torch.Tensor,
    scale: Any,
    inverse: Any,
    zero_point: Any,
    minimum: int,
    maximum: int,
    fraction: bool = False,
) -> torch.Tensor:
    """Rounds ``x`` to the steps of the scale, in float32, and returns the values in the dtype of ``x``.

    NaN becomes ``minimum``. With ``fraction`` the zero point is added before rounding.
    """
    steps = x.to(torch.float32) * inverse
    steps = torch.round(steps + zero_point) if fraction else torch.round(steps) + zero_point
    limited = torch.where(steps == steps, torch.clamp(steps, minimum, maximum), minimum)
    values: torch.Tensor = (limited - zero_point) * scale
    return values.to(x.dtype)


# What automatic differentiation makes of them: the values, and which of them are within the range.


def reads_mask(node: Node) -> str | None:
    """Rejects nodes whose second output, the mask, is read."""
    if all(user.target is operator.getitem and user.args[1] == 0 for user in node.users):
        return None
    return "which values are within the range is read"


@pack.converter(
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default,
    reject_if=(reads_mask, unlike_int8),
    supports_dynamic_shapes=True,
)
def fake_quantize_with_mask(
    ctx: ConversionContext, self: NetworkTensor, scale: float, **_: Any
) -> tuple[NetworkTensor, None]:
    """As without the mask."""
    return _quantize_and_dequantize(ctx, self, scale, None), None


@pack.converter(
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default,
    reject_if=(reads_mask, unlike_int8_per_channel),
    supports_dynamic_shapes=True,
)
def fake_quantize_channels_with_mask(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    scale: torch.Tensor,
    axis: int,
    **_: Any,
) -> tuple[NetworkTensor, None]:
    """As without the mask."""
    return _quantize_and_dequantize(ctx, ctx.tensor(self), scale, axis % len(self.shape)), None


def _with_mask(
    x: torch.Tensor, factor: Any, offset: Any, minimum: int, maximum: int, fraction: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    steps = x.to(torch.float32) * (1 / factor)
    steps = torch.round(steps + offset) if fraction else torch.round(steps) + offset
    values = _quantized(x, factor, 1 / factor, offset, minimum, maximum, fraction)
    return values, (steps >= minimum) & (steps <= maximum)


@pack.decomposition(torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default)
def quantize_with_mask_by_arithmetic(
    x: torch.Tensor, scale: float, zero_point: int, minimum: int, maximum: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The values and the mask, by one scale."""
    factor = torch.tensor(scale, dtype=torch.float32)
    return _with_mask(x, factor, zero_point, minimum, maximum)


@pack.decomposition(torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default)
def quantize_channels_with_mask_by_arithmetic(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    axis: int,
    minimum: int,
    maximum: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The values and the mask, by a scale for each index of a dimension."""
    factor = by_channel(scale, x, axis)
    offset = by_channel(zero_point, x, axis).to(torch.float32)
    fraction = zero_point.dtype.is_floating_point
    return _with_mask(x, factor, offset, minimum, maximum, fraction)
