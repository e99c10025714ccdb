"""Convolutions and their transposes, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.conversion import add_layer, get_weights, is_network_tensor, name_weights
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import shape, types


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution's kernel moves: one number for each spatial dimension.

    Attributes:
        stride: The distance between places.
        dilation: The distance between the kernel's own elements.
        padding_before: Zeros before the first element.
        padding_after: Zeros after the last element.
        groups: Into how many groups the channels fall.
    """

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding_before: tuple[int, ...]
    padding_after: tuple[int, ...]
    groups: int = 1


def convolve(
    ctx: Any, tensor: Any, kernel: Any, bias: Any, window: Window, transposed: bool
) -> Any:
    """Returns a convolution (or a transposed one) of a floating-point tensor.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of shape ``(batch, channels, *spatial)``; without the batch dimension likewise.
        kernel: A PyTorch or network tensor in PyTorch's layout.
        bias: A PyTorch or network tensor of shape ``(out,)``, or ``None``.
        window: How the kernel moves.
        transposed: Whether this is the transposed convolution.
    """
    spatial = len(kernel.shape) - 2
    if len(tensor.shape) == spatial + 1:
        batch = shape.unsqueeze(ctx, tensor, [0])
        result = convolve(ctx, batch, kernel, bias, window, transposed)
        return shape.squeeze(ctx, result, [0])
    if spatial == 1:  # TensorRT convolves over two or three dimensions
        wide = shape.unsqueeze(ctx, tensor, [3])
        result = _layer(ctx, wide, kernel, bias, _widened(window), transposed)
        return shape.squeeze(ctx, result, [3])
    return _layer(ctx, tensor, kernel, bias, window, transposed)


def _widened(window: Window) -> Window:
    return Window(
        (*window.stride, 1),
        (*window.dilation, 1),
        (*window.padding_before, 0),
        (*window.padding_after, 0),
        window.groups,
    )


def _layer(ctx: Any, tensor: Any, kernel: Any, bias: Any, window: Window, transposed: bool) -> Any:
    dtype = ctx.dtype_of(tensor)
    if isinstance(kernel, torch.Tensor):
        kernel = kernel.to(dtype)
    if isinstance(bias, torch.Tensor):
        bias = bias.to(dtype)
    kernel_size = (*tuple(kernel.shape)[2:], 1)[: len(window.stride)]
    channels = kernel.shape[1] * window.groups if transposed else kernel.shape[0]
    kernel_weights = _weights(ctx, kernel)
    bias_weights = trt.Weights() if bias is None else _weights(ctx, bias)
    kind = "deconvolution_nd" if transposed else "convolution_nd"
    layer = add_layer(ctx, kind, tensor, channels, kernel_size, kernel_weights, bias_weights)
    layer.stride_nd = window.stride
    layer.dilation_nd = window.dilation
    layer.pre_padding = window.padding_before
    layer.post_padding = window.padding_after
    layer.num_groups = window.groups
    for place, (value, weights) in enumerate(
        ((kernel, kernel_weights), (bias, bias_weights)), start=1
    ):
        if isinstance(value, torch.Tensor):
            name_weights(ctx, weights, value)
        elif value is not None:
            value = types.cast(ctx, value, dtype)
            if place == 1 and len(value.shape) == 3:
                value = shape.unsqueeze(ctx, value, [3])
            layer.set_input(place, value)
    return layer.get_output(0)


def _weights(ctx: Any, value: Any) -> Any:
    return trt.Weights() if is_network_tensor(value) else get_weights(ctx, value)


def same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns the padding before and after that keeps the size at stride 1; an odd one goes after, as in PyTorch."""
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    before = [total // 2 for total in totals]
    return before, [total - half for total, half in zip(totals, before, strict=True)]
