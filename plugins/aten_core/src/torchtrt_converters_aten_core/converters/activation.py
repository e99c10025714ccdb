"""Activation functions."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, is_network_tensor
from torchtrt_blocks import activation as blocks
from torchtrt_blocks import elementwise, shape, types
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten


SIMPLE = {
    aten.sigmoid.default: ("SIGMOID", {}),
    aten.special_expit.default: ("SIGMOID", {}),
    aten.tanh.default: ("TANH", {}),
    aten.selu.default: (
        "SELU",
        {"alpha": 1.6732632423543772848170429916717, "beta": 1.0507009873554804934193349852946},
    ),
    aten.hardsigmoid.default: ("HARD_SIGMOID", {"alpha": 1 / 6, "beta": 0.5}),
}
"""Ops that are one layer with fixed parameters. PyTorch computes integers and booleans in float32."""


@converts_elementwise(table={"activation": SIMPLE})
def simple(
    ctx: ConversionContext, self: NetworkTensor, *, activation: tuple[Any, ...]
) -> NetworkTensor:
    """Converts an activation that is one layer."""
    kind, parameters = activation
    tensor = types.cast(ctx, self, types.output_dtype(ctx))
    return blocks.apply(ctx, kind, tensor, **parameters)


@converts_elementwise(aten.relu.default)
def relu(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``max(x, 0)``."""
    if ctx.dtype_of(self) is torch.bool:
        return self
    return blocks.relu(ctx, self)


@converts_elementwise(aten.relu6.default)
def relu6(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``min(max(x, 0), 6)``."""
    return elementwise.clamp(ctx, self, 0, 6, types.output_dtype(ctx))


@converts_elementwise(aten.hardtanh.default)
def hardtanh(
    ctx: ConversionContext,
    self: NetworkTensor,
    min_val: int | float | bool,
    max_val: int | float | bool,
) -> NetworkTensor:
    """Converts limits from below and above."""
    return elementwise.clamp(ctx, self, min_val, max_val, types.output_dtype(ctx))


@converts_elementwise(aten.gelu.default)
def gelu(ctx: ConversionContext, self: NetworkTensor, approximate: str) -> NetworkTensor:
    """Converts GELU, by erf or by tanh."""
    return blocks.gelu(ctx, self, approximate)


@converts_elementwise(aten.silu.default)
def silu(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts ``x * sigmoid(x)``."""
    return blocks.silu(ctx, self)


@converts_elementwise(aten.leaky_relu.default)
def leaky_relu(
    ctx: ConversionContext, self: NetworkTensor, negative_slope: int | float | bool
) -> NetworkTensor:
    """Converts a slope for negative numbers."""
    return blocks.apply(ctx, "LEAKY_RELU", self, alpha=negative_slope)


@converts_elementwise(aten.elu.default)
def elu(
    ctx: ConversionContext,
    self: NetworkTensor,
    alpha: int | float | bool,
    scale: int | float | bool,
    input_scale: int | float | bool,
) -> NetworkTensor:
    """Converts ``scale * x`` where positive and ``scale * alpha * (exp(input_scale * x) - 1)`` elsewhere."""
    if scale == 1 and input_scale == 1:
        return blocks.apply(ctx, "ELU", self, alpha=alpha)
    if input_scale == 1:
        return blocks.apply(ctx, "SELU", self, alpha=alpha, beta=scale)
    x = Formula(ctx, self, types.output_dtype(ctx))
    curve = blocks.apply(ctx, "SELU", (x * input_scale).tensor, alpha=alpha, beta=scale)
    return (x > 0).where(x * scale, curve).tensor


@converts_elementwise(aten.softplus.default)
def softplus(
    ctx: ConversionContext,
    self: NetworkTensor,
    beta: int | float | bool,
    threshold: int | float | bool,
) -> NetworkTensor:
    """Converts ``log(1 + exp(beta * x)) / beta`` with its threshold."""
    return blocks.softplus(ctx, self, beta, threshold)


@converts_elementwise(aten.threshold.default)
def threshold(
    ctx: ConversionContext,
    self: NetworkTensor,
    threshold: int | float | bool,
    value: int | float | bool,
) -> NetworkTensor:
    """Converts ``x`` where it exceeds a threshold, and a value elsewhere."""
    x = Formula(ctx, self, types.output_dtype(ctx))
    return (x <= threshold).where(value, x).tensor


@converts_elementwise(aten.prelu.default)
def prelu(
    ctx: ConversionContext, self: NetworkTensor | torch.Tensor, weight: NetworkTensor | torch.Tensor
) -> NetworkTensor:
    """Converts a learned slope for negative numbers, one for all or one for each channel."""
    rank = len(self.shape)
    if is_network_tensor(weight):
        by_channel = len(weight.shape) and rank > 2 and weight.shape[0] != 1
        later = range(1, rank - 1) if by_channel else ()
        weight = shape.unsqueeze(ctx, weight, later)
        if not rank:
            weight = shape.squeeze(ctx, weight, range(len(weight.shape)))
        x = Formula(ctx, self, types.output_dtype(ctx))
        return (x > 0).where(x, x * weight).tensor
    along = [-1 if dim == min(1, rank - 1) else 1 for dim in range(rank)]
    return blocks.prelu(ctx, ctx.tensor(self), weight.reshape(along))
