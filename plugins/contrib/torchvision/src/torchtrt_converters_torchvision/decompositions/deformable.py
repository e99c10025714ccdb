"""Deformable convolution: each point of the kernel is read at a place that an offset moves."""

from __future__ import annotations

import torch
from torch import Tensor

from torchtrt_converters_torchvision import pack
from torchtrt_converters_torchvision.decompositions.sampling import pixel_rows, sample_with_zeros


@pack.decomposition("torchvision::deform_conv2d")
def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Returns ``(n, channels, out_h, out_w)``: samples of the image for each point of the kernel, times the weights."""
    count, channels, height, width = input.shape
    out_channels, group_channels, kernel_h, kernel_w = weight.shape
    points, (out_h, out_w) = kernel_h * kernel_w, offset.shape[2:]
    moved = offset.to(torch.float32).reshape(-1, offset_groups, points, 2, out_h, out_w)

    def base(size: int, kernel: int, stride: int, pad: int, dilation: int) -> Tensor:
        ends = torch.arange(size, dtype=torch.float32, device=input.device) * stride - pad
        taps = torch.arange(kernel, dtype=torch.float32, device=input.device) * dilation
        return taps[:, None] + ends

    rows = base(out_h, kernel_h, stride_h, pad_h, dilation_h)[:, None, :, None]
    columns = base(out_w, kernel_w, stride_w, pad_w, dilation_w)[None, :, None, :]
    y = moved[:, :, :, 0] + rows.expand(-1, kernel_w, -1, out_w).reshape(points, out_h, out_w)
    x = moved[:, :, :, 1] + columns.expand(kernel_h, -1, out_h, -1).reshape(points, out_h, out_w)
    # Each group of offsets looks into images of its own, (n, group) of them.
    images = input.reshape(-1, channels // offset_groups, height, width)
    numbers = torch.arange(count * offset_groups, device=input.device)
    first = (numbers * (height * width)).reshape(-1, offset_groups, 1, 1, 1)
    samples = sample_with_zeros(pixel_rows(images), first, y, x, height, width)
    if use_mask:
        share = mask.to(torch.float32).reshape(-1, offset_groups, points, out_h, out_w)
        samples = samples * share.unsqueeze(-1)
    # (n, group, point, y, x, channel) to a matrix for each group of the convolution
    taken = samples.permute(0, 1, 5, 2, 3, 4).to(input.dtype)
    matrix = taken.reshape(-1, groups, group_channels * points, out_h * out_w)
    kernel = weight.reshape(groups, out_channels // groups, group_channels * points)
    result = torch.matmul(kernel, matrix).reshape(-1, out_channels, out_h, out_w)
    return result + bias.reshape(-1, 1, 1)
