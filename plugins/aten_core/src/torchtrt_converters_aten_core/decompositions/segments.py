"""Reductions of consecutive segments and quantiles, each a function of the op's own signature."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.torch_internals import without_modes

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
    positions = torch.arange(data.shape[axis], device=data.device)
    inside = (positions >= starts.unsqueeze(-1)) & (positions < ends.unsqueeze(-1))
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


@functools.cache
def _has_exact_places() -> bool:
    """Returns whether PyTorch multiplies in float64 to find a quantile, as PyTorch 2.15 does.

    The float32 nearest to 0.4 is larger. In float32, 0.4 of the way through six elements is place 2 all the same.
    """
    with without_modes():
        elements = torch.arange(6.0, device="cpu")
        return bool(torch.quantile(elements, 0.4, interpolation="higher") == 3)


def _rounding_error(a: Tensor, b: Tensor, product: Tensor) -> Tensor:
    """Returns how much more than the rounded product of float32 tensors their exact product is.

    Dekker's method: the halves of a number have 12 bits each, so that all of their products are exact.
    """

    def halves(x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = x * (2.0**12 + 1)
        high = scaled - (scaled - x)
        return high, x - high

    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    return a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low


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
    q, end = q.reshape(-1), torch.full_like(ordered[..., :1], last)
    if skip_nan:
        end = ((~odd).to(self.dtype).sum(-1, keepdim=True) - 1).clamp_min(0)
    positions = q * end
    error = torch.zeros_like(positions)
    if self.dtype is torch.float32 and _has_exact_places():
        error = _rounding_error(q, end, positions)
    if not skip_nan:
        is_odd = odd.any(-1, keepdim=True)
        positions, error = torch.where(is_odd, end, positions), torch.where(is_odd, 0.0, error)
    below, above = torch.floor(positions), torch.ceil(positions)
    # Only a whole number of a place can be on the wrong side of one.
    below = torch.where((below == positions) & (error < 0), below - 1, below)
    above = torch.where((above == positions) & (error > 0), above + 1, above)
    part = positions - below
    if interpolation == "nearest":
        half_rounds_up = (error > 0) | ((error == 0) & (torch.remainder(below, 2) == 1))
        below = torch.where((part > 0.5) | ((part == 0.5) & half_rounds_up), above, below)
    elif interpolation == "higher":
        below = above
    result = ordered.gather(-1, below.to(torch.int64))
    if interpolation in ("linear", "midpoint"):
        weight = torch.full_like(part, 0.5) if interpolation == "midpoint" else part + error
        result = torch.lerp(result, ordered.gather(-1, above.to(torch.int64)), weight)
    result = result.movedim(-1, 0)
    if keepdim and rank:
        kept = [1] * rank
        if dim is not None:
            kept = [1 if index == dim % rank else size for index, size in enumerate(self.shape)]
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
    """Returns quantiles; NaN where an element is NaN."""
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
