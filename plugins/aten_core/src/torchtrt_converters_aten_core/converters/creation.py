"""Tensors made from nothing but sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Size, arguments_of, value_of
from torchtrt_blocks import creation as blocks
from torchtrt_blocks import sizes, types
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


FILLED = {
    aten.empty.memory_format: 0,
    aten.empty_strided.default: 0,
    aten.empty_permuted.default: 0,
    aten.new_empty.default: 0,
    aten.new_empty_strided.default: 0,
    aten.zeros.default: 0,
    aten.ones.default: 1,
    aten.full.default: None,
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
    aten.new_full.default: None,
}
"""Ops that fill given sizes, with this number or the one they are given."""
FILLED_LIKE = {
    aten.empty_like.default: 0,
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
    aten.full_like.default: None,
    aten.fill.Scalar: None,
    aten.fill.Tensor: None,
}
"""Ops that fill the shape of another tensor."""


@pack.converter(table={"number": FILLED})
def filled(
    ctx: ConversionContext,
    size: Sequence[Size],
    fill_value: int | float | bool = 0,
    *,
    number: int | None,
    **_: Any,
) -> NetworkTensor:
    """Converts a tensor of given sizes that holds one number."""
    value = fill_value if number is None else number
    return blocks.full(ctx, value, size, types.output_dtype(ctx))


@pack.converter(table={"number": FILLED_LIKE})
def filled_like(
    ctx: ConversionContext,
    self: NetworkTensor,
    fill_value: int | float | bool | None = None,
    value: int | float | bool | NetworkTensor = 0,
    *,
    number: int | None,
    **_: Any,
) -> NetworkTensor:
    """Converts a tensor of another's shape that holds one number."""
    argument = value if fill_value is None else fill_value
    filling = argument if number is None else number
    extents = sizes.sizes_of(ctx, self)
    return blocks.full(ctx, filling, extents, types.output_dtype(ctx))


@pack.converter(aten.scalar_tensor.default)
def scalar_tensor(ctx: ConversionContext, s: int | float | bool, **_: Any) -> NetworkTensor:
    """Converts a number, or a size, as a tensor without dimensions."""
    return types.operand(ctx, s, types.output_dtype(ctx), 0)


def _unclear_range(node: Node) -> str | None:
    """Returns why the engine cannot compute the length of a range, or ``None``. A fixed length is always known."""
    op = arguments_of(node)
    result = node.meta["val"]
    numbers = [
        value_of(getattr(op, name, absent))
        for name, absent in (("start", 0), ("end", None), ("step", 1))
    ]
    if not all(isinstance(number, (int, float, torch.SymInt)) for number in numbers):
        return "the bounds and the step of a range must be numbers or sizes"
    if all(isinstance(number, (int, float)) for number in numbers):
        return None
    parts = math.lcm(*map(blocks.parts_of, numbers))
    if parts > 1 and not result.dtype.is_floating_point:
        return "a range of whole numbers must have whole bounds and steps"
    if isinstance(result.shape[0], int):
        return None
    if isinstance(numbers[-1], torch.SymInt):
        return "a range whose length is known only at run time must have a fixed step"
    limits = [
        sizes.maximum(number) if isinstance(number, torch.SymInt) else abs(number)
        for number in numbers
    ]
    if parts > 1 and (None in limits or parts * max(filter(None, limits)) > _EXACT):
        return "a range whose length is known only at run time must have bounds and a step of few digits"
    return None


_EXACT = 1 << 24
"""The numbers up to this one are exact in float32, and as sizes."""


@pack.converter(
    aten.arange.default, aten.arange.start, aten.arange.start_step, reject_if=_unclear_range
)
def arange(
    ctx: ConversionContext,
    end: Size | float,
    start: Size | float = 0,
    step: Size | float = 1,
    **_: Any,
) -> NetworkTensor:
    """Converts numbers at a fixed distance, from a start to before an end."""
    result = types.output_value(ctx)
    return blocks.arange(ctx, start, end, step, result.shape[0], result.dtype)


@pack.converter(table={"lower": {aten.tril.default: True, aten.triu.default: False}})
def triangle(
    ctx: ConversionContext, self: NetworkTensor, diagonal: Size, *, lower: bool
) -> NetworkTensor:
    """Converts the part of the last two dimensions below (or above) a diagonal, with zeros elsewhere."""
    return blocks.triangle(ctx, self, diagonal, lower, types.output_dtype(ctx))
