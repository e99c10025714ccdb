"""Convolutions and their transposes, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt_converters_aten_core.impl import convolution as impl
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import converts

aten = torch.ops.aten


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


def _unfit(node: Node) -> str | None:
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
    if any(number < 0 for number in _numbers(op.padding)):
        return "TensorRT has no negative padding"
    extra = _numbers(getattr(op, "output_padding", ()))
    if extra and _is_transposed(node.target, op):
        padding = _each(op.padding, spatial)
        if any(more > size for more, size in zip(_each(extra, spatial), padding, strict=True)):
            return "TensorRT's output padding cannot exceed the padding"
    return None


def _is_transposed(target: Any, op: Any) -> bool:
    return bool(getattr(op, "transposed", target in TRANSPOSED))


def _numbers(value: Any) -> list[int]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _each(value: Any, count: int) -> tuple[int, ...]:
    numbers = list(value) if isinstance(value, Sequence) else [value]
    return tuple(numbers * count if len(numbers) == 1 else numbers)


@converts(*CONVOLUTIONS, *TRANSPOSED, unless=_unfit, keep_constants=True)
def convolution(
    ctx,
    input,
    weight,
    bias,
    stride,
    padding,
    dilation,
    groups,
    output_padding=None,
    transposed=None,
    **_,
):
    """Converts a convolution or a transposed one."""
    kernel_size = tuple(weight.shape)[2:]
    count = len(kernel_size)
    stride, dilation = _each(stride, count), _each(dilation, count)
    if transposed is None:
        transposed = ctx.node.target in TRANSPOSED
    if padding == "same":
        before, after = impl.same_padding(kernel_size, dilation)
    else:
        before = [0] * count if padding == "valid" else list(_each(padding, count))
        after = list(before)
    if transposed:
        extra = _each(output_padding, count)
        after = [padding - more for padding, more in zip(after, extra, strict=True)]
    window = impl.Window(stride, dilation, tuple(before), tuple(after), groups)
    dtype = types.output_dtype(ctx)
    tensor = types.operand(ctx, input, dtype, types.rank_of(input))
    return impl.convolve(ctx, tensor, weight, bias, window, transposed)
