"""Convolutions that TensorRT's layers do not take.

Those of integers become a product for each of the kernel's elements, and ``conv_tbc`` a convolution of ``(batch,
channels, time)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_blocks.sizes import per_dimension
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

LARGEST_KERNEL = 128
"""The maximum number of elements of a kernel: there are about five layers for each."""


def _pad(tensor: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Returns a tensor with zeros around it along a dimension, or with elements taken away."""
    if before < 0 or after < 0:
        end = after if after < 0 else None
        tensor = aten.slice.Tensor(tensor, dim, max(0, -before), end)

    def zeros(amount: int) -> list[Tensor]:
        extents = [*tensor.shape[:dim], amount, *tensor.shape[dim + 1 :]]
        return [tensor.new_zeros(extents)] if amount > 0 else []

    parts = [*zeros(before), tensor, *zeros(after)]
    return torch.cat(parts, dim) if len(parts) > 1 else tensor


def _convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Returns the convolution of ``(batch, channels, *spatial)``; padding is of its own on either side."""
    if input.dtype.is_floating_point:
        raise NotImplementedError("it is for integers")
    size = weight.shape[2:]
    if not all(isinstance(extent, int) for extent in size) or math.prod(size) > LARGEST_KERNEL:
        raise NotImplementedError(f"kernels of integers have at most {LARGEST_KERNEL} elements")
    if input.dim() < weight.dim():
        return _convolve(
            input.unsqueeze(0), weight, bias, stride, before, after, dilation, groups
        ).squeeze(0)
    padded = input
    for dim, amounts in enumerate(zip(before, after, strict=True), start=2):
        padded = _pad(padded, dim, *amounts)
    spans = [gap * (extent - 1) for gap, extent in zip(dilation, size, strict=True)]
    split = padded.unflatten(1, (groups, weight.shape[1]))
    kernel = weight.unflatten(0, (groups, weight.shape[0] // groups))
    total: Tensor | None = None
    for kernel_index in itertools.product(*map(range, size)):
        part = split
        for dim, index in enumerate(kernel_index):
            start = index * dilation[dim]
            end = start - spans[dim] if start < spans[dim] else None  # counted from the end
            part = aten.slice.Tensor(part, dim + 3, start, end, stride[dim])
        chosen = (..., *kernel_index)
        factors = kernel[chosen].reshape(*kernel.shape[:3], *[1] * len(size))
        product = (part.unsqueeze(2) * factors).sum(3, dtype=input.dtype)
        total = product if total is None else total + product
    assert total is not None
    result: Tensor = total.flatten(1, 2)
    return result if bias is None else result + bias.reshape(-1, *[1] * len(size))


@pack.decomposition(aten.conv1d.default)
@pack.decomposition(aten.conv1d.padding)
@pack.decomposition(aten.conv2d.default)
@pack.decomposition(aten.conv2d.padding)
@pack.decomposition(aten.conv3d.default)
@pack.decomposition(aten.conv3d.padding)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Any = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    """Returns a convolution of integers."""
    count = weight.dim() - 2
    gaps = per_dimension(dilation, count)
    spans = [gap * (size - 1) for gap, size in zip(gaps, weight.shape[2:], strict=True)]
    if padding == "same":
        before = [span // 2 for span in spans]
        after = [span - half for span, half in zip(spans, before, strict=True)]
    else:
        amounts = 0 if padding == "valid" else padding
        before = after = list(per_dimension(amounts, count))
    steps = per_dimension(stride, count)
    return _convolve(input, weight, bias, steps, before, after, gaps, groups)


@pack.decomposition(aten.conv_transpose1d.default)
@pack.decomposition(aten.conv_transpose2d.input)
@pack.decomposition(aten.conv_transpose3d.input)
def transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """Returns a transposed convolution of integers: of the input with zeros between its elements."""
    count = weight.dim() - 2
    steps, gaps = per_dimension(stride, count), per_dimension(dilation, count)
    wide = input
    for dim, step in enumerate(steps, start=input.dim() - count):
        if step != 1:
            spread = _pad(wide.unsqueeze(dim + 1), dim + 1, 0, step - 1)
            wide = _pad(spread.flatten(dim, dim + 1), dim, 0, 1 - step)
    turned = weight.flip(list(range(2, weight.dim())))
    turned = turned.unflatten(0, (groups, weight.shape[0] // groups))
    kernel = turned.transpose(1, 2).flatten(0, 1)
    before = [
        gap * (size - 1) - pad
        for gap, size, pad in zip(
            gaps, weight.shape[2:], per_dimension(padding, count), strict=True
        )
    ]
    after = [
        pad + extra for pad, extra in zip(before, per_dimension(output_padding, count), strict=True)
    ]
    return _convolve(wide, kernel, bias, [1] * count, before, after, gaps, groups)


@pack.decomposition(aten.conv_tbc.default)
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Returns the convolution of ``(time, batch, channels)`` with ``(kernel, channels, outputs)``."""
    kernel = weight.permute(2, 1, 0)
    result: Tensor = aten.conv1d.default(self.permute(1, 2, 0), kernel, bias, padding=[pad])
    return result.permute(2, 0, 1)
