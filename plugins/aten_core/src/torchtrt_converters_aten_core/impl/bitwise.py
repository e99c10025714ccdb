"""Bitwise operations on whole numbers, exact over the full range of two's complement.

TensorRT has none. Whole numbers are cut into bytes by division, a table holds the result for each
pair of bytes, and products with 256, which wrap, put the bytes together. A shift is a product or a
quotient.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from torchtrt.conversion import is_network_tensor
from torchtrt.tensorrt.dtypes import inner_dtype
from torchtrt_converters_aten_core.impl import (
    elementwise,
    indexing,
    shape,
    slicing,
    types,
)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "AND": operator.and_,
    "OR": operator.or_,
    "XOR": operator.xor,
}


def combine(ctx: Any, kind: str, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns ``AND``, ``OR`` or ``XOR`` of two whole numbers, bit by bit.

    Args:
        ctx: The conversion context.
        kind: The operation.
        first: A network tensor, a PyTorch tensor or a number.
        second: A network tensor, a PyTorch tensor or a number; the two broadcast.
        dtype: ``torch.int64`` or ``torch.int32``.
    """
    if kind == "AND" and (remainder := _low_bits(ctx, first, second, dtype)) is not None:
        return remainder
    dtype = inner_dtype(dtype)
    rank = types.common_rank((first, second))
    high, low = (
        _bytes(ctx, value, dtype, rank) for label, value in (("first", first), ("second", second))
    )
    row = elementwise.arithmetic(ctx, "PROD", high, 256, dtype)
    pair = elementwise.combine(ctx, "SUM", row, low)
    numbers = torch.arange(256, dtype=dtype)
    table = OPERATIONS[kind](numbers.unsqueeze(1), numbers).reshape(-1)
    table = ctx.tensor(table)
    return _joined(ctx, indexing.gather(ctx, table, pair, 0), dtype)


def _low_bits(ctx: Any, first: Any, second: Any, dtype: torch.dtype) -> Any:
    """Returns ``first & second`` as a remainder where one is a number with its lowest bits set, else ``None``."""
    if isinstance(first, int):
        first, second = second, first
    if not is_low_mask(second):
        return None
    return elementwise.remainder(ctx, first, second + 1, dtype, "floor")


def is_low_mask(value: Any) -> bool:
    """Returns whether a value is a number with its lowest bits set, and no others."""
    return isinstance(value, int) and 0 < value < 1 << 30 and not value & (value + 1)


def _bytes(ctx: Any, value: Any, dtype: torch.dtype, rank: int) -> Any:
    """Returns the bytes of whole numbers, each from 0 to 255, the lowest first, along a new last dimension."""
    places = torch.tensor([1 << 8 * place for place in range(dtype.itemsize)], dtype=dtype)
    if not is_network_tensor(value):
        number = torch.as_tensor(value).to(dtype).unsqueeze(-1)
        cut = torch.div(number, places, rounding_mode="floor") % 256
        return types.operand(ctx, cut, dtype, rank + 1)
    tensor = types.operand(ctx, value, dtype, rank)
    wide = shape.unsqueeze(ctx, tensor, [rank])
    shifted = elementwise.arithmetic(ctx, "FLOOR_DIV", wide, places, dtype)
    return elementwise.remainder(ctx, shifted, 256, dtype, "floor")


def _joined(ctx: Any, parts: Any, dtype: torch.dtype) -> Any:
    """Returns the whole numbers of which :func:`_bytes` would make these.

    Without a reduction, which TensorRT 8.6 computes in float32 together with what follows it. The
    highest bit of the highest byte is the sign: the products wrap to it.
    """
    last = len(parts.shape) - 1
    total = None
    for place in reversed(range(dtype.itemsize)):
        part = slicing.pick(ctx, parts, last, place)
        if total is None:
            total = part
            continue
        total = elementwise.arithmetic(ctx, "PROD", total, 256, dtype)
        total = elementwise.combine(ctx, "SUM", total, part)
    return total


def invert(ctx: Any, tensor: Any) -> Any:
    """Returns whole numbers with every bit exchanged: ``-1 - x``."""
    return elementwise.arithmetic(ctx, "SUB", -1, tensor, ctx.dtype_of(tensor))


def shift(ctx: Any, tensor: Any, amount: Any, left: bool, dtype: torch.dtype) -> Any:
    """Returns ``tensor << amount`` or ``tensor >> amount``, the latter with the sign kept.

    As in PyTorch on a CPU, an amount that is negative or exceeds the width shifts everything out.

    Args:
        ctx: The conversion context.
        tensor: A network tensor, a PyTorch tensor or a number.
        amount: A network tensor, a PyTorch tensor or a number; the two broadcast.
        left: Whether to shift to the left.
        dtype: ``torch.int64`` or ``torch.int32``.
    """
    dtype = inner_dtype(dtype)
    width = 8 * dtype.itemsize
    if not is_network_tensor(amount):
        amount = torch.as_tensor(amount)
        amount = torch.where((amount < 0) | (amount >= width), width, amount).to(dtype)

    def chosen(table: list[int], label: str) -> Any:
        values = torch.tensor(table, dtype=dtype)
        if not is_network_tensor(amount):
            return values[amount.long()]
        table_ = ctx.tensor(values)
        return indexing.gather(ctx, table_, _inside(ctx, amount, width), 0)

    if left:
        sign = -(1 << (width - 1))
        powers = [*(1 << place for place in range(width - 1)), sign, 0]
        return elementwise.arithmetic(ctx, "PROD", tensor, chosen(powers, "power"), dtype)
    counts = [*range(width), width - 1]
    # No power of two that a signed number holds is as large as its width: two quotients in turn.
    halves = [count // 2 for count in counts]
    half = chosen([1 << part for part in halves], "half")
    rest = chosen([1 << count - part for count, part in zip(counts, halves, strict=True)], "rest")
    part = elementwise.arithmetic(ctx, "FLOOR_DIV", tensor, half, dtype)
    return elementwise.arithmetic(ctx, "FLOOR_DIV", part, rest, dtype)


def _inside(ctx: Any, amount: Any, width: int) -> Any:
    """Returns amounts from 0 to ``width``, which stands for all that are negative or larger."""
    number = types.cast(ctx, amount, torch.int32)
    limited = elementwise.clamp(ctx, number, None, width, torch.int32)
    negative = elementwise.compare(ctx, "lt", limited, 0)
    return elementwise.select(ctx, negative, width, limited, torch.int32)
