"""Normalization layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    add,
    add_layer,
    arguments_of,
    constant_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import Capability, trt
from torchtrt_blocks import shape, sizes, types
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


def _normalize(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    dims: Sequence[int],
    scale: NetworkTensor,
    bias: NetworkTensor,
    epsilon: float,
    groups: int = 1,
    kind: str = "normalization",
) -> NetworkTensor:
    """Returns ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` as a single layer.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        dims: The dimensions to take mean and variance over.
        scale: A network tensor of the same dtype and rank.
        bias: A network tensor of the same dtype and rank.
        epsilon: What is added to the variance.
        groups: For group normalization, into how many groups the channels fall.
        kind: ``"normalization_v2"`` for the layer whose scale and bias of groups are those of channels.
    """
    mask = sum(1 << dim for dim in dims)
    layer = add_layer(ctx, kind, tensor, scale, bias, mask)
    layer.epsilon = epsilon
    if groups != 1:
        layer.num_groups = groups
    return layer.get_output(0)


def _affine(
    ctx: ConversionContext,
    value: NetworkTensor | torch.Tensor | None,
    fill: float,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns a scale or bias as a network tensor of ``shape``; ``fill`` everywhere if ``value`` is ``None``."""
    if value is None:
        value = torch.full(tuple(shape), fill)
    if isinstance(value, torch.Tensor):
        return types.get_constant(ctx, value, dtype, tuple(shape))
    return types.operand(ctx, value, dtype, len(shape))


def _scale_channels(
    ctx: ConversionContext, tensor: NetworkTensor, scale: torch.Tensor, shift: torch.Tensor
) -> NetworkTensor:
    """Returns ``tensor * scale + shift`` with one scale and one shift for each channel (dimension 1).

    A single layer, which TensorRT folds into a convolution before it, where the rank allows.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    scale, shift = scale.to(dtype), shift.to(dtype)
    if rank >= 4:
        weights = [ctx.weights(values) for values in (shift, scale)]
        # TensorRT 10 and 11 compare the types of all three weights, also of those without elements.
        power, axis = trt.Weights(weights[0].dtype), 1
        mode = trt.ScaleMode.CHANNEL
        return add(ctx, "scale_nd", tensor, mode, *weights, power, axis)
    shape = [-1 if dim == 1 else 1 for dim in range(rank)]
    return (Formula(ctx, tensor) * scale.reshape(shape) + shift.reshape(shape)).tensor


def _group_norm(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    groups: int,
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
    epsilon: float,
) -> NetworkTensor:
    """Returns a normalization over groups of channels (dimension 1), scaled and shifted by channel."""
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if rank != 4:
        outline = sizes.lazy_shape(ctx, tensor)
        wide = shape.reshape(ctx, tensor, [*outline[:2], -1, 1])
        result = _group_norm(ctx, wide, groups, weight, bias, epsilon)
        source = [*(sizes.symbol_of(ctx, size) for size in outline[:2]), None, 1]
        return shape.reshape(ctx, result, outline, source=source)
    channels = tensor.shape[1]
    fixed = not (is_network_tensor(weight) or is_network_tensor(bias))
    if groups == channels and fixed:  # the layer's own scale and bias are by channel
        scale = _affine(ctx, weight, 1.0, (1, channels, 1, 1), dtype)
        shift = _affine(ctx, bias, 0.0, (1, channels, 1, 1), dtype)
        return _normalize(ctx, tensor, (2, 3), scale, shift, epsilon)
    scale = _affine(ctx, None, 1.0, (1, groups, 1, 1), dtype)
    shift = _affine(ctx, None, 0.0, (1, groups, 1, 1), dtype)
    # Without groups the layer takes each channel alone: one group is all dimensions but the first.
    dims = (1, 2, 3) if groups == 1 else (2, 3)
    result = _normalize(ctx, tensor, dims, scale, shift, epsilon, groups)
    if weight is None and bias is None:
        return result
    if is_network_tensor(weight) or is_network_tensor(bias):
        return _affine_channels(ctx, result, weight, bias)
    weight = torch.ones(channels) if weight is None else weight
    bias = torch.zeros(channels) if bias is None else bias
    return _scale_channels(ctx, result, weight, bias)


def _group_norm_v2(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    groups: int,
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
    epsilon: float,
) -> NetworkTensor:
    """Returns the same as ``_group_norm`` as one layer, with a scale and a bias for each channel."""
    rank, dtype, channels = len(tensor.shape), ctx.dtype_of(tensor), tensor.shape[1]
    if rank == 2:  # a layer needs a dimension behind the channels
        wide = shape.unsqueeze(ctx, tensor, [2])
        result = _group_norm_v2(ctx, wide, groups, weight, bias, epsilon)
        return shape.reshape(ctx, result, sizes.lazy_shape(ctx, tensor))
    form = (1, channels, *[1] * (rank - 2))
    scale = _per_channel(ctx, weight, 1.0, form, dtype)
    shift = _per_channel(ctx, bias, 0.0, form, dtype)
    # Without groups the layer takes each channel alone: one group is all dimensions but the first.
    dims = range(1 if groups == 1 < channels else 2, rank)
    count = 1 if groups == channels else groups
    return _normalize(ctx, tensor, dims, scale, shift, epsilon, count, "normalization_v2")


def _per_channel(
    ctx: ConversionContext,
    value: NetworkTensor | torch.Tensor | None,
    fill: float,
    form: Sequence[int],
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns a scale or bias of channels as a network tensor of ``form``, ``(1, channels, 1, ...)``."""
    if not is_network_tensor(value):
        return _affine(ctx, value, fill, form, dtype)
    parameter = types.operand(ctx, value, dtype, 1)
    return shape.unsqueeze(ctx, parameter, [0, *range(2, len(form))])


def _affine_channels(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
) -> NetworkTensor:
    """Multiplies by the weights and adds the biases of ``(C,)`` along the second dimension; either may be missing."""
    form, dtype, result = (1, tensor.shape[1], 1, 1), ctx.dtype_of(tensor), Formula(ctx, tensor)
    if weight is not None:
        result = result * Formula(ctx, _per_channel(ctx, weight, 1.0, form, dtype))
    if bias is not None:
        result = result + Formula(ctx, _per_channel(ctx, bias, 0.0, form, dtype))
    return result.tensor


def _normalized_sizes_vary(node: Node) -> str | None:
    op = arguments_of(node)
    if all(isinstance(size, int) and size > 0 for size in op.normalized_shape):
        return None
    return "the normalized sizes must be fixed"


@pack.converter(aten.layer_norm.default, reject_if=_normalized_sizes_vary)
def layer_norm(
    ctx: ConversionContext,
    input: NetworkTensor,
    normalized_shape: Sequence[Size],
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
    eps: float,
    **_: Any,
) -> NetworkTensor:
    """Converts a layer normalization over the last dimensions."""
    rank, dtype = len(input.shape), ctx.dtype_of(input)
    dims = range(rank - len(normalized_shape), rank)
    shape = [input.shape[dim] if dim in dims else 1 for dim in range(rank)]
    scale = _affine(ctx, weight, 1.0, shape, dtype)
    shift = _affine(ctx, bias, 0.0, shape, dtype)
    return _normalize(ctx, input, dims, scale, shift, eps)


@pack.converter(aten.rms_norm.default, reject_if=_normalized_sizes_vary)
def rms_norm(
    ctx: ConversionContext,
    input: NetworkTensor,
    normalized_shape: Sequence[Size],
    weight: NetworkTensor | torch.Tensor | None,
    eps: float | None,
) -> NetworkTensor:
    """Converts ``x / sqrt(mean(x * x) + epsilon) * weight`` over the last dimensions; computed in float32."""
    dtype, rank = types.output_dtype(ctx), len(input.shape)
    epsilon = torch.finfo(dtype).eps if eps is None else eps
    x = Formula(ctx, input, torch.float32)
    result = x / ((x**2).mean(range(rank - len(normalized_shape), rank)) + epsilon).sqrt()
    return (result if weight is None else result * weight).cast(ctx.dtype_of(input)).tensor


def _reads_statistics(node: Node) -> str | None:
    if types.reads_first_only(node):
        return None
    return "TensorRT's normalization does not return the mean and the variance"


@pack.converter(
    aten.native_layer_norm.default,
    reject_if=(_normalized_sizes_vary, _reads_statistics),
)
def native_layer_norm(
    ctx: ConversionContext,
    input: NetworkTensor,
    normalized_shape: Sequence[Size],
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
    eps: float,
) -> tuple[NetworkTensor | None, ...]:
    """Converts a layer normalization whose mean and deviation nothing reads."""
    return layer_norm(ctx, input, normalized_shape, weight, bias, eps), None, None


def _statistics_are_not_constant(node: Node) -> str | None:
    op = arguments_of(node)
    if getattr(op, "training", False):
        return "batch normalization in training mode takes its statistics from the batch"
    affine = (parameter for parameter in (op.weight, op.bias) if parameter is not None)
    if any(
        constant_of(parameter) is None for parameter in (*affine, op.running_mean, op.running_var)
    ):
        return "the statistics and parameters of batch normalization must be weights"
    return None


@pack.converter(aten.batch_norm.default, reject_if=_statistics_are_not_constant)
def batch_norm(
    ctx: ConversionContext,
    input: NetworkTensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    eps: float,
    **_: Any,
) -> NetworkTensor:
    """Converts batch normalization with the statistics that training left: a scale and a shift for each channel."""
    scale = (running_var.double() + eps).rsqrt()
    if weight is not None:
        scale = scale * weight.double()
    shift = -running_mean.double() * scale
    if bias is not None:
        shift = shift + bias.double()
    return _scale_channels(ctx, input, scale, shift)


@pack.converter(
    aten._native_batch_norm_legit_no_training.default,
    reject_if=_statistics_are_not_constant,
)
def native_batch_norm(
    ctx: ConversionContext, input: NetworkTensor, **arguments: Any
) -> tuple[NetworkTensor | None, ...]:
    """Converts the same op as inference traces it, whose further results are empty."""
    return batch_norm(ctx, input, **arguments), None, None


def _unsupported_group_norm(node: Node) -> str | None:
    op = arguments_of(node)
    tensor = value_of(op.input)
    if tensor.dim() < 2 or not isinstance(tensor.shape[1], int):
        return "group normalization needs a fixed number of channels"
    if not getattr(op, "use_input_stats", True):
        return "instance normalization with running statistics is batch normalization"
    if getattr(op, "running_mean", None) is not None and op.momentum != 0:
        return "instance normalization in training mode updates its running statistics"
    return None


GROUP_NORMS = (aten.group_norm.default, aten.instance_norm.default)


@pack.converter(
    table={"normalize": dict.fromkeys(GROUP_NORMS, _group_norm)}, reject_if=_unsupported_group_norm
)
@pack.converter(  # which is registered, and so tried, first
    table={"normalize": dict.fromkeys(GROUP_NORMS, _group_norm_v2)},
    reject_if=_unsupported_group_norm,
    requires=Capability.NORMALIZATION_V2,
)
def group_norm(
    ctx: ConversionContext,
    input: NetworkTensor,
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
    eps: float,
    num_groups: int | None = None,
    *,
    normalize: Callable[..., NetworkTensor],
    **_: Any,
) -> NetworkTensor:
    """Converts a normalization over groups of channels, or over each channel alone."""
    groups = input.shape[1] if num_groups is None else num_groups
    return normalize(ctx, input, groups, weight, bias, eps)


def _channels_vary(node: Node) -> str | None:
    op = arguments_of(node)
    if not isinstance(op.C, int):
        return "group normalization needs a fixed number of channels"
    return None


@pack.converter(
    table={"normalize": {aten.native_group_norm.default: _group_norm}},
    reject_if=(_channels_vary, _reads_statistics),
)
@pack.converter(
    table={"normalize": {aten.native_group_norm.default: _group_norm_v2}},
    reject_if=(_channels_vary, _reads_statistics),
    requires=Capability.NORMALIZATION_V2,
)
def native_group_norm(
    ctx: ConversionContext,
    input: NetworkTensor,
    weight: NetworkTensor | torch.Tensor | None,
    bias: NetworkTensor | torch.Tensor | None,
    group: int,
    eps: float,
    *,
    normalize: Callable[..., NetworkTensor],
    **_: Any,
) -> tuple[NetworkTensor, None, None]:
    """Converts a group normalization whose mean and deviation nothing reads."""
    return normalize(ctx, input, group, weight, bias, eps), None, None
