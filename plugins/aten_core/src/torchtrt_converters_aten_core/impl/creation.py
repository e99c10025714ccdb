"""Tensors made from nothing but sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import get_trt_tensor, is_network_tensor
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import add_fill
from torchtrt_converters_aten_core.impl import elementwise, shape, sizes, types
from torchtrt_converters_aten_core.impl.sizes import Size, same, symbol_of


def full(ctx: Any, value: Any, extents: Sequence[Size], dtype: torch.dtype, name: str) -> Any:
    """Returns a tensor of the given sizes that holds one value everywhere.

    Args:
        ctx: The conversion context.
        value: A number or a network tensor with one element.
        extents: Numbers or 0-d int32 network tensors.
        dtype: The dtype of the result.
        name: The prefix for the names of layers.
    """
    if not is_network_tensor(value) and sizes.is_static(extents) and 0 in extents:
        empty = torch.empty(tuple(extents), dtype=types.network_type(dtype))
        return get_trt_tensor(ctx, empty, name)
    element = types.operand(ctx, value, dtype, len(extents), name + "/value")
    return shape.expand(ctx, element, extents, name)


def arange(
    ctx: Any, start: Size, end: Size, step: Any, count: Any, dtype: torch.dtype, name: str
) -> Any:
    """Returns numbers at a fixed distance.

    Args:
        ctx: The conversion context.
        start: The first number.
        end: The number to stop before.
        step: The distance.
        count: How many there are, as PyTorch knows it.
        dtype: The dtype of the result.
        name: The name of the layer.
    """
    numbers = (start, end, step)
    if isinstance(count, int) and not any(map(is_network_tensor, numbers)):
        return get_trt_tensor(ctx, torch.arange(*numbers, dtype=types.network_type(dtype)), name)
    if start == 0 and step == 1 and same(symbol_of(ctx, end), count):
        extent: Size = end
    elif isinstance(count, int):
        extent = count
    else:
        extent = _count(ctx, start, end, step, name)
    inner = types.network_type(dtype if types.is_integer(dtype) else torch.int32)
    first = types.operand(ctx, start, inner, 0, name + "/start")
    distance = types.operand(ctx, step, inner, 1, name + "/step")
    size = sizes.to_tensor(ctx, [extent], name + "/shape")
    fill = trt.FillOperation.LINSPACE
    result = add_fill(ctx.net, size, fill, inner, first, distance, name)
    return types.cast(ctx, result, dtype, name)


def _count(ctx: Any, start: Size, end: Size, step: int, name: str) -> Size:
    low, high = (start, end) if step > 0 else (end, start)
    span = sizes.combine(ctx, "SUB", high, low, name + "/span")
    span = sizes.combine(ctx, "MAX", span, 0, name + "/length")
    return sizes.ceil_divide(ctx, span, abs(step), name + "/count")


def triangle_mask(
    ctx: Any, rows: Size, columns: Size, diagonal: Size, lower: bool, name: str
) -> Any:
    """Returns a bool tensor of shape ``(rows, columns)``: whether ``column - row`` is at most (least) ``diagonal``."""
    if sizes.is_static((rows, columns, diagonal)):
        ones = torch.ones(rows, columns, dtype=torch.bool)
        part = torch.tril(ones, diagonal) if lower else torch.triu(ones, diagonal)
        return get_trt_tensor(ctx, part, name)
    across = arange(ctx, 0, columns, 1, symbol_of(ctx, columns), torch.int32, name + "/column")
    down = arange(ctx, 0, rows, 1, symbol_of(ctx, rows), torch.int32, name + "/row")
    down = shape.unsqueeze(ctx, down, [1], name + "/row_wide")
    if not (isinstance(diagonal, int) and diagonal == 0):
        down = elementwise.arithmetic(ctx, "SUM", down, diagonal, torch.int32, name + "/diagonal")
    return elementwise.compare(ctx, "le" if lower else "ge", across, down, name)


def triangle(
    ctx: Any, tensor: Any, diagonal: Size, lower: bool, dtype: torch.dtype, name: str
) -> Any:
    """Returns ``tensor`` with zeros above (``lower``) or below a diagonal of the last two dimensions."""
    rows, columns = (sizes.size_of(ctx, tensor, dim, f"{name}/size{dim}") for dim in (-2, -1))
    mask = triangle_mask(ctx, rows, columns, diagonal, lower, name + "/mask")
    if dtype is torch.bool:
        return elementwise.logical(ctx, "AND", mask, tensor, name)
    return elementwise.select(ctx, mask, tensor, 0, dtype, name)


def places(ctx: Any, tensor: Any, dim: int, dtype: torch.dtype, name: str) -> Any:
    """Returns the indices along a dimension of a tensor, in a shape that broadcasts to it."""
    size = sizes.size_of(ctx, tensor, dim, name + "/size")
    numbers = arange(ctx, 0, size, 1, ctx.symbolic_shape(tensor)[dim], dtype, name + "/numbers")
    others = [place for place in range(len(tensor.shape)) if place != dim % len(tensor.shape)]
    return shape.unsqueeze(ctx, numbers, others, name)
