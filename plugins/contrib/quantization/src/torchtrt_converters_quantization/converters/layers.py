"""Quantize and Dequantize layers, and what TensorRT's int8 is."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchtrt.conversion import ConversionContext, NetworkLayer, NetworkTensor
from torchtrt.tensorrt import Capability, supports, to_trt_dtype


def add_quantize(
    ctx: ConversionContext, source: NetworkTensor, scale: NetworkTensor, axis: int | None
) -> NetworkTensor:
    """Returns a tensor as int8, by one float32 scale or one for each index of a dimension."""
    return _add(ctx.net.add_quantize, source, scale, torch.int8, axis)


def add_dequantize(
    ctx: ConversionContext, source: NetworkTensor, scale: NetworkTensor, axis: int | None
) -> NetworkTensor:
    """Returns an int8 tensor as float32."""
    return _add(ctx.net.add_dequantize, source, scale, torch.float32, axis)


def _add(
    add: Callable[..., NetworkLayer],
    tensor: NetworkTensor,
    scale: NetworkTensor,
    dtype: torch.dtype,
    axis: int | None,
) -> NetworkTensor:
    takes_dtype = supports(Capability.TYPED_QUANTIZATION)
    layer = add(tensor, scale, to_trt_dtype(dtype)) if takes_dtype else add(tensor, scale)
    if axis is not None:
        layer.axis = axis
    return layer.get_output(0)


def by_channel(values: torch.Tensor, x: torch.Tensor, axis: int) -> torch.Tensor:
    """Returns a vector, one value for each index of a dimension, in a shape that broadcasts with ``x``."""
    return values.reshape([-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])
