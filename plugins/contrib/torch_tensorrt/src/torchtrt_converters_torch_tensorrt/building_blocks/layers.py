"""Building blocks of products, convolutions, pooling, normalization and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchtrt_converters_torch_tensorrt.building_blocks.table import block


@block("matmul.matrix_multiply")
def _matrix_multiply(
    input: Tensor, other: Tensor, input_matrix_op: Any = None, other_matrix_op: Any = None
) -> Tensor:
    first, second = (
        matrix.mT if getattr(operation, "name", "") == "TRANSPOSE" else matrix
        for matrix, operation in ((input, input_matrix_op), (other, other_matrix_op))
    )
    return torch.matmul(first, second)


def _per_dim(value: Any, count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value)


@block("conv.convNd")
def _convolution(
    is_conv1d: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    output_padding: Any = 0,
    scale: Any = None,
    zero_point: Any = None,
    pre_padding: Sequence[int] | None = None,
    post_padding: Sequence[int] | None = None,
) -> Tensor:
    """Returns a convolution with the arguments of Torch-TensorRT's building block."""
    del is_conv1d, zero_point
    return _convolve(
        *(False, input, weight, bias, stride, padding, dilation, groups, output_padding, scale),
        pre_padding,
        post_padding,
    )


@block("deconv.deconvNd")
def _deconvolution(
    is_deconv1d: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    output_padding: Any = 0,
    scale: Any = None,
    zero_point: Any = None,
) -> Tensor:
    """Convolves with the transposed kernel. The number of dimensions follows from the kernel's shape."""
    del is_deconv1d, zero_point
    return _convolve(
        *(True, input, weight, bias, stride, padding, dilation, groups, output_padding, scale)
    )


def _convolve(
    transposed: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int | None,
    output_padding: Any,
    scale: Any,
    pre_padding: Sequence[int] | None = None,
    post_padding: Sequence[int] | None = None,
) -> Tensor:
    """Returns a convolution with the arguments of Torch-TensorRT's building block."""
    if scale is not None:
        raise NotImplementedError("int8 convolution by a scale: quantize the input instead")
    dims = input.dim() - 2
    if pre_padding is not None or post_padding is not None:
        before, after = _per_dim(pre_padding or 0, dims), _per_dim(post_padding or 0, dims)
        pairs = zip(reversed(before), reversed(after), strict=True)
        input, padding = F.pad(input, [size for pair in pairs for size in pair]), 0
    steps, zeros, gaps = (
        _per_dim(0 if value is None else value, dims) for value in (stride, padding, dilation)
    )
    extra = _per_dim(output_padding, dims)
    return torch.convolution(
        input, weight, bias, steps, zeros, gaps, transposed, extra, groups or 1
    )


@block("pool.max_poolNd")
def _max_pool(
    input: Tensor,
    kernel_size: Sequence[int],
    stride: Any,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Pools by maxima over as many dimensions as the kernel has sizes."""
    pool = getattr(F, f"max_pool{len(kernel_size)}d")
    result: Tensor = pool(input, kernel_size, stride or None, padding, dilation, ceil_mode)
    return result


@block("pool.avg_poolNd")
def _avg_pool(
    input: Tensor,
    kernel_size: Sequence[int],
    stride: Any,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Pools by averages over as many dimensions as the kernel has sizes."""
    pool = getattr(F, f"avg_pool{len(kernel_size)}d")
    extra = () if divisor_override is None else (divisor_override,)
    result: Tensor = pool(
        input, kernel_size, stride or None, padding, ceil_mode, count_include_pad, *extra
    )
    return result


@block("pool.adaptive_avg_poolNd")
def _adaptive_avg_pool(input: Tensor, output_size: Sequence[int]) -> Tensor:
    pool = getattr(F, f"adaptive_avg_pool{len(output_size)}d")
    result: Tensor = pool(input, output_size)
    return result


@block("pad.constant_padNd", sizes=("pad",))
def _constant_pad(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    return F.pad(input, tuple(pad), "constant", value)


@block("upsample.upsample")
def _upsample(
    input: Tensor, size: Any, scale_factor: Any, mode: str, align_corners: bool
) -> Tensor:
    align = align_corners if "linear" in mode or mode == "bicubic" else None
    return F.interpolate(input, size, scale_factor, mode, align)


@block("normalization.batch_norm")
def _batch_norm(
    input: Tensor,
    momentum: float,
    eps: float,
    return_mean_rstd: bool = False,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = False,
    cudnn_enabled: bool = False,
) -> Any:
    """Returns a batch normalization, and empty statistics where the block returns three results."""
    del cudnn_enabled
    normal = F.batch_norm(
        *(input, running_mean, running_var, weight, bias, training, momentum, eps)
    )
    if not return_mean_rstd:
        return normal
    empty = torch.empty(0)
    return normal, empty, empty


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Returns PyTorch's attention, without dropout."""
    return F.scaled_dot_product_attention(
        *(query, key, value, attn_mask, 0.0 * dropout_p, is_causal),
        scale=scale,
        enable_gqa=enable_gqa,
    )


block("attention.scaled_dot_product_attention")(_attention)


@block("attention.tril", sizes=("row", "col"))
def _tril(row: Any, col: Any, sliding_window_size: int | None = None) -> Tensor:
    distance = torch.arange(row)[:, None] - torch.arange(col)[None, :]
    inside = distance >= 0
    return inside if sliding_window_size is None else inside & (distance < sliding_window_size)
