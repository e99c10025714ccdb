"""Tensors made from nothing but sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Operand,
    Size,
    SymbolicSize,
    is_network_tensor,
)
from torchtrt.errors import ConversionError
from torchtrt.tensorrt import Capability, engine_dtype, supports, to_trt_dtype, trt
from torchtrt_blocks import elementwise, shape, sizes, types
from torchtrt_blocks.sizes import same, symbol_of


def full(
    ctx: ConversionContext, value: Operand, extents: Sequence[Size], dtype: torch.dtype
) -> NetworkTensor:
    """Returns a tensor of the given sizes that holds one value everywhere.

    Args:
        ctx: The conversion context.
        value: A number or a network tensor with one element.
        extents: Numbers or 0-d int32 network tensors.
        dtype: The dtype of the result.
    """
    if not is_network_tensor(value) and sizes.is_static(extents) and 0 in extents:
        empty = torch.empty(tuple(extents), dtype=engine_dtype(dtype))
        return ctx.tensor(empty)
    element = types.operand(ctx, value, dtype, len(extents))
    return shape.expand(ctx, element, extents)


def arange(
    ctx: ConversionContext,
    start: Size | float,
    end: Size | float,
    step: Size | float,
    count: SymbolicSize,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns numbers at a fixed distance.

    Args:
        ctx: The conversion context.
        start: The first number: a number or a 0-d int32 network tensor.
        end: The number to stop before, likewise.
        step: The distance, likewise.
        count: How many there are, from PyTorch's shape.
        dtype: The dtype of the result.
    """
    fixed = [number for number in (start, end, step) if not is_network_tensor(number)]
    if isinstance(count, int) and len(fixed) == 3:
        return ctx.tensor(torch.arange(*fixed, dtype=engine_dtype(dtype)))
    is_from_start = start == 0 and step == 1
    if is_from_start and not isinstance(end, float) and same(symbol_of(ctx, end), count):
        extent: Size = end
    elif isinstance(count, int):
        extent = count
    else:
        extent = _count(ctx, start, end, step)
    is_whole = not any(isinstance(number, float) for number in (start, step))
    whole = engine_dtype(dtype if types.is_integer(dtype) else torch.int32)
    inner = whole if is_whole else torch.float32
    first = types.operand(ctx, start, inner, 0)
    distance = types.operand(ctx, step, inner, 1)
    size = sizes.to_tensor(ctx, [extent])
    fill = trt.FillOperation.LINSPACE
    result = add_fill(ctx.net, size, fill, inner, first, distance)
    return types.cast(ctx, result, dtype)


def add_fill(
    network: Any,
    shape: tuple[int, ...] | NetworkTensor,
    operation: Any,
    dtype: torch.dtype,
    alpha: NetworkTensor | float,
    beta: NetworkTensor | float,
) -> NetworkTensor:
    """Returns a tensor filled by ``operation``.

    Args:
        network: The network.
        shape: A tuple of sizes, or an int32 tensor of shape ``(rank,)`` for sizes known at run
            time.
        operation: A ``trt.FillOperation``.
        dtype: The result's dtype.
        alpha: First parameter (start, low or mean): a Python number for a static shape, a 0-d
            tensor otherwise.
        beta: Second parameter (step, high or deviation): a number, or a tensor (``(rank,)`` for
            LINSPACE).
    """
    dims = shape if isinstance(shape, tuple) else (0,) * shape.shape[0]
    if supports(Capability.STRONG_TYPING):
        layer = network.add_fill(dims, operation, to_trt_dtype(dtype))
    else:
        layer = network.add_fill(dims, operation)
        layer.set_output_type(0, to_trt_dtype(dtype))
    if isinstance(shape, tuple):
        layer.alpha, layer.beta = alpha, beta
    else:
        for index, tensor in enumerate((shape, alpha, beta)):
            layer.set_input(index, tensor)
    result: NetworkTensor = layer.get_output(0)
    return result


