"""Values combined with what is at the places that indices name."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt_blocks import indexing, shape, types
from torchtrt_blocks import scatter as blocks
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


_WAYS = {
    "add": "sum",
    "multiply": "prod",
    **{way: way for way in ("sum", "prod", "mean", "amax", "amin")},
}
"""How PyTorch's ops name reductions."""


@pack.converter(
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten.scatter.reduce,
    aten.scatter.value_reduce,
)
def scatter(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    dim: int,
    index: NetworkTensor | torch.Tensor,
    src: NetworkTensor | torch.Tensor | None = None,
    value: int | float | bool | None = None,
    reduce: str = "add",
    include_self: bool = True,
) -> NetworkTensor:
    """Converts a scatter that adds, multiplies, averages or takes extremes; each index has its own place."""
    dtype, inner = _dtypes(ctx)
    rank = max(types.rank_of(self), 1)
    tensor = types.operand(ctx, types.upcast(ctx, self, inner), inner, rank)
    index = types.operand(ctx, index, torch.int64, rank)
    src = types.upcast(ctx, src, inner)
    source = indexing.scatter_source(ctx, src, value, index, inner, rank)
    result = blocks.reduce_at(ctx, _WAYS[reduce], tensor, index, source, dim, include_self)
    return _as_given(ctx, result, self, dtype)


@pack.converter(aten.index_add.default, aten.index_reduce.default)
def index_reduce(
    ctx: ConversionContext,
    self: NetworkTensor | torch.Tensor,
    dim: int,
    index: NetworkTensor | torch.Tensor,
    source: NetworkTensor | torch.Tensor,
    reduce: str = "add",
    alpha: int | float | bool = 1,
    include_self: bool = True,
) -> NetworkTensor:
    """Converts slices that are added to those that a vector of indices names, or reduced with them."""
    dtype, inner = _dtypes(ctx)
    rank = max(types.rank_of(self), 1)
    tensor = types.operand(ctx, types.upcast(ctx, self, inner), inner, rank)
    source = types.operand(ctx, types.upcast(ctx, source, inner), inner, rank)
    if alpha != 1:
        source = (Formula(ctx, source, inner) * alpha).tensor
    index = types.operand(ctx, index, torch.int64, 1)
    index = blocks.broadcast_index(ctx, index, rank, dim)
    result = blocks.reduce_at(ctx, _WAYS[reduce], tensor, index, source, dim, include_self)
    return _as_given(ctx, result, self, dtype)


def _as_given(
    ctx: ConversionContext, result: Any, tensor: NetworkTensor | torch.Tensor, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the result with the dtype of the op, and without dimensions where the op's tensor has none."""
    if not types.rank_of(tensor):
        result = shape.squeeze(ctx, result, [0])
    return types.cast(ctx, result, dtype)


def _dtypes(ctx: ConversionContext) -> tuple[torch.dtype, torch.dtype]:
    """Returns the result's dtype and the one to compute in: booleans as numbers, half precision in float32."""
    dtype = types.output_dtype(ctx)
    return dtype, torch.int32 if dtype is torch.bool else types.accumulation_dtype(dtype)
