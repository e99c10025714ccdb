"""Quantization as PyTorch's export flow writes it: Quantize and Dequantize apart, around what runs in int8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    add,
    arguments_of,
    constant_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import trt
from torchtrt_converters_quantization import pack
from torchtrt_converters_quantization.converters.layers import (
    add_dequantize,
    add_quantize,
    add_quantized_constant,
    by_channel,
)

# PyTorch defines these ops in a module that only quantization imports, so they are given by name.
LIBRARY = "quantized_decomposed"
QUANTIZE = (f"{LIBRARY}::quantize_per_tensor.default", f"{LIBRARY}::quantize_per_tensor.tensor")
DEQUANTIZE = tuple(name.replace("::", "::de") for name in QUANTIZE)
QUANTIZE_CHANNELS = f"{LIBRARY}::quantize_per_channel.default"
DEQUANTIZE_CHANNELS = f"{LIBRARY}::dequantize_per_channel.default"

# A weight that TensorRT is to multiply in int8 must come to it quantized, with its layers.
pack.disable_constant_folding(*QUANTIZE, *DEQUANTIZE, QUANTIZE_CHANNELS, DEQUANTIZE_CHANNELS)


def _constant(argument: Any) -> Any:
    """Returns a number or a constant tensor as a float32 tensor; ``None`` for what the network computes."""
    value = constant_of(argument) if isinstance(argument, Node) else argument
    return None if value is None else torch.as_tensor(value).to(torch.float32)


def unlike_int8(node: Node) -> str | None:
    """Rejects what is not TensorRT's int8: known positive scales, zero points 0, dtype int8."""
    op = arguments_of(node)
    if value_of(op.input).dim() == 0:
        return "TensorRT does not quantize a tensor of no dimensions"
    if op.dtype is not torch.int8:
        return f"{op.dtype}: TensorRT quantizes to int8"
    scale, zero_point = (
        _constant(getattr(op, name if hasattr(op, name) else f"{name}s"))
        for name in ("scale", "zero_point")
    )
    has_zero_points = getattr(op, "zero_points", 0) is not None
    if scale is None or (zero_point is None and has_zero_points):
        return "TensorRT takes scales that are known when the engine is built"
    if not bool(((scale > 0) & scale.isfinite()).all()):
        return "the scales must be positive and finite numbers"
    if has_zero_points and bool(zero_point.any()):
        return "zero points other than 0: TensorRT quantizes symmetrically"
    return None


def unlike_range(node: Node) -> str | None:
    """Rejects ranges other than those of int8, with or without its least number."""
    op = arguments_of(node)
    if (op.quant_min, op.quant_max) in ((-128, 127), (-127, 127)):
        return None
    return f"the range {op.quant_min} to {op.quant_max}: TensorRT's int8 is -128 to 127"


def not_a_weight(node: Node) -> str | None:
    """Rejects scales for each channel of what is no weight: TensorRT has them for constants only."""
    source = arguments_of(node).input
    while isinstance(source, Node) and source.op == "call_function" and source.all_input_nodes:
        source = source.args[0]
    if constant_of(source) is not None:
        return None
    return "TensorRT has a scale for each channel of a weight only"


def not_int8_values(node: Node) -> str | None:
    """Rejects values that were not quantized by a layer and are no weight."""
    source = arguments_of(node).input
    if constant_of(source) is not None:
        return None
    packet = getattr(getattr(source, "target", None), "_qualified_op_name", "")
    is_quantize = str(getattr(source, "target", "")).startswith(f"{LIBRARY}.quantize")
    if packet.startswith(f"{LIBRARY}::quantize") or is_quantize:
        return unlike_int8(source) or unlike_range(source)
    return "TensorRT's int8 is what its layers have quantized, and this comes from elsewhere"


def _limited(
    ctx: ConversionContext,
    source: NetworkTensor | Tensor,
    scale: Tensor,
    minimum: int,
    axis: int | None,
) -> NetworkTensor | Tensor:
    """Returns values that do not become -128 where the range begins at -127."""
    if minimum == -128:
        return source
    rank = len(source.shape)
    shape = [1] * rank
    if axis is not None:
        shape[axis] = -1
    least = (scale.to(torch.float32).reshape(-1) * minimum).reshape(shape)
    if not is_network_tensor(source):
        return torch.maximum(source, least.to(source.dtype))
    bound = ctx.tensor(least.to(ctx.dtype_of(source)))
    return add(ctx, "elementwise", source, bound, trt.ElementWiseOperation.MAX)


@pack.converter(
    *QUANTIZE,
    reject_if=(unlike_int8, unlike_range),
    supports_dynamic_shapes=True,
)
def quantize(
    ctx: ConversionContext,
    input: NetworkTensor | Tensor,
    scale: float | Tensor,
    quant_min: int,
    **_: Any,
) -> NetworkTensor:
    """``clamp(round(x / scale), quant_min, 127)`` as a Quantize layer, halves to even."""
    factor = torch.as_tensor(scale, dtype=torch.float32).reshape(())
    source = ctx.tensor(_limited(ctx, input, factor, quant_min, None))
    return add_quantize(ctx, source, ctx.tensor(factor), None)


