"""Building blocks that reduce or rank along dimensions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_torch_tensorrt.building_blocks.table import block


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """Returns the dtype of a sum: that of integers stays, as it does in Torch-TensorRT."""
    return torch.int32 if tensor.dtype is torch.bool else tensor.dtype


def dims_of(tensor: Tensor, dim: Any) -> list[int]:
    """Returns the dimensions to reduce: all of them where none is given."""
    if dim is None or dim == [] or dim == ():
        return list(range(tensor.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


@block("reduce.sum")
def _sum(input_val: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    dims = dims_of(input_val, dim)
    return torch.sum(input_val, dims, keepdim, dtype=sum_dtype(input_val))


@block("reduce.prod")
def _prod(input_val: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    for axis in sorted((axis % input_val.dim() for axis in dims_of(input_val, dim)), reverse=True):
        input_val = torch.prod(input_val, axis, keepdim, dtype=sum_dtype(input_val))
    return input_val


@block("reduce.mean")
def _mean(input_val: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    wide = input_val if input_val.is_floating_point() else input_val.to(torch.float32)
    return torch.mean(wide, dims_of(input_val, dim), keepdim)


@block("reduce.amax")
def _amax(input_val: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return torch.amax(input_val, dims_of(input_val, dim), keepdim)


@block("reduce.amin")
def _amin(input_val: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return torch.amin(input_val, dims_of(input_val, dim), keepdim)


@block("reduce.max")
def _max(input_val: Tensor, dim: Any, keepdim: bool, return_indices: bool) -> Any:
    if return_indices:
        return tuple(torch.max(input_val, dim, keepdim))
    return torch.amax(input_val, dims_of(input_val, dim), keepdim)


@block("reduce.min")
def _min(input_val: Tensor, dim: Any, keepdim: bool, return_indices: bool) -> Any:
    if return_indices:
        return tuple(torch.min(input_val, dim, keepdim))
    return torch.amin(input_val, dims_of(input_val, dim), keepdim)


@block("topk.topk")
def _topk(
    input: Tensor,
    k: int,
    dim: int,
    largest: bool = True,
    sorted: bool | None = True,
    return_indices: bool = True,
) -> Any:
    values, indices = torch.topk(input, k, dim, largest, sorted is not False)
    return (values, indices) if return_indices else values


@block("topk.sort")
def _sort(input: Tensor, dim: int, descending: bool, return_indices: bool = True) -> Any:
    values, indices = torch.sort(input, dim=dim, descending=descending)
    return (values, indices) if return_indices else values
