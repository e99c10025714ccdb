"""Building blocks that are one call of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from torchtrt_converters_torch_tensorrt.building_blocks.reductions import dims_of, sum_dtype
from torchtrt_converters_torch_tensorrt.building_blocks.table import block
from torchtrt_converters_torch_tensorrt.dtypes import torch_dtype

aten = torch.ops.aten


CALLS: dict[str, Callable[..., Any]] = {
    "unary.isnan": lambda input: torch.isnan(input),
    "unary.sym_not": lambda input_val: torch.logical_not(torch.as_tensor(input_val)),
    "unary.nonzero": lambda input_val: torch.nonzero(input_val),
    "unary.scalar_tensor": lambda scalar, dtype=None: torch.tensor(
        scalar, dtype=torch_dtype(dtype)
    ),
    "elementwise.rsqrt": lambda input: torch.rsqrt(input),
    "elementwise.clamp": lambda input_val, min_val=None, max_val=None: torch.clamp(
        input_val, min_val, max_val
    ),
    "activation.relu": lambda input_val: torch.relu(input_val),
    "activation.sigmoid": lambda input_val: torch.sigmoid(input_val),
    "activation.tanh": lambda input_val: torch.tanh(input_val),
    "activation.leaky_relu": lambda input_val, alpha=0.01: F.leaky_relu(input_val, alpha),
    "activation.selu": lambda input_val: F.selu(input_val),
    "activation.softsign": lambda input_val: F.softsign(input_val),
    "activation.softplus": lambda input_val, beta=1: F.softplus(input_val, beta),
    "activation.gelu": lambda input_val, approximate="none": F.gelu(
        input_val, approximate=approximate
    ),
    "activation.hardtanh": lambda input_val, min_val=-1.0, max_val=1.0: F.hardtanh(
        input_val, min_val, max_val
    ),
    "activation.hard_sigmoid": lambda input_val, alpha, beta: torch.clamp(
        alpha * input_val + beta, 0, 1
    ),
    "activation.scaled_tanh": lambda input_val, alpha, beta: alpha * torch.tanh(beta * input_val),
    "activation.thresholded_relu": lambda input_val, alpha: torch.where(
        input_val > alpha, input_val, 0
    ),
    "prelu.prelu": lambda input, weight: F.prelu(input, weight),
    "shuffle.pixel_shuffle": lambda input, upscale_factor: F.pixel_shuffle(input, upscale_factor),
    "shuffle.pixel_unshuffle": lambda input, downscale_factor: F.pixel_unshuffle(
        input, downscale_factor
    ),
    "permutation.permute": lambda input, permutation: input.permute(*permutation),
    "unsqueeze.unsqueeze": lambda input, dim: torch.unsqueeze(input, dim),
    "slice.cumsum": lambda input, dim: torch.cumsum(input, dim, dtype=sum_dtype(input)),
    "slice.flip": lambda input, dims: torch.flip(input, tuple(dims)),
    "slice.diagonal": lambda input, offset=0, dim1=0, dim2=1: torch.diagonal(
        input, offset, dim1, dim2
    ),
    "slice.as_strided": lambda input, size, stride, storage_offset=None: torch.as_strided(
        input, size, stride, storage_offset
    ),
    "slice_scatter.slice_scatter": lambda input, src, dim, start=None, end=None, step=None: (
        torch.slice_scatter(input, src, dim, start, end, 1 if step is None else step)
    ),
    "split.split": lambda input, split_size_or_sections, dim=0: torch.split(
        input, split_size_or_sections, dim
    ),
    "condition.where": lambda input, other, condition: torch.where(condition, input, other),
    "condition.select": lambda input, other, condition: torch.where(condition, input, other),
    "select.index": lambda input, indices: aten.index.Tensor(input, list(indices)),
    "select.index_select": lambda input, dim, index: torch.index_select(input, dim, index),
    "select.gather": lambda input, dim, index: torch.gather(input, dim, index.to(torch.int64)),
    "select.scatter": lambda input, dim, index, src: torch.scatter(
        input, dim, index.to(torch.int64), src
    ),
    "embedding.embedding": lambda input, weight: F.embedding(input, weight),
    "grid.grid": lambda input, grid, interpolation_mode, padding_mode, align_corners: (
        torch.grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    ),
    "reduce.any": lambda input_val, dim=None, keepdim=False: torch.any(
        input_val, dim=tuple(dims_of(input_val, dim)), keepdim=keepdim
    ),
    "topk.argmax": lambda input, dim, keep_dim=False: torch.argmax(input, dim, keep_dim),
    "topk.argmin": lambda input, dim, keep_dim=False: torch.argmin(input, dim, keep_dim),
    "linear.linear": lambda input, weight, bias=None: F.linear(input, weight, bias),
    "addmm.addmm": lambda input, mat1, mat2, *, beta=1, alpha=1: torch.addmm(
        input, mat1, mat2, beta=beta, alpha=alpha
    ),
    "linalg.cross": lambda input, other, dim: torch.linalg.cross(input, other, dim=dim),
    "pool.adaptive_avg_pool1d": lambda input, output_size: F.adaptive_avg_pool1d(
        input, output_size
    ),
    "pad.reflection_padNd": lambda input, padding: F.pad(input, tuple(padding), "reflect"),
    "pad.replication_padNd": lambda input, padding: F.pad(input, tuple(padding), "replicate"),
    "pad.circular_padNd": lambda input, padding: F.pad(input, tuple(padding), "circular"),
    "pad.pad": lambda input, pad, mode="constant", value=None: F.pad(
        input, tuple(pad), mode, value
    ),
    "normalization.softmax": lambda input, dim, half_to_float=False: torch.softmax(
        input, dim, dtype=torch.float32 if half_to_float else None
    ),
    "normalization.native_layer_norm": lambda input, normalized_shape, weight, bias, eps: (
        torch.native_layer_norm(input, list(normalized_shape), weight, bias, eps)
    ),
    "normalization.native_group_norm": lambda input, weight, bias, N, C, HxW, group, eps: (
        torch.native_group_norm(input, weight, bias, N, C, HxW, group, eps)
    ),
    "normalization.pdist": lambda input, p=2: F.pdist(input, p),
    "normalization.cdist_forward": lambda x1, x2, p, compute_mode=None: aten._cdist_forward(
        x1, x2, p, compute_mode
    ),
}
for _path, _call in CALLS.items():
    block(_path)(_call)
