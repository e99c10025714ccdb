"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import add, add_layer, get_constant, get_weights, is_network_tensor
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types, unary
from torchtrt_converters_aten_core.impl.reduction import reduce


def normalize(
    ctx: Any,
    tensor: Any,
    dims: Sequence[int],
    scale: Any,
    bias: Any,
    epsilon: float,
    groups: int = 1,
) -> Any:
    """Returns ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` as a single layer.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        dims: The dimensions to take mean and variance over.
        scale: A network tensor of the same dtype and rank.
        bias: A network tensor of the same dtype and rank.
        epsilon: What is added to the variance.
        groups: For group normalization, into how many groups the channels fall.
    """
    mask = sum(1 << dim for dim in dims)
    layer = add_layer(ctx, "normalization", tensor, scale, bias, mask)
    layer.epsilon = epsilon
    if groups != 1:
        layer.num_groups = groups
    return layer.get_output(0)


def affine(ctx: Any, value: Any, fill: float, shape: Sequence[int], dtype: torch.dtype) -> Any:
    """Returns a scale or bias as a network tensor of ``shape``; ``fill`` everywhere if ``value`` is ``None``."""
    if value is None:
        value = torch.full(tuple(shape), fill)
    if isinstance(value, torch.Tensor):
        return get_constant(ctx, value, dtype, tuple(shape))
    return types.operand(ctx, value, dtype, len(shape))


def layer_norm(ctx: Any, tensor: Any, count: int, weight: Any, bias: Any, epsilon: float) -> Any:
    """Returns a layer normalization over the last ``count`` dimensions, whose sizes are fixed."""
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    dims = range(rank - count, rank)
    shape = [tensor.shape[dim] if dim in dims else 1 for dim in range(rank)]
    scale = affine(ctx, weight, 1.0, shape, dtype)
    shift = affine(ctx, bias, 0.0, shape, dtype)
    return normalize(ctx, tensor, dims, scale, shift, epsilon)


def rms_norm(ctx: Any, tensor: Any, count: int, weight: Any, epsilon: float) -> Any:
    """Returns ``x / sqrt(mean(x * x) + epsilon) * weight`` over the last ``count`` dimensions; computed in float32."""
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    wide = types.cast(ctx, tensor, torch.float32)
    square = elementwise.combine(ctx, "PROD", wide, wide)
    mean = reduce(ctx, "AVG", square, range(rank - count, rank), True)
    shifted = elementwise.arithmetic(ctx, "SUM", mean, epsilon, torch.float32)
    root = unary.apply(ctx, "SQRT", shifted)
    if weight is None:
        result = elementwise.combine(ctx, "DIV", wide, root)
        return types.cast(ctx, result, dtype)
    unit = elementwise.combine(ctx, "DIV", wide, root)
    result = elementwise.arithmetic(ctx, "PROD", unit, weight, torch.float32)
    return types.cast(ctx, result, dtype)


def scale_channels(ctx: Any, tensor: Any, scale: torch.Tensor, shift: torch.Tensor) -> Any:
    """Returns ``tensor * scale + shift`` with one scale and one shift for each channel (dimension 1).

    A single layer, which TensorRT folds into a convolution before it, where the rank allows.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    scale, shift = scale.to(dtype), shift.to(dtype)
    if rank >= 4:
        weights = [get_weights(ctx, values) for values in (shift, scale)]
        power, axis = trt.Weights(), 1
        mode = trt.ScaleMode.CHANNEL
        return add(ctx, "scale_nd", tensor, mode, *weights, power, axis)
    shape = [-1 if dim == 1 else 1 for dim in range(rank)]
    scaled = elementwise.arithmetic(ctx, "PROD", tensor, scale.reshape(shape), dtype)
    return elementwise.arithmetic(ctx, "SUM", scaled, shift.reshape(shape), dtype)


def group_norm(ctx: Any, tensor: Any, groups: int, weight: Any, bias: Any, epsilon: float) -> Any:
    """Returns a normalization over groups of channels (dimension 1), scaled and shifted by channel."""
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if rank != 4:
        outline = sizes.outline(ctx, tensor)
        wide = shape.reshape(ctx, tensor, [*outline[:2], -1, 1])
        result = group_norm(ctx, wide, groups, weight, bias, epsilon)
        source = [*(sizes.symbol_of(ctx, size) for size in outline[:2]), None, 1]
        return shape.reshape(ctx, result, outline, source=source)
    channels = tensor.shape[1]
    fixed = not (is_network_tensor(weight) or is_network_tensor(bias))
    if groups == channels and fixed:  # the layer's own scale and bias are by channel
        scale = affine(ctx, weight, 1.0, (1, channels, 1, 1), dtype)
        shift = affine(ctx, bias, 0.0, (1, channels, 1, 1), dtype)
        return normalize(ctx, tensor, (2, 3), scale, shift, epsilon)
    scale = affine(ctx, None, 1.0, (1, groups, 1, 1), dtype)
    shift = affine(ctx, None, 0.0, (1, groups, 1, 1), dtype)
    # Without groups the layer takes each channel alone: one group is all dimensions but the first.
    dims = (1, 2, 3) if groups == 1 else (2, 3)
    plain = weight is None and bias is None
    result = normalize(ctx, tensor, dims, scale, shift, epsilon, groups)
    if plain:
        return result
    if not fixed:
        return _affine_channels(ctx, result, weight, bias)
    weight = torch.ones(channels) if weight is None else weight
    bias = torch.zeros(channels) if bias is None else bias
    return scale_channels(ctx, result, weight, bias)


def _affine_channels(ctx: Any, tensor: Any, weight: Any, bias: Any) -> Any:
    dtype = ctx.dtype_of(tensor)
    for kind, value in (("PROD", weight), ("SUM", bias)):
        if value is not None:
            parameter = types.operand(ctx, value, dtype, 1)
            parameter = shape.unsqueeze(ctx, parameter, [1, 2])
            tensor = elementwise.arithmetic(ctx, kind, tensor, parameter, dtype)
    return tensor


def batch_norm(
    ctx: Any,
    tensor: Any,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    epsilon: float,
) -> Any:
    """Returns a batch normalization with fixed statistics, folded into one scale and one shift for each channel."""
    scale = (variance.double() + epsilon).rsqrt()
    if weight is not None:
        scale = scale * weight.double()
    shift = -mean.double() * scale
    if bias is not None:
        shift = shift + bias.double()
    return scale_channels(ctx, tensor, scale, shift)
