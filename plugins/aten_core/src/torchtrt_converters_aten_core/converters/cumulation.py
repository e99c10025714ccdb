"""Running totals along a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import cumulation as impl
from torchtrt_converters_aten_core.impl import shape, types
from torchtrt_converters_aten_core.registration import arguments, converts

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

KINDS = {
    aten.cumsum.default: "SUM",
    aten.cumprod.default: "PROD",
    aten.logcumsumexp.default: "LOGSUMEXP",
}
EXTREMES = {aten.cummax.default: "MAX", aten.cummin.default: "MIN"}


@converts(*KINDS)
def cumulate(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts running sums and products; half precision is computed in float32."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, op.self, types.wide(dtype), name + "/input")
    if not len(tensor.shape):
        return types.cast(ctx, tensor, dtype, name)
    return types.cast(ctx, impl.cumulate(ctx, KINDS[target], tensor, op.dim, name), dtype, name)


@converts(*EXTREMES)
def cumulate_extremes(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts running maxima and minima with their indices, of equal elements the last."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx, 0)
    inner = torch.int32 if dtype is torch.bool else dtype
    tensor = types.cast(ctx, op.self, inner, name + "/input")
    if scalar := not len(tensor.shape):
        tensor = shape.to_rank(ctx, tensor, 1, name + "/vector")
    results = impl.extremes(ctx, EXTREMES[target], tensor, op.dim, name)
    if scalar:
        results = (
            shape.squeeze(ctx, results[0], [0], name + "/value"),
            shape.squeeze(ctx, results[1], [0], name + "/index"),
        )
    best, index = results
    best = types.cast(ctx, best, dtype, name + "/values")
    return best, types.cast(ctx, index, torch.int64, name + "/indices")
