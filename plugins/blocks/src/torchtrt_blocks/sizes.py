"""Arithmetic on sizes: integers where they are fixed, 0-d int32 network tensors where they are known at run time.

The expression of a size in the model's symbols travels with it (``ctx.set_known_value``).
Later converters can therefore find two sizes equal before run time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    add,
    add_layer,
    is_network_tensor,
)
from torchtrt.tensorrt import trt


def symbol_of(
    ctx: ConversionContext, size: Size | torch.SymInt | Deferred
) -> int | torch.SymInt | None:
    """Returns what is known of a size before run time: a number, an expression, or ``None``.

    Args:
        ctx: The conversion context.
        size: A size: an ``int``, a symbolic size, a 0-d int32 network tensor or a ``Deferred`` one.
    """
    if isinstance(size, Deferred):
        return size.symbol
    if isinstance(size, (int, torch.SymInt)):
        return size
    size_value = ctx.known_value(size)
    return size_value if isinstance(size_value, (int, torch.SymInt)) else None


def same(first: int | torch.SymInt | None, second: int | torch.SymInt | None) -> bool:
    """Returns whether two sizes are known to be equal, from their expressions alone."""
    if first is None or second is None:
        return False
    if isinstance(first, torch.SymInt) and isinstance(second, torch.SymInt):
        return bool(first.node.expr == second.node.expr)
    return isinstance(first, int) and isinstance(second, int) and first == second


def have_same_sizes(
    first: Sequence[int | torch.SymInt | None], second: Sequence[int | torch.SymInt | None]
) -> bool:
    """Returns whether two shapes are known to be equal, from their expressions alone."""
    return len(first) == len(second) and all(map(same, first, second))


def maximum(symbol: int | torch.SymInt) -> int | None:
    """Returns the most that a size can be, or ``None`` if nothing bounds it."""
    return _bounds(symbol)[1]


def minimum(symbol: int | torch.SymInt) -> int | None:
    """Returns the least that a size can be, or ``None`` if nothing bounds it."""
    return _bounds(symbol)[0]


def is_never_negative(symbol: int | torch.SymInt | None) -> bool:
    """Returns whether a size, or an index that is computed from sizes, is known to be at least 0."""
    least = None if symbol is None else minimum(symbol)
    return least is not None and least >= 0


def is_positive(symbol: int | torch.SymInt | None) -> bool:
    """Returns whether a size is known to be at least 1."""
    least = None if symbol is None else minimum(symbol)
    return least is not None and least > 0


def leaves_int32(symbol: torch.SymInt) -> bool:
    """Returns whether a computed size has bounds beyond int32, the dtype of sizes in a network.

    A size that depends on data may have none: it is one of a tensor, whose sizes are int32.
    """
    int32 = torch.iinfo(torch.int32)
    return any(
        bound is not None and not int32.min <= bound <= int32.max for bound in _bounds(symbol)
    )


def _bounds(symbol: int | torch.SymInt) -> tuple[int | None, int | None]:
    if isinstance(symbol, int):
        return symbol, symbol
    from torchtrt.graphs import size_bounds  # slow to import

    return size_bounds(symbol)


def maximum_product(symbols: Sequence[int | torch.SymInt | None]) -> int | None:
    """Returns the most that a product of sizes can be, or ``None`` if nothing bounds it."""
    result = 1
    for symbol in symbols:
        bound = None if symbol is None else maximum(symbol)
        if bound is None:
            return None
        result *= bound
    return result


def size_of(ctx: ConversionContext, tensor: NetworkTensor, dim: int) -> Size:
    """Returns one size of a tensor.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dim: The dimension; negative ones count from the last.
    """
    dim %= len(tensor.shape)
    size = ctx.size_of(tensor, dim)
    if is_network_tensor(size) and ctx.known_value(size) is None:
        symbol = ctx.symbolic_shape(tensor)[dim]
        if symbol is not None:
            ctx.set_known_value(size, symbol)
    return size


def sizes_of(ctx: ConversionContext, tensor: NetworkTensor) -> list[Size]:
    """Returns all sizes of a tensor.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
    """
    return [size_of(ctx, tensor, dim) for dim in range(len(tensor.shape))]


@dataclass(frozen=True, slots=True)
class Deferred:
    """A size of a tensor that is read at run time only if it is needed.

    Attributes:
        tensor: The network tensor.
        dim: The dimension.
        symbol: What is known of the size before run time.
    """

    tensor: NetworkTensor
    dim: int
    symbol: torch.SymInt | None


def lazy_shape(ctx: ConversionContext, tensor: NetworkTensor) -> list[int | Deferred]:
    """Returns all sizes of a tensor: numbers, and ``Deferred`` ones, which add no layer yet.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
    """
    return [
        symbol if isinstance(symbol, int) else Deferred(tensor, dim, symbol)
        for dim, symbol in enumerate(ctx.symbolic_shape(tensor))
    ]


def resolve(ctx: ConversionContext, size: Size | Deferred) -> Size:
    """Returns a size that can be computed with: a deferred one is read now.

    Args:
        ctx: The conversion context.
        size: An ``int``, a 0-d int32 network tensor or a ``Deferred`` size.
    """
    return size_of(ctx, size.tensor, size.dim) if isinstance(size, Deferred) else size


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": operator.add,
    "SUB": operator.sub,
    "PROD": operator.mul,
    "FLOOR_DIV": operator.floordiv,
    "MIN": torch.sym_min,
    "MAX": torch.sym_max,
}
_NEUTRAL = {"SUM": 0, "SUB": 0, "PROD": 1, "FLOOR_DIV": 1}


def combine(ctx: ConversionContext, kind: str, first: Size, second: Size) -> Size:
    """Returns ``first <kind> second`` for two sizes.

    Args:
        ctx: The conversion context.
        kind: ``"SUM"``, ``"SUB"``, ``"PROD"``, ``"FLOOR_DIV"``, ``"MIN"`` or ``"MAX"``.
        first: A size.
        second: A size.
    """
    if isinstance(first, int) and isinstance(second, int):
        return int(_OPERATIONS[kind](first, second))
    if isinstance(second, int) and second == _NEUTRAL.get(kind):
        return first
    if isinstance(first, int) and kind in ("SUM", "PROD") and first == _NEUTRAL[kind]:
        return second
    tensors = [ctx.tensor(size) for size in (first, second)]
    result = add(ctx, "elementwise", *tensors, getattr(trt.ElementWiseOperation, kind))
    symbols = symbol_of(ctx, first), symbol_of(ctx, second)
    if None not in symbols:
        ctx.set_known_value(result, _OPERATIONS[kind](*symbols))
    return result


def product(ctx: ConversionContext, sizes: Sequence[Size]) -> Size:
    """Returns the product of sizes; 1 for none.

    Args:
        ctx: The conversion context.
        sizes: Sizes: each an ``int`` or a 0-d int32 network tensor.
    """
    result: Size = math.prod(size for size in sizes if isinstance(size, int))
    for size in sizes:
        if not isinstance(size, int):
            result = combine(ctx, "PROD", size, result)
    return result


def ceil_divide(ctx: ConversionContext, size: Size, by: int) -> Size:
    """Returns ``size / by`` rounded up.

    Args:
        ctx: The conversion context.
        size: An ``int`` or a 0-d int32 network tensor.
        by: The divisor, a positive ``int``.
    """
    if by == 1:
        return size
    raised = combine(ctx, "SUM", size, by - 1)
    return combine(ctx, "FLOOR_DIV", raised, by)


def to_tensor(ctx: ConversionContext, sizes: Sequence[Size]) -> NetworkTensor:
    """Returns sizes as one int32 network tensor of shape ``(len(sizes),)``.

    Args:
        ctx: The conversion context.
        sizes: Sizes: each an ``int`` or a 0-d int32 network tensor.
    """
    if not sizes:
        return ctx.tensor(torch.empty(0, dtype=torch.int32))
    if all(isinstance(size, int) for size in sizes):
        return ctx.tensor(torch.tensor(list(sizes), dtype=torch.int32))
    pieces = [ctx.tensor([size]) if isinstance(size, int) else _vector(ctx, size) for size in sizes]
    if len(pieces) == 1:
        return pieces[0]
    layer = add_layer(ctx, "concatenation", pieces)
    layer.axis = 0
    return layer.get_output(0)


def _vector(ctx: ConversionContext, scalar: NetworkTensor) -> NetworkTensor:
    layer = add_layer(ctx, "shuffle", scalar)
    layer.reshape_dims = (1,)
    return layer.get_output(0)


def per_dimension(value: Any, count: int) -> tuple[int, ...]:
    """Returns an op's argument, such as a stride, as one number for each dimension.

    Args:
        value: A number for all dimensions, or a sequence with one number, or with one for each.
        count: How many dimensions there are.
    """
    numbers = tuple(value) if isinstance(value, Sequence) else (value,)
    return numbers * count if len(numbers) == 1 else numbers


def is_static(sizes: Sequence[object]) -> TypeGuard[Sequence[int]]:
    """Returns whether every size is a fixed number."""
    return all(isinstance(size, int) for size in sizes)