@pack.converter(
    *DEQUANTIZE,
    reject_if=(unlike_int8, not_int8_values),
    supports_dynamic_shapes=True,
)
def dequantize(
    ctx: ConversionContext,
    input: NetworkTensor | Tensor,
    scale: float | Tensor,
    out_dtype: torch.dtype | None = None,
    **_: Any,
) -> NetworkTensor:
    """``q * scale`` as a Dequantize layer."""
    factor = torch.as_tensor(scale, dtype=torch.float32).reshape(())
    return _dequantized(ctx, input, factor, None, out_dtype)


@pack.converter(
    QUANTIZE_CHANNELS,
    reject_if=(not_a_weight, unlike_int8, unlike_range),
    supports_dynamic_shapes=True,
)
def quantize_channels(
    ctx: ConversionContext,
    input: NetworkTensor | Tensor,
    scales: Tensor,
    axis: int,
    quant_min: int,
    **_: Any,
) -> NetworkTensor:
    """As above, with one scale for each index of a dimension of a weight."""
    axis %= len(input.shape)
    factors = scales.to(torch.float32)
    source = ctx.tensor(_limited(ctx, input, factors, quant_min, axis))
    return add_quantize(ctx, source, ctx.tensor(factors), axis)


@pack.converter(
    DEQUANTIZE_CHANNELS,
    reject_if=(not_a_weight, unlike_int8, not_int8_values),
    supports_dynamic_shapes=True,
)
def dequantize_channels(
    ctx: ConversionContext,
    input: NetworkTensor | Tensor,
    scales: Tensor,
    axis: int,
    out_dtype: torch.dtype | None = None,
    **_: Any,
) -> NetworkTensor:
    """As above, with one scale for each index of a dimension of a weight."""
    return _dequantized(ctx, input, scales.to(torch.float32), axis % len(input.shape), out_dtype)


def _dequantized(
    ctx: ConversionContext,
    values: NetworkTensor | Tensor,
    scale: Tensor,
    axis: int | None,
    dtype: torch.dtype | None,
) -> NetworkTensor:
    """Returns what int8 stands for, of a weight or of what a Quantize layer returned."""
    if not is_network_tensor(values):
        values = add_quantized_constant(ctx, values, scale, axis)
    return add_dequantize(ctx, values, ctx.tensor(scale), axis, dtype or torch.float32)


# What is not TensorRT's int8 is computed as PyTorch does, with ordinary layers.


def _quantized(
    x: Tensor, scale: Any, zero_point: Any, minimum: Any, maximum: Any, dtype: torch.dtype
) -> Tensor:
    steps = torch.round(x.to(torch.float32) * (1.0 / scale)) + zero_point
    return torch.clamp(steps, minimum, maximum).to(dtype)


@pack.decomposition(QUANTIZE[0])
def quantize_by_arithmetic(
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """``clamp(round(x / scale) + zero_point, quant_min, quant_max)``, in float32."""
    return _quantized(input, scale, zero_point, quant_min, quant_max, dtype)


@pack.decomposition(QUANTIZE[1])
def quantize_by_tensors(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """As above, with a scale and a zero point that are tensors of one element."""
    factor, offset = scale.to(torch.float32).reshape(()), zero_point.to(torch.float32).reshape(())
    return _quantized(input, factor, offset, quant_min, quant_max, dtype)


@pack.decomposition(DEQUANTIZE[0])
def dequantize_by_arithmetic(
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(q - zero_point) * scale``."""
    return ((input.to(torch.float32) - zero_point) * scale).to(out_dtype or torch.float32)


@pack.decomposition(DEQUANTIZE[1])
def dequantize_by_tensors(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """As above, with a scale and a zero point that are tensors of one element."""
    factor, offset = scale.to(torch.float32).reshape(()), zero_point.to(torch.float32).reshape(())
    return ((input.to(torch.float32) - offset) * factor).to(out_dtype or torch.float32)


def _along(x: Tensor, values: Tensor | None, axis: int) -> Tensor:
    """Returns one value for each index of a dimension, in a shape that broadcasts."""
    if values is None:
        return torch.zeros((), dtype=torch.float32)
    return by_channel(values.to(torch.float32), x, axis)


@pack.decomposition(QUANTIZE_CHANNELS)
def quantize_channels_by_arithmetic(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """As above, with a scale and a zero point for each index of a dimension."""
    factors, offsets = (_along(input, parameter, axis) for parameter in (scales, zero_points))
    return _quantized(input, factors, offsets, quant_min, quant_max, dtype)


@pack.decomposition(DEQUANTIZE_CHANNELS)
def dequantize_channels_by_arithmetic(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """As above, with a scale and a zero point for each index of a dimension."""
    factors, offsets = (_along(input, parameter, axis) for parameter in (scales, zero_points))
    return ((input.to(torch.float32) - offsets) * factors).to(out_dtype or torch.float32)
