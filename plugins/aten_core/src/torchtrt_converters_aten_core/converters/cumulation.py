"""Running totals along a dimension."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt_blocks import cumulation as blocks
from torchtrt_blocks import shape, types
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


KINDS = {
    aten.cumsum.default: "SUM",
    aten.cumprod.default: "PROD",
    aten.logcumsumexp.default: "LOGSUMEXP",
}
EXTREMES = {aten.cummax.default: "MAX", aten.cummin.default: "MIN"}


@pack.converter(table={"kind": KINDS})
def cumulate(
    ctx: ConversionContext, self: NetworkTensor, dim: int, *, kind: str, **_: Any
) -> NetworkTensor:
    """Converts running sums and products; half precision is computed in float32."""
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, types.cast(ctx, self, dtype), types.accumulation_dtype(dtype))
    if not len(tensor.shape):
        return types.cast(ctx, tensor, dtype)
    size = types.output_value(ctx).shape[dim]
    return types.cast(ctx, blocks.cumulate(ctx, kind, tensor, dim, size), dtype)


@pack.converter(table={"kind": EXTREMES})
def cumulate_extremes(
    ctx: ConversionContext, self: NetworkTensor, dim: int, *, kind: str
) -> tuple[NetworkTensor, NetworkTensor]:
    """Converts running maxima and minima with their indices, of equal elements the last."""
    result = types.output_value(ctx, 0)
    dtype, size = result.dtype, result.shape[dim] if result.dim() else 1
    inner = torch.int32 if dtype is torch.bool else dtype
    tensor = types.cast(ctx, self, inner)
    if scalar := not len(tensor.shape):
        tensor = shape.to_rank(ctx, tensor, 1)
    results = blocks.extremes(ctx, kind, tensor, dim, size)
    if scalar:
        results = (
            shape.squeeze(ctx, results[0], [0]),
            shape.squeeze(ctx, results[1], [0]),
        )
    best, index = results
    best = types.cast(ctx, best, dtype)
    return best, types.cast(ctx, index, torch.int64)
