"""Activation functions."""

from __future__ import annotations

import math

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, add_layer
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import elementwise, types, unary


def apply(
    ctx: ConversionContext,
    kind: str,
    tensor: NetworkTensor,
    alpha: float | None = None,
    beta: float | None = None,
) -> NetworkTensor:
    """Returns ``kind`` of a floating-point tensor: a single layer.

    Args:
        ctx: The conversion context.
        kind: The name of a ``trt.ActivationType``.
        tensor: A floating-point network tensor.
        alpha: The function's first parameter, for kinds that have one.
        beta: The function's second parameter, for kinds that have two.
    """
    layer = add_layer(ctx, "activation", tensor, getattr(trt.ActivationType, kind))
    if alpha is not None:
        layer.alpha = alpha
    if beta is not None:
        layer.beta = beta
    return layer.get_output(0)


def relu(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns the larger of zero and a tensor of any numeric dtype.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a numeric dtype and any shape.
    """
    dtype = ctx.dtype_of(tensor)
    if dtype.is_floating_point:
        return apply(ctx, "RELU", tensor)
    return elementwise.clamp(ctx, tensor, 0, None, dtype)


def gelu(ctx: ConversionContext, tensor: NetworkTensor, approximate: str) -> NetworkTensor:
    """Returns GELU by erf (``approximate="none"``) or by tanh, in one layer where TensorRT has it.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        approximate: ``"none"`` or ``"tanh"``.
    """
    if supports(Capability.GELU):
        return apply(ctx, "GELU_TANH" if approximate == "tanh" else "GELU_ERF", tensor)
    dtype = ctx.dtype_of(tensor)
    half = elementwise.arithmetic(ctx, "PROD", tensor, 0.5, dtype)
    if approximate == "tanh":
        inner = _tanh_argument(ctx, tensor, dtype)
        curve = apply(ctx, "TANH", inner)
    else:
        scaled = elementwise.arithmetic(ctx, "PROD", tensor, math.sqrt(0.5), dtype)
        curve = unary.apply(ctx, "ERF", scaled)
    raised = elementwise.arithmetic(ctx, "SUM", curve, 1.0, dtype)
    return elementwise.combine(ctx, "PROD", half, raised)


def _tanh_argument(
    ctx: ConversionContext, tensor: NetworkTensor, dtype: torch.dtype
) -> NetworkTensor:
    # sqrt(2 / pi) * (x + 0.044715 * x**3). Only by this layer TensorRT 8.6 sees GELU in it.
    cube = elementwise.arithmetic(ctx, "POW", tensor, 3.0, dtype)
    bent = elementwise.arithmetic(ctx, "PROD", cube, 0.044715, dtype)
    total = elementwise.combine(ctx, "SUM", tensor, bent)
    return elementwise.arithmetic(ctx, "PROD", total, math.sqrt(2 / math.pi), dtype)


def silu(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns ``x * sigmoid(x)``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
    """
    gate = apply(ctx, "SIGMOID", tensor)
    return elementwise.combine(ctx, "PROD", tensor, gate)


def softplus(
    ctx: ConversionContext, tensor: NetworkTensor, beta: float, threshold: float
) -> NetworkTensor:
    """Returns ``log(1 + exp(beta * x)) / beta`` without overflow, and ``x`` where ``beta * x`` exceeds ``threshold``.

    By ``max(z, 0) + log(1 + exp(-|z|))`` for ``z = beta * x``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        beta: The factor of the elements.
        threshold: The limit of ``beta * x``.
    """
    dtype = ctx.dtype_of(tensor)
    scaled = tensor if beta == 1 else elementwise.arithmetic(ctx, "PROD", tensor, beta, dtype)
    magnitude = unary.apply(ctx, "ABS", scaled)
    decay = unary.apply(ctx, "EXP", unary.negative(ctx, magnitude))
    logarithm = unary.log1p(ctx, decay)
    positive = apply(ctx, "RELU", scaled)
    soft = elementwise.combine(ctx, "SUM", positive, logarithm)
    if beta != 1:
        soft = elementwise.arithmetic(ctx, "PROD", soft, 1 / beta, dtype)
    linear = elementwise.compare(ctx, "gt", scaled, threshold)
    return elementwise.select(ctx, linear, tensor, soft, dtype)


def prelu(
    ctx: ConversionContext, tensor: NetworkTensor, slope: NetworkTensor | torch.Tensor
) -> NetworkTensor:
    """Returns ``x`` where positive and ``slope * x`` elsewhere; ``slope`` broadcasts to the tensor.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        slope: A network tensor of the same dtype and rank, or a PyTorch tensor of the rank.
    """
    rank = len(tensor.shape)
    factor = types.operand(ctx, slope, ctx.dtype_of(tensor), rank)
    return add_layer(ctx, "parametric_relu", tensor, factor).get_output(0)
