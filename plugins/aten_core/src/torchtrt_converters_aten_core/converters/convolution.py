"""Convolutions and their transposes, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    add_layer,
    arguments_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import Capability, supports, trt
from torchtrt_blocks import padding as padding_blocks
from torchtrt_blocks import shape, types
from torchtrt_blocks.formulas import Formula
from torchtrt_blocks.sizes import per_dimension
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


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


def _convolve(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    kernel: NetworkTensor | torch.Tensor,
    bias: NetworkTensor | torch.Tensor | None,
    window: Window,
    transposed: bool,
) -> NetworkTensor:
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
        result = _convolve(ctx, batch, kernel, bias, window, transposed)
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


def _layer(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    kernel: NetworkTensor | torch.Tensor,
    bias: NetworkTensor | torch.Tensor | None,
    window: Window,
    transposed: bool,
) -> NetworkTensor:
    """Returns the output of a Convolution or Deconvolution layer with a window, and a bias if there is one."""
    dtype = ctx.dtype_of(tensor)
    if transposed and dtype is torch.bfloat16 and not supports(Capability.BFLOAT16_DECONVOLUTION):
        wide = types.cast(ctx, tensor, torch.float32)
        return types.cast(ctx, _layer(ctx, wide, kernel, bias, window, transposed), dtype)
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
    for index, value in enumerate((kernel, bias), start=1):
        if is_network_tensor(value):
            value = types.operand(ctx, value, dtype, len(value.shape))
            if index == 1 and len(value.shape) == 3:
                value = shape.unsqueeze(ctx, value, [3])
            layer.set_input(index, value)
    return layer.get_output(0)


def _weights(ctx: ConversionContext, value: NetworkTensor | torch.Tensor) -> Any:
    return trt.Weights() if is_network_tensor(value) else ctx.weights(value)


def _same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns the padding before and after that keeps the size at stride 1; an odd one goes after, as in PyTorch."""
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    before = [total // 2 for total in totals]
    return before, [total - half for total, half in zip(totals, before, strict=True)]


CONVOLUTIONS = (
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
    aten.convolution.default,
    aten._convolution.default,
    aten._convolution.deprecated,
)
TRANSPOSED = (
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
)

_FIXED = ("stride", "padding", "dilation", "output_padding", "groups")


def _unsupported_convolution(node: Node) -> str | None:
    """Returns why TensorRT cannot compute this convolution, or ``None``."""
    op = arguments_of(node)
    tensor, kernel = value_of(op.input), value_of(op.weight)
    spatial = kernel.dim() - 2
    if not 1 <= spatial <= 3:
        return f"TensorRT convolves over one to three dimensions, not {spatial}"
    if not tensor.dtype.is_floating_point:
        return "TensorRT convolves floating-point numbers only"
    if not isinstance(tensor.shape[tensor.dim() - spatial - 1], int):
        return "the number of channels must be fixed"
    if not all(isinstance(size, int) for size in kernel.shape):
        return "the kernel's sizes must be fixed"
    if any(isinstance(value, Node) for name in _FIXED for value in _values(getattr(op, name, ()))):
        return "strides, paddings, dilations and groups must be fixed"
    if any(not isinstance(value, str) and value < 0 for value in _values(op.padding)):
        return "TensorRT has no negative padding"
    return None


def _values(option: Any) -> Sequence[Any]:
    """Returns the values of an option: one for each dimension, or one for all."""
    return option if isinstance(option, (list, tuple)) else (option,)


@pack.converter(
    table={"is_transposed": dict.fromkeys(CONVOLUTIONS, False) | dict.fromkeys(TRANSPOSED, True)},
    reject_if=_unsupported_convolution,
)
def convolution(
    ctx: ConversionContext,
    input: NetworkTensor | torch.Tensor,
    weight: NetworkTensor | torch.Tensor,
    bias: NetworkTensor | torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
    output_padding: Sequence[int] = (),
    transposed: bool | None = None,
    *,
    is_transposed: bool,
    **_: Any,
) -> NetworkTensor:
    """Converts a convolution or a transposed one."""
    kernel_size = tuple(weight.shape)[2:]
    count = len(kernel_size)
    stride, dilation = per_dimension(stride, count), per_dimension(dilation, count)
    transposed = is_transposed if transposed is None else transposed
    if padding == "same":
        before, after = _same_padding(kernel_size, dilation)
    else:
        amounts = 0 if isinstance(padding, str) else padding
        before = list(per_dimension(amounts, count))
        after = list(before)
    if transposed:
        extra = per_dimension(output_padding, count)
        after = [padding - more for padding, more in zip(after, extra, strict=True)]
    beyond = [max(0, -amount) for amount in after]
    window = Window(stride, dilation, tuple(before), tuple(max(0, pad) for pad in after), groups)
    dtype = types.output_dtype(ctx)
    tensor = types.operand(ctx, input, dtype, types.rank_of(input))
    if not any(beyond):
        return _convolve(ctx, tensor, weight, bias, window, transposed)
    # What output padding adds beyond the padding no element reaches: there is the bias alone.
    result = _convolve(ctx, tensor, weight, None, window, transposed)
    kept = [0] * (len(result.shape) - count)
    result = padding_blocks.pad(ctx, result, [0] * len(result.shape), [*kept, *beyond], "FILL", 0)
    if bias is None:
        return result
    bias = shape.unsqueeze(ctx, types.operand(ctx, bias, dtype, 1), range(1, count + 1))
    return (Formula(ctx, result, dtype) + bias).tensor
