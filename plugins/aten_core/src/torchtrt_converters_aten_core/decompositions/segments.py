"""Reductions of consecutive segments and quantiles, each a function of the op's own signature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

_EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""The value of a segment without elements, before an initial value is combined with it."""
_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}


@pack.decomposition(aten.segment_reduce.default)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Returns one element for each segment of a dimension; every segment looks at all elements."""
    if lengths is not None:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    elif offsets is not None:
        starts, ends = offsets.narrow(-1, 0, offsets.shape[-1] - 1), offsets[..., 1:]
    else:
        raise NotImplementedError("segments need their lengths or their offsets")
    places = torch.arange(data.shape[axis], device=data.device)
    inside = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    inside = inside.reshape(*inside.shape, *[1] * (data.dim() - axis - 1))
    values = torch.where(inside, data.unsqueeze(axis), _EMPTY[reduce])
    along = axis + 1
    if reduce in ("max", "min"):
        result = values.amax(along) if reduce == "max" else values.amin(along)
    else:
        result = values.prod(along) if reduce == "prod" else values.sum(along)
    if initial is not None:
        result = _COMBINE[reduce](result, torch.full_like(result, initial))
    if reduce == "mean":
        count = inside.to(data.dtype).sum(along)
        empty = math.nan if initial is None else result
        result = torch.where(count > 0, result / count, empty)
    return result


def _quantile(
    self: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
) -> Tensor:
    """Returns what lies at the given parts of the way through the elements in order, a NaN being the last."""
    rank = self.dim()
    rows = self.reshape(-1) if dim is None else self.movedim(dim, -1) if rank else self.reshape(1)
    q = torch.as_tensor(q, dtype=self.dtype, device=self.device)
    several = q.dim() == 1
    ordered = rows.sort(-1)[0]
    last = ordered.shape[-1] - 1
    odd = ordered != ordered
    if skip_nan:
        count = (~odd).to(self.dtype).sum(-1, keepdim=True)
        places = (q.reshape(-1) * (count - 1)).clamp_min(0)
    else:
        places = torch.where(odd.any(-1, keepdim=True), float(last), q.reshape(-1) * last)
    if interpolation in ("lower", "higher", "nearest"):
        round_ = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}
        places = round_[interpolation](places)
    below = torch.floor(places)
    result = ordered.gather(-1, below.to(torch.int64))
    if interpolation in ("linear", "midpoint"):
        above = ordered.gather(-1, torch.ceil(places).to(torch.int64))
        weight = torch.full_like(places, 0.5) if interpolation == "midpoint" else places - below
        result = torch.lerp(result, above, weight)
    result = result.movedim(-1, 0)
    if keepdim and rank:
        kept = [1] * rank
        if dim is not None:
            kept = [1 if place == dim % rank else size for place, size in enumerate(self.shape)]
        result = result.reshape(-1, *kept)
    return result if several else result.squeeze(0)


@pack.decomposition(aten.quantile.default)
@pack.decomposition(aten.quantile.scalar)
def quantile(
    self: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Returns quantiles; NaN where an element is none."""
    return _quantile(self, q, dim, keepdim, interpolation, skip_nan=False)


@pack.decomposition(aten.nanquantile.default)
@pack.decomposition(aten.nanquantile.scalar)
def nanquantile(
    self: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Returns quantiles of the elements that are not NaN."""
    return _quantile(self, q, dim, keepdim, interpolation, skip_nan=True)
