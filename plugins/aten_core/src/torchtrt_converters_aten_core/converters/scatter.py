"""Values combined with what is at the places that indices name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import elementwise, indexing, shape, types
from torchtrt_converters_aten_core.impl import scatter as impl
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

_WAYS = {
    "add": "sum",
    "multiply": "prod",
    **{way: way for way in ("sum", "prod", "mean", "amax", "amin")},
}
"""How PyTorch's ops name reductions."""


def _way(op: Any) -> str:
    return _WAYS[getattr(op, "reduce", "add")]


@converts(
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten.scatter.reduce,
    aten.scatter.value_reduce,
    keep_constants=True,
)
def scatter(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a scatter that adds, multiplies, averages or takes extremes; each index has its own place."""
    op = arguments(target, args, kwargs)
    dtype, inner = _dtypes(ctx)
    rank = max(types.rank_of(op.self), 1)
    tensor = types.operand(ctx, op.self, inner, rank, name + "/tensor")
    index = types.operand(ctx, op.index, torch.int64, rank, name + "/index")
    source = indexing.scatter_source(ctx, op, index, inner, rank, name)
    include_self = getattr(op, "include_self", True)
    result = impl.reduce_at(ctx, _way(op), tensor, index, source, op.dim, include_self, name)
    return _as_given(ctx, result, op.self, dtype, name)


@converts(aten.index_add.default, aten.index_reduce.default, keep_constants=True)
def index_reduce(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts slices that are added to those that a vector of indices names, or reduced with them."""
    op = arguments(target, args, kwargs)
    dtype, inner = _dtypes(ctx)
    rank = max(types.rank_of(op.self), 1)
    tensor = types.operand(ctx, op.self, inner, rank, name + "/tensor")
    source = types.operand(ctx, op.source, inner, rank, name + "/source")
    if getattr(op, "alpha", 1) != 1:
        source = elementwise.arithmetic(ctx, "PROD", source, op.alpha, inner, name + "/scaled")
    index = types.operand(ctx, op.index, torch.int64, 1, name + "/index")
    index = impl.broadcast_index(ctx, index, rank, op.dim, name + "/index_wide")
    include_self = getattr(op, "include_self", True)
    result = impl.reduce_at(ctx, _way(op), tensor, index, source, op.dim, include_self, name)
    return _as_given(ctx, result, op.self, dtype, name)


def _as_given(ctx: Any, result: Any, tensor: Any, dtype: torch.dtype, name: str) -> Any:
    """Returns the result with the dtype of the op, and without dimensions where the op's tensor has none."""
    if not types.rank_of(tensor):
        result = shape.squeeze(ctx, result, [0], name + "/scalar")
    return types.cast(ctx, result, dtype, name)


def _dtypes(ctx: Any) -> tuple[torch.dtype, torch.dtype]:
    """Returns the result's dtype and the one to compute in: booleans as numbers, half precision in float32."""
    dtype = types.output_dtype(ctx)
    return dtype, torch.int32 if dtype is torch.bool else types.wide(dtype)
