"""Quantize, Dequantize and DynamicQuantize layers of the TensorRT in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkLayer, NetworkTensor
from torchtrt.tensorrt import Capability, supports, to_trt_dtype
from torchtrt_converters_quantization.formats import Format


def add_quantize(
    ctx: ConversionContext,
    source: NetworkTensor,
    scale: NetworkTensor,
    axis: int | None,
    dtype: torch.dtype = torch.int8,
) -> NetworkTensor:
    """Returns a tensor in a quantized dtype, by one float32 scale or one for each index of a dimension."""
    return _add(ctx.net.add_quantize, source, scale, dtype, axis)


def add_dequantize(
    ctx: ConversionContext,
    source: NetworkTensor,
    scale: NetworkTensor,
    axis: int | None,
    dtype: torch.dtype = torch.float32,
) -> NetworkTensor:
    """Returns a quantized tensor as a floating-point dtype.

    No cast follows the layer, which would keep TensorRT from fusing it with its reader. TensorRT 8.6 returns float32,
    which it calls every floating-point dtype.
    """
    return _add(ctx.net.add_dequantize, source, scale, dtype, axis)


def add_quantized_constant(
    ctx: ConversionContext,
    values: torch.Tensor,
    scale: torch.Tensor,
    axis: int | None,
    sizes: Sequence[int] | None = None,
) -> NetworkTensor:
    """Returns a constant in its quantized dtype.

    TensorRT 8.6 does not build int8 constants beside layers that Myelin compiles, such as layer normalization.
    There, a Quantize layer rounds the numbers that int8 stands for back to the same int8.

    Args:
        ctx: The conversion context.
        values: The quantized values.
        scale: Their scale in float32: one number, or a vector along ``axis``.
        axis: The dimension whose indices have a scale each, or ``None``.
        sizes: The shape of the constant, where ``values`` are packed.
    """
    sizes = tuple(values.shape if sizes is None else sizes)
    if values.dtype is not torch.int8 or supports(Capability.QUANTIZED_CONSTANTS):
        return ctx.add_constant(values, sizes)
    values = values.reshape(sizes)
    factor = scale if axis is None else by_channel(scale, values, axis)
    numbers = ctx.add_constant(values.to(torch.float32) * factor)
    return add_quantize(ctx, numbers, ctx.add_constant(scale), axis)


def _add(
    add: Callable[..., NetworkLayer],
    tensor: NetworkTensor,
    scale: NetworkTensor,
    dtype: torch.dtype,
    axis: int | None,
) -> NetworkTensor:
    """Adds a layer that quantizes or dequantizes, per tensor or along ``axis``, and returns its output."""
    takes_dtype = supports(Capability.TYPED_QUANTIZATION)
    layer = add(tensor, scale, to_trt_dtype(dtype)) if takes_dtype else add(tensor, scale)
    if axis is not None:
        layer.axis = axis
    return layer.get_output(0)


def add_dynamic_quantize(
    ctx: ConversionContext,
    source: NetworkTensor,
    kind: Format,
    scale_dtype: torch.dtype,
    double: NetworkTensor | None,
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns quantized values, and the scales of the blocks of their last dimension.

    Args:
        ctx: The conversion context.
        source: A floating-point network tensor of two or three dimensions.
        kind: The format.
        scale_dtype: The dtype of the scales.
        double: A number that the scales are relative to, or ``None``.
    """
    axis = len(source.shape) - 1
    dtypes = to_trt_dtype(kind.dtype), to_trt_dtype(scale_dtype)
    layer = ctx.net.add_dynamic_quantize(source, axis, kind.block, *dtypes)
    if double is not None:
        layer.set_input(1, double)
    return layer.get_output(0), layer.get_output(1)


def reshaped(
    ctx: ConversionContext, tensor: Any, dims: tuple[int, ...] | None, like: Any = None
) -> Any:
    """Returns a tensor in another shape: one of numbers, at most one of them -1, or that of another tensor."""
    layer = ctx.net.add_shuffle(tensor)
    if dims is None:
        layer.set_input(1, ctx.shape_of(like))
    else:
        layer.reshape_dims = dims
    return layer.get_output(0)


def by_channel(values: torch.Tensor, x: torch.Tensor, axis: int) -> torch.Tensor:
    """Returns a vector, one value for each index of a dimension, in a shape that broadcasts with ``x``."""
    return values.reshape([-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])
