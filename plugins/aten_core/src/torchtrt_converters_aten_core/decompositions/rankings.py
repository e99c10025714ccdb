"""Ops that depend on the order of elements computed by other ops, each a function of the op's own signature."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


def _along(self: Tensor, dim: int) -> Tensor:
    """Returns a tensor with the dimension to look along as the last; a scalar as a vector."""
    return self.movedim(dim, -1) if self.dim() else self.reshape(1)


def _result(self: Tensor, dim: int, keepdim: bool, *parts: Tensor) -> tuple[Tensor, ...]:
    """Returns results along the last dimension, of size 1, as the op's: kept in place or dropped."""
    if self.dim() == 0:
        return tuple(part.reshape(()) for part in parts)
    if keepdim:
        return tuple(part.movedim(-1, dim) for part in parts)
    return tuple(part.squeeze(-1) for part in parts)


def _middle(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the lower median along the last dimension and its index: the first NaN where there is one."""
    values, order = self.sort(stable=True)
    middle = (self.shape[-1] - 1) // 2
    positions = torch.arange(middle, middle + 1, device=self.device)
    value, index = values.index_select(-1, positions), order.index_select(-1, positions)
    if self.dtype.is_floating_point:
        nan = self != self
        index = torch.where(nan.any(-1, True), nan.to(torch.float32).argmax(-1, True), index)
        value = self.gather(-1, index)
    return value, index


def _numbers_middle(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the lower median of the numbers along the last dimension and its index."""
    if not self.dtype.is_floating_point:
        return _middle(self)
    values, order = self.sort(stable=True)
    count = (self == self).to(torch.int64).sum(-1, True)
    middle = torch.div((count - 1).clamp_min(0), 2, rounding_mode="floor")
    return values.gather(-1, middle), order.gather(-1, middle)


def _sorted_and_median_of_none(flat: Tensor) -> Tensor:
    """Returns the elements in order, and behind them the median of none, where there may be none.

    It is NaN, and the least integer. A TensorRT of 32 bits has no such integer.
    """
    size: Any = flat.shape[0]
    if size.node.expr.is_positive:
        return flat.sort(stable=True)[0]
    is_floating = flat.dtype.is_floating_point
    none = math.nan if is_floating else torch.iinfo(flat.dtype).min
    return torch.cat([flat.sort(stable=True)[0], flat.new_full((1,), none)])


@pack.decomposition(aten.median.default)
def median(self: Tensor) -> Tensor:
    """Returns the lower of the middle elements."""
    flat = self.reshape(-1)
    size: Any = flat.shape[0]
    if isinstance(size, int):
        return _middle(flat)[0].reshape(())
    last = torch.sym_max(size - 1, 0)
    first, second = (
        torch.arange(position, position + 1, device=self.device) for position in (last // 2, last)
    )
    values = _sorted_and_median_of_none(flat)
    middle = values.index_select(0, first)
    if self.dtype.is_floating_point:
        greatest = values.index_select(0, second)  # elements that are NaN come last
        middle = torch.where(greatest != greatest, greatest, middle)
    return middle.reshape(())


@pack.decomposition(aten.median.dim)
def median_along(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    """Returns the lower of the middle elements of a dimension, and an index of it."""
    return _result(self, dim, keepdim, *_middle(_along(self, dim)))


@pack.decomposition(aten.nanmedian.default)
def nanmedian(self: Tensor) -> Tensor:
    """Returns the lower of the middle elements, those that are NaN left out."""
    flat = self.reshape(-1)
    size: Any = flat.shape[0]
    if isinstance(size, int):
        return _numbers_middle(flat)[0].reshape(())
    last = ((flat == flat).to(torch.int64).sum() - 1).clamp_min(0)
    middle = torch.div(last, 2, rounding_mode="floor")
    return _sorted_and_median_of_none(flat).index_select(0, middle.reshape(1)).reshape(())


@pack.decomposition(aten.nanmedian.dim)
def nanmedian_along(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    """Returns the lower of the middle numbers of a dimension, and an index of it."""
    return _result(self, dim, keepdim, *_numbers_middle(_along(self, dim)))


@pack.decomposition(aten.kthvalue.default)
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    """Returns the ``k``-th smallest element of a dimension, and an index of it."""
    values, order = _along(self, dim).sort(stable=True)
    parts = (part.narrow(-1, k - 1, 1) for part in (values, order))
    return _result(self, dim, keepdim, *parts)


@pack.decomposition(aten.mode.default)
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    """Returns the smallest of the most frequent elements of a dimension, and its last index."""
    row = _along(self, dim)
    counts = (row.unsqueeze(-1) == row.unsqueeze(-2)).to(torch.int64).sum(-1)
    frequent = counts == counts.amax(-1, True)
    number = row.to(torch.int64) if row.dtype is torch.bool else row
    above = math.inf if number.dtype.is_floating_point else number.amax(-1, True)
    value = torch.where(frequent, number, above).amin(-1, True)
    positions = torch.arange(row.shape[-1], device=row.device)
    index = torch.where(number == value, positions, 0).amax(-1, True)
    return _result(self, dim, keepdim, value.to(row.dtype), index)


@pack.decomposition(aten.msort.default)
def msort(self: Tensor) -> Tensor:
    """Returns the elements in order along the first dimension."""
    return self.sort(dim=0)[0] if self.dim() else self.clone()


@pack.decomposition(aten.histc.default)
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Returns how many elements lie in each of ``bins`` equal parts of a range; its end belongs to the last."""
    if min >= max:
        raise NotImplementedError("the range depends on the data")
    flat = self.reshape(-1)
    bin_index = torch.floor((flat - min) * bins / (max - min))
    bin_index = bin_index.clamp(max=bins - 1)  # numbers next to the end may be rounded to it
    counted = (flat >= min) & (flat <= max)
    hit = (bin_index == torch.arange(bins, device=self.device).unsqueeze(1)) & counted
    return hit.to(torch.int64).sum(1).to(self.dtype)


@pack.decomposition(aten.bucketize.Tensor)
@pack.decomposition(aten.bucketize.Scalar)
def bucketize(
    self: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Returns how many of the sorted boundaries lie below each element, or below a number."""
    if isinstance(self, float) and math.isnan(self):
        raise NotImplementedError("what is NaN is in no bucket")
    wide = self.unsqueeze(-1) if isinstance(self, Tensor) else self
    below = boundaries <= wide if right else boundaries < wide
    if isinstance(wide, Tensor) and wide.dtype.is_floating_point:
        below = below | (wide != wide)  # what is NaN is above all boundaries
    return below.sum(-1, dtype=torch.int64).to(torch.int32 if out_int32 else torch.int64)


@pack.decomposition(aten.searchsorted.Tensor)
@pack.decomposition(aten.searchsorted.Scalar)
def searchsorted(
    sorted_sequence: Tensor,
    self: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Returns where each element would go into its row of a sorted sequence, or a number into the sequence."""
    row = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    row = row if row.dim() == 1 else row.unsqueeze(-2)
    return bucketize(self, row, out_int32=out_int32, right=right or side == "right")
