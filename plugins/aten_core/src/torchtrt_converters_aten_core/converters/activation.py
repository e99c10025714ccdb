"""Activation functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt.conversion import is_network_tensor
from torchtrt_converters_aten_core.impl import activation as impl
from torchtrt_converters_aten_core.impl import elementwise, shape, types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts_elementwise,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

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
"""Ops that are one layer with fixed parameters. PyTorch computes whole numbers and booleans in float32."""


@converts_elementwise(*SIMPLE)
def simple(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts an activation that is one layer."""
    kind, parameters = SIMPLE[target]
    tensor = types.cast(ctx, args[0], types.output_dtype(ctx), name + "/input")
    return impl.apply(ctx, kind, tensor, name, **parameters)


@converts_elementwise(aten.relu.default)
def relu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``max(x, 0)``."""
    if ctx.dtype_of(args[0]) is torch.bool:
        return args[0]
    return impl.relu(ctx, args[0], name)


@converts_elementwise(aten.relu6.default)
def relu6(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``min(max(x, 0), 6)``."""
    return elementwise.clamp(ctx, args[0], 0, 6, types.output_dtype(ctx), name)


@converts_elementwise(aten.hardtanh.default)
def hardtanh(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts limits from below and above."""
    op = arguments(target, args, kwargs)
    return elementwise.clamp(ctx, op.self, op.min_val, op.max_val, types.output_dtype(ctx), name)


@converts_elementwise(aten.gelu.default)
def gelu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts GELU, by erf or by tanh."""
    op = arguments(target, args, kwargs)
    return impl.gelu(ctx, op.self, op.approximate, name)


@converts_elementwise(aten.silu.default)
def silu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``x * sigmoid(x)``."""
    return impl.silu(ctx, args[0], name)


@converts_elementwise(aten.leaky_relu.default)
def leaky_relu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a slope for negative numbers."""
    op = arguments(target, args, kwargs)
    return impl.apply(ctx, "LEAKY_RELU", op.self, name, alpha=op.negative_slope)


@converts_elementwise(aten.elu.default)
def elu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``scale * x`` where positive and ``scale * alpha * (exp(input_scale * x) - 1)`` elsewhere."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    if op.scale == 1 and op.input_scale == 1:
        return impl.apply(ctx, "ELU", op.self, name, alpha=op.alpha)
    if op.input_scale == 1:
        return impl.apply(ctx, "SELU", op.self, name, alpha=op.alpha, beta=op.scale)
    scaled = elementwise.arithmetic(ctx, "PROD", op.self, op.input_scale, dtype, name + "/scaled")
    curve = impl.apply(ctx, "SELU", scaled, name + "/curve", alpha=op.alpha, beta=op.scale)
    line = elementwise.arithmetic(ctx, "PROD", op.self, op.scale, dtype, name + "/line")
    positive = elementwise.compare(ctx, "gt", op.self, 0, name + "/positive")
    return elementwise.select(ctx, positive, line, curve, dtype, name)


@converts_elementwise(aten.softplus.default)
def softplus(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``log(1 + exp(beta * x)) / beta`` with its threshold."""
    op = arguments(target, args, kwargs)
    return impl.softplus(ctx, op.self, op.beta, op.threshold, name)


@converts_elementwise(aten.threshold.default)
def threshold(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``x`` where it exceeds a threshold, and a value elsewhere."""
    op = arguments(target, args, kwargs)
    below = elementwise.compare(ctx, "le", op.self, op.threshold, name + "/below")
    return elementwise.select(ctx, below, op.value, op.self, types.output_dtype(ctx), name)


@converts_elementwise(aten.prelu.default, keep_constants=True)
def prelu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a learned slope for negative numbers, one for all or one for each channel."""
    tensor, slope = args
    rank = len(tensor.shape)
    if is_network_tensor(slope):
        by_channel = len(slope.shape) and rank > 2 and slope.shape[0] != 1
        later = range(1, rank - 1) if by_channel else ()
        slope = shape.unsqueeze(ctx, slope, later, name + "/wide")
        if not rank:
            slope = shape.squeeze(ctx, slope, range(len(slope.shape)), name + "/number")
        bent = elementwise.arithmetic(
            ctx, "PROD", tensor, slope, types.output_dtype(ctx), name + "/bent"
        )
        positive = elementwise.compare(ctx, "gt", tensor, 0, name + "/positive")
        return elementwise.select(ctx, positive, tensor, bent, types.output_dtype(ctx), name)
    along = [-1 if dim == min(1, rank - 1) else 1 for dim in range(rank)]
    return impl.prelu(ctx, tensor, slope.reshape(along), name)
