"""Tensors made from nothing but sizes and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import creation as impl
from torchtrt_converters_aten_core.impl import sizes, types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

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


@converts(*FILLED, numbers=True)
def filled(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a tensor of given sizes that holds one number."""
    op = arguments(target, args, kwargs)
    number = FILLED[target]
    value = op.fill_value if number is None else number
    return impl.full(ctx, value, op.size, types.output_dtype(ctx), name)


@converts(*FILLED_LIKE, numbers=True)
def filled_like(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a tensor of another's shape that holds one number."""
    op = arguments(target, args, kwargs)
    number = FILLED_LIKE[target]
    value = getattr(op, "fill_value", getattr(op, "value", None)) if number is None else number
    extents = sizes.sizes_of(ctx, op.self, name + "/size")
    return impl.full(ctx, value, extents, types.output_dtype(ctx), name)


@converts(aten.scalar_tensor.default)
def scalar_tensor(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a number, or a size, as a tensor without dimensions."""
    return types.operand(ctx, args[0], types.output_dtype(ctx), 0, name)


def _unclear_range(node: Node) -> str | None:
    op = node_arguments(node)
    result = node.meta["val"]
    if isinstance(result.shape[0], int):
        return None
    bounds = [value_of(getattr(op, label, 0)) for label in ("start", "end")]
    if all(isinstance(bound, (int, torch.SymInt)) for bound in bounds) and isinstance(
        getattr(op, "step", 1), int
    ):
        return None
    return "a range whose length is known only at run time must have whole bounds and a fixed whole step"


@converts(aten.arange.default, aten.arange.start, aten.arange.start_step, unless=_unclear_range)
def arange(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts numbers at a fixed distance, from a start to before an end."""
    op = arguments(target, args, kwargs)
    result = types.output_value(ctx)
    start, step = getattr(op, "start", 0), getattr(op, "step", 1)
    return impl.arange(ctx, start, op.end, step, result.shape[0], result.dtype, name)


@converts(aten.tril.default, aten.triu.default)
def triangle(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the part of the last two dimensions below (or above) a diagonal, with zeros elsewhere."""
    op = arguments(target, args, kwargs)
    lower = target is aten.tril.default
    return impl.triangle(ctx, op.self, op.diagonal, lower, types.output_dtype(ctx), name)