def _count(
    ctx: ConversionContext, start: Size | float, end: Size | float, step: Size | float
) -> Size:
    """Returns the number of elements of a range.

    Raises:
        ConversionError: The step is known only at run time.
    """
    if is_network_tensor(step):
        message = "A range whose length is known only at run time must have a fixed step."
        raise ConversionError(message)
    parts = math.lcm(*map(parts_of, (start, end, step)))
    first, last, by = (_times(ctx, number, parts) for number in (start, end, step))
    low, high = (first, last) if step > 0 else (last, first)
    span = sizes.combine(ctx, "SUB", high, low)
    span = sizes.combine(ctx, "MAX", span, 0)
    return sizes.ceil_divide(ctx, span, abs(by))


def parts_of(number: object) -> int:
    """Returns into how many parts 1 is divided so that a number is a whole number of them.

    Args:
        number: A finite number, or a size, which is whole.
    """
    return number.as_integer_ratio()[1] if isinstance(number, float) else 1


def _times(ctx: ConversionContext, number: Size | float, factor: int) -> Any:
    if isinstance(number, float):
        return int(number * factor)
    return sizes.combine(ctx, "PROD", number, factor)


def triangle_mask(
    ctx: ConversionContext, rows: Size, columns: Size, diagonal: Size, lower: bool
) -> NetworkTensor:
    """Returns a bool tensor of shape ``(rows, columns)``: whether ``column - row`` is up to (or from) ``diagonal``.

    Args:
        ctx: The conversion context.
        rows: The number of rows: an ``int`` or a 0-d int32 network tensor.
        columns: The number of columns, likewise.
        diagonal: The diagonal; 0 is the main one.
        lower: Whether the mask holds below the diagonal, and not above.
    """
    if isinstance(rows, int) and isinstance(columns, int) and isinstance(diagonal, int):
        ones = torch.ones(rows, columns, dtype=torch.bool)
        part = torch.tril(ones, diagonal) if lower else torch.triu(ones, diagonal)
        return ctx.tensor(part)
    across = arange(ctx, 0, columns, 1, symbol_of(ctx, columns), torch.int32)
    down = arange(ctx, 0, rows, 1, symbol_of(ctx, rows), torch.int32)
    down = shape.unsqueeze(ctx, down, [1])
    if not (isinstance(diagonal, int) and diagonal == 0):
        down = elementwise.arithmetic(ctx, "SUM", down, diagonal, torch.int32)
    return elementwise.compare(ctx, "le" if lower else "ge", across, down)


def triangle(
    ctx: ConversionContext, tensor: NetworkTensor, diagonal: Size, lower: bool, dtype: torch.dtype
) -> NetworkTensor:
    """Returns ``tensor`` with zeros above (``lower``) or below a diagonal of the last two dimensions.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of at least two dimensions.
        diagonal: The diagonal; 0 is the main one.
        lower: Whether the part below stays, and not the one above.
        dtype: The dtype of the result.
    """
    rows, columns = (sizes.size_of(ctx, tensor, dim) for dim in (-2, -1))
    mask = triangle_mask(ctx, rows, columns, diagonal, lower)
    if dtype is torch.bool:
        return elementwise.logical(ctx, "AND", mask, tensor)
    return elementwise.select(ctx, mask, tensor, 0, dtype)


def indices_along(
    ctx: ConversionContext, tensor: NetworkTensor, dim: int, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the indices along a dimension of a tensor, in a shape that broadcasts to it.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dim: The dimension; negative ones count from the last.
        dtype: The integer dtype of the indices.
    """
    size = sizes.size_of(ctx, tensor, dim)
    numbers = arange(ctx, 0, size, 1, ctx.symbolic_shape(tensor)[dim], dtype)
    others = [index for index in range(len(tensor.shape)) if index != dim % len(tensor.shape)]
    return shape.unsqueeze(ctx, numbers, others)
