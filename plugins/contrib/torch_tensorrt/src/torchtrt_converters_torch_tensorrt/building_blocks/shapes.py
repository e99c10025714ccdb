"""Building blocks that make tensors, and that move or choose their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt.conversion import add
from torchtrt_converters_torch_tensorrt.building_blocks.table import block, layer_block
from torchtrt_converters_torch_tensorrt.dtypes import torch_dtype
from torchtrt_converters_torch_tensorrt.tracing import building_block

aten = torch.ops.aten


@block("arange.arange", sizes=("start", "end", "step"))
def _arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    chosen = torch_dtype(dtype)
    if chosen is None and not any(isinstance(number, float) for number in (start, end, step)):
        chosen = torch.int32
    return torch.arange(start, end, step, dtype=chosen)


@block("full.full", sizes=("shape",))
def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    chosen = torch_dtype(dtype)
    if chosen is None:
        chosen = torch.tensor(fill_value).dtype
    return torch.full(shape, fill_value, dtype=chosen)


@block("cast.to_copy")
def _to_copy(input: Tensor, dtype: Any, force_layer: bool = False) -> Tensor:
    del force_layer
    return input.to(torch_dtype(dtype))


@layer_block("shape.shape")
def _shape(
    ctx: Any, target: Any, source_ir: Any, name: str, input_val: Any, dim: int | None = None
) -> Any:
    """Returns one size as an int32 tensor of shape ``(1,)``, or all of them as one of shape ``(rank,)``."""
    del target, source_ir
    with ctx.part(name):
        shape = ctx.shape_of(ctx.tensor(input_val))
        if dim is None:
            return shape
        index = ctx.tensor([dim % len(input_val.shape)], torch.int32)
        return add(ctx, "gather", shape, index, 0)


@layer_block("shape.numel")
def _numel(ctx: Any, target: Any, source_ir: Any, name: str, input_val: Any) -> Any:
    """Returns how many elements there are, as an int32 tensor of shape ``(1,)``."""
    shape = _shape(ctx, target, source_ir, name, input_val)
    return _PRODUCT(ctx, target, source_ir, name, shape)


_PRODUCT = building_block(lambda shape: torch.prod(shape, 0, keepdim=True, dtype=torch.int32))


@layer_block("shape.get_shape_with_dynamic_shape")
def _get_shape_with_dynamic_shape(
    ctx: Any, target: Any, source_ir: Any, name: str, shape: Sequence[int], input_val: Any
) -> Any:
    """Returns sizes as an int32 vector, in which each -1 is the size that a tensor has there."""
    del target, source_ir
    with ctx.part(name):
        sizes = ctx.tensor(list(shape), torch.int32)
        if all(size >= 0 for size in shape):
            return sizes
        is_given = ctx.tensor([size >= 0 for size in shape], torch.bool)
        return add(ctx, "select", is_given, sizes, ctx.shape_of(ctx.tensor(input_val)))


@block("shuffle.reshape", sizes=("shape",))
def _reshape(input: Tensor, shape: Any) -> Tensor:
    return torch.reshape(input, tuple(shape))


@block("permutation.roll", sizes=("shifts",))
def _roll(input: Tensor, shifts: Any, dims: Any) -> Tensor:
    return torch.roll(input, shifts, dims)


@block("squeeze.squeeze")
def _squeeze(input: Tensor, dim: Any = None) -> Tensor:
    if dim is None:
        return torch.squeeze(input)
    return torch.squeeze(input, dim if isinstance(dim, int) else tuple(dim))


@block("unsqueeze.broadcast_in_dim", sizes=("shape",))
def _broadcast_in_dim(input_t: Tensor, shape: Any, broadcast_dimensions: Sequence[int]) -> Tensor:
    for dim in range(len(shape)):
        if dim not in broadcast_dimensions:
            input_t = input_t.unsqueeze(dim)
    return input_t.expand(tuple(shape))


@block("slice.slice_op", sizes=("start", "stop"))
def _slice_op(input: Tensor, dim: int, start: Any, stop: Any, step: int = 1) -> Tensor:
    result: Tensor = aten.slice.Tensor(input, dim, start, stop, step)
    return result


@block("slice.base.slice", sizes=("start", "shape"))
def _slice(input: Tensor, start: Any, shape: Any, stride: Sequence[int]) -> Tensor:
    for dim, (first, size, step) in enumerate(zip(start, shape, stride, strict=True)):
        input = aten.slice.Tensor(input, dim, first, first + (size - 1) * step + 1, step)
    return input


@block("slice.expand", sizes=("shape",))
def _expand(input_t: Tensor, shape: Any) -> Tensor:
    return input_t.expand(tuple(shape))


@block("slice.tile", sizes=("dims",))
def _tile(input: Tensor, dims: Any) -> Tensor:
    return torch.tile(input, tuple(dims))


@block("cat.cat")
def _cat(input: Sequence[Tensor], dim: int, cast_dtype: Any = None) -> Tensor:
    joined = torch.cat([torch.as_tensor(tensor) for tensor in input], dim)
    return joined if cast_dtype is None else joined.to(torch_dtype(cast_dtype))


@block("select.select", sizes=("index",))
def _select(input: Tensor, dim: int, index: Any) -> Tensor:
    return torch.select(input, dim, index)


@block("select.index_put_converter")
def _index_put(
    input_tensor: Tensor, input_indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Tensor:
    values = torch.as_tensor(values, dtype=input_tensor.dtype)
    result: Tensor = aten.index_put.default(input_tensor, list(input_indices), values, accumulate)
    return result
