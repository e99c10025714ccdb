"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import add_gelu
from torchtrt_converters_aten_core.impl import elementwise, types, unary
from torchtrt_converters_aten_core.impl.layers import add_layer


def apply(
    ctx: Any,
    kind: str,
    tensor: Any,
    name: str,
    alpha: float | None = None,
    beta: float | None = None,
) -> Any:
    """Returns ``kind`` of a floating-point tensor: a single layer.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ActivationType``.
        tensor: A floating-point network tensor.
        name: The layer's name.
        alpha: The function's first parameter, for kinds that have one.
        beta: The function's second parameter, for kinds that have two.
    """
    layer = add_layer(ctx, name, "activation", tensor, getattr(trt.ActivationType, kind))
    if alpha is not None:
        layer.alpha = alpha
    if beta is not None:
        layer.beta = beta
    return layer.get_output(0)


def relu(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns the larger of zero and a tensor of any numeric dtype."""
    dtype = ctx.dtype_of(tensor)
    if dtype.is_floating_point:
        return apply(ctx, "RELU", tensor, name)
    return elementwise.clamp(ctx, tensor, 0, None, dtype, name)


def gelu(ctx: Any, tensor: Any, approximate: str, name: str) -> Any:
    """Returns GELU by erf (``approximate="none"``) or by tanh, in one layer where TensorRT has it."""
    fused = add_gelu(ctx.net, tensor, approximate, name)
    if fused is not None:
        return fused
    dtype = ctx.dtype_of(tensor)
    half = elementwise.arithmetic(ctx, "PROD", tensor, 0.5, dtype, name + "/half")
    if approximate == "tanh":
        inner = _tanh_argument(ctx, tensor, dtype, name)
        curve = apply(ctx, "TANH", inner, name + "/tanh")
    else:
        scaled = elementwise.arithmetic(
            ctx, "PROD", tensor, math.sqrt(0.5), dtype, name + "/scaled"
        )
        curve = unary.apply(ctx, "ERF", scaled, name + "/erf")
    raised = elementwise.arithmetic(ctx, "SUM", curve, 1.0, dtype, name + "/raised")
    return elementwise.combine(ctx, "PROD", half, raised, name)


def _tanh_argument(ctx: Any, tensor: Any, dtype: torch.dtype, name: str) -> Any:
    # sqrt(2 / pi) * (x + 0.044715 * x**3)
    square = elementwise.combine(ctx, "PROD", tensor, tensor, name + "/square")
    cube = elementwise.combine(ctx, "PROD", square, tensor, name + "/cube")
    bent = elementwise.arithmetic(ctx, "PROD", cube, 0.044715, dtype, name + "/bent")
    total = elementwise.combine(ctx, "SUM", tensor, bent, name + "/sum")
    return elementwise.arithmetic(
        ctx, "PROD", total, math.sqrt(2 / math.pi), dtype, name + "/scaled"
    )


def silu(ctx: Any, tensor: Any, name: str) -> Any:
    """Returns ``x * sigmoid(x)``."""
    gate = apply(ctx, "SIGMOID", tensor, name + "/sigmoid")
    return elementwise.combine(ctx, "PROD", tensor, gate, name)


def softplus(ctx: Any, tensor: Any, beta: float, threshold: float, name: str) -> Any:
    """Returns ``log(1 + exp(beta * x)) / beta`` without overflow, and ``x`` where ``beta * x`` exceeds ``threshold``.

    By ``max(z, 0) + log(1 + exp(-|z|))`` for ``z = beta * x``.
    """
    dtype = ctx.dtype_of(tensor)
    scaled = (
        tensor
        if beta == 1
        else elementwise.arithmetic(ctx, "PROD", tensor, beta, dtype, name + "/scaled")
    )
    magnitude = unary.apply(ctx, "ABS", scaled, name + "/magnitude")
    decay = unary.apply(
        ctx, "EXP", unary.negative(ctx, magnitude, name + "/negative"), name + "/decay"
    )
    logarithm = unary.log1p(ctx, decay, name + "/log")
    positive = apply(ctx, "RELU", scaled, name + "/positive")
    soft = elementwise.combine(ctx, "SUM", positive, logarithm, name + "/soft")
    if beta != 1:
        soft = elementwise.arithmetic(ctx, "PROD", soft, 1 / beta, dtype, name + "/unscaled")
    linear = elementwise.compare(ctx, "gt", scaled, threshold, name + "/linear")
    return elementwise.select(ctx, linear, tensor, soft, dtype, name)


def prelu(ctx: Any, tensor: Any, slope: Any, name: str) -> Any:
    """Returns ``x`` where positive and ``slope * x`` elsewhere; ``slope`` broadcasts to the tensor."""
    rank = len(tensor.shape)
    slope = types.operand(ctx, slope, ctx.dtype_of(tensor), rank, name + "/slope")
    return add_layer(ctx, name, "parametric_relu", tensor, slope).get_output(0)
