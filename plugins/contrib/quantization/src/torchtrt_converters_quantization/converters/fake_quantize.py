"""Fake quantization: quantize to int8 and back, so that TensorRT can run what lies between in int8."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext
from torchtrt.tensorrt import to_trt_dtype
from torchtrt.tensorrt.shims import is_strongly_typed
from torchtrt_converters_quantization._pack import pack


def unlike_int8(node: Node) -> str | None:
    """Rejects what is not TensorRT's int8: zero point 0 and the range -128 to 127."""
    source, scale, zero_point, minimum, maximum = node.args[:5]
    if source.meta["val"].dim() == 0:
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
    if source.meta["val"].dim() == 0:
        return "TensorRT does not quantize a tensor of no dimensions"
    scales, zero_points = _constant(scale), _constant(zero_point)
    if scales is None or zero_points is None:
        return "TensorRT takes scales that are known when the engine is built"
    if not bool((scales > 0).all()):
        return "the scales must be positive numbers"
    if bool(zero_points.any()):
        return "zero points other than 0: TensorRT quantizes symmetrically"
    if (minimum, maximum) != (-128, 127):
        return f"the range {minimum} to {maximum}: TensorRT's int8 is -128 to 127"
    return None


def _constant(source: Any) -> torch.Tensor | None:
    if not isinstance(source, Node) or source.op != "get_attr":
        return None
    value = attrgetter(str(source.target))(source.graph.owning_module)
    return value if isinstance(value, torch.Tensor) else None


@pack.converter(
    torch.ops.aten.fake_quantize_per_tensor_affine.default,
    unless=unlike_int8,
    supports_dynamic_shapes=True,
)
def fake_quantize_per_tensor_affine(ctx, self, scale, **_):
    """``clamp(round(x / scale), -128, 127) * scale`` with one scale for the whole tensor."""
    return _quantize_and_dequantize(ctx, self, scale, None)


@pack.converter(
    torch.ops.aten.fake_quantize_per_channel_affine.default,
    unless=unlike_int8_per_channel,
    supports_dynamic_shapes=True,
)
def fake_quantize_per_channel_affine(ctx, self, scale, axis, **_):
    """As above, with one scale for each index of dimension ``axis``."""
    return _quantize_and_dequantize(ctx, self, scale, axis % len(self.shape))


def _quantize_and_dequantize(
    ctx: ConversionContext, source: Any, scale: Any, axis: int | None
) -> Any:
    dtype = ctx.dtype_of(source)
    factor = ctx.tensor(scale, torch.float32)
    quantized = _add(ctx.net.add_quantize, source, factor, torch.int8, axis)
    result = _add(ctx.net.add_dequantize, quantized, factor, torch.float32, axis)
    return ctx.tensor(result, dtype)


def _add(add: Any, tensor: Any, scale: Any, dtype: torch.dtype, axis: int | None) -> Any:
    # The form with an output type exists where networks can be strongly typed.
    layer = add(tensor, scale, to_trt_dtype(dtype)) if is_strongly_typed() else add(tensor, scale)
    if axis is not None:
        layer.axis = axis
    return layer.get_output(0)


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
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    factor, offset = scale.reshape(shape), zero_point.reshape(shape).to(torch.float32)
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
    steps = x.to(torch.float32) * inverse
    steps = torch.round(steps + zero_point) if fraction else torch.round(steps) + zero_point
    limited = torch.where(steps == steps, torch.clamp(steps, minimum, maximum), minimum)
    return ((limited - zero_point) * scale).to(x.dtype)
