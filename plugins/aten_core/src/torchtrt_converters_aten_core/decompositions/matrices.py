"""Ops on matrices, distances and grids computed by other ops, each a function of the op's own signature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.decomposition(aten.addbmm.default)
def addbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Returns ``beta * self + alpha * sum(batch1 @ batch2)``; integers are scaled by whole ones.

    The sum of the products is one product, of matrices side by side and one below the other.
    """
    if not self.dtype.is_floating_point:
        beta, alpha = int(beta), int(alpha)
    beside, below = batch1.transpose(0, 1).flatten(1), batch2.flatten(0, 1)
    return torch.addmm(self, beside, below, beta=beta, alpha=alpha)


@pack.decomposition(aten.repeat.default)
@pack.decomposition(aten.tile.default)
def repeat(self: Tensor, repeats: Sequence[int]) -> Tensor:
    """Returns copies side by side, one dimension after the other: of many there is no view with twice as many."""
    rank = max(len(repeats), self.dim())
    result = self.reshape((1,) * (rank - self.dim()) + tuple(self.shape))
    for dim, count in enumerate((1,) * (rank - len(repeats)) + tuple(repeats)):
        if isinstance(count, int) and count == 1:
            continue
        before, size, after = result.shape[:dim], result.shape[dim], result.shape[dim + 1 :]
        rows, row = math.prod(before), size * math.prod(after)
        spread = result.reshape(rows, 1, row).expand(rows, count, row)
        result = spread.reshape(*before, size * count, *after)
    return result


@pack.decomposition(aten.diagonal.default)
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Returns a diagonal of two dimensions, as the last dimension."""
    matrix = self.movedim((dim1, dim2), (-2, -1))
    rows, columns = matrix.shape[-2:]
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise NotImplementedError("the diagonal's length is known only at run time")
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = offset if offset >= 0 else -offset * columns
    indices = torch.arange(count, device=self.device) * (columns + 1) + first
    return matrix.reshape(*matrix.shape[:-2], rows * columns).index_select(-1, indices)


@pack.decomposition(aten.trace.default)
def trace(self: Tensor) -> Tensor:
    """Returns the sum of a matrix's diagonal."""
    return torch.diagonal(self).sum()


@pack.decomposition(aten.meshgrid.default)
def meshgrid(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns each vector along its own dimension of a common grid."""
    shape = [tensor.numel() for tensor in tensors]
    return [
        tensor.reshape([-1 if dim == index else 1 for dim in range(len(shape))]).expand(shape)
        for index, tensor in enumerate(tensors)
    ]


@pack.decomposition(aten.meshgrid.indexing)
def meshgrid_by(tensors: Sequence[Tensor], *, indexing: str) -> list[Tensor]:
    """Returns a grid in matrix order (``"ij"``) or with the first two dimensions exchanged (``"xy"``)."""
    grids = meshgrid(tensors)
    if indexing == "xy" and len(grids) >= 2:
        return [grid.transpose(0, 1) for grid in grids]
    return grids


@pack.decomposition(aten.cdist.default)
@pack.decomposition(aten._cdist_forward.default)
def cdist(x1: Tensor, x2: Tensor, p: float = 2, compute_mode: int | None = None) -> Tensor:
    """Returns the distances of the rows of ``x1`` from those of ``x2``, by their differences."""
    return _length(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _length(vectors: Tensor, p: float) -> Tensor:
    """Returns the norms of vectors along the last dimension; NaN where an element is NaN, by the order 0 as well."""
    if p == 0:  # a norm of this order counts NaN, a distance does not
        return torch.clamp_max(torch.ceil(torch.abs(vectors)), 1).sum(-1)
    # Counted from the front: of one element, PyTorch 2.11 keeps a dimension that is counted from the back.
    norms: Tensor = torch.linalg.vector_norm(vectors, p, vectors.dim() - 1)
    return norms


@pack.decomposition(aten.unfold.default)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Returns windows of a dimension, each as the new last dimension."""
    if self.dim() == 0:
        return self.reshape(1)
    dim, device = dimension % self.dim(), self.device
    count = (self.shape[dim] - size) // step + 1
    starts = torch.arange(count, device=device).unsqueeze(1) * step
    indices = starts + torch.arange(size, device=device)
    windows: Tensor = self.index_select(dim, indices.reshape(-1)).unflatten(dim, indices.shape)
    return windows.movedim(dim + 1, -1)


def _group_of(count: int, ends: Tensor) -> Tensor:
    """Returns the group of each of ``count`` places; those after the last end are in the last group."""
    positions = torch.arange(count, device=ends.device).unsqueeze(1)
    return (positions >= ends).to(torch.int64).sum(1).clamp_max(ends.shape[0] - 1)


def grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns products of groups of rows (or columns) with a matrix each: each row picks one of all products."""
    if bias is not None:
        raise NotImplementedError("PyTorch adds no bias here")
    dtype = self.dtype if out_dtype is None else out_dtype
    if offs is None:
        return torch.bmm(self, mat2).to(dtype)
    if self.dim() == 2 and mat2.dim() == 2:  # the groups are of what is summed over
        groups = torch.arange(offs.shape[0], device=offs.device).unsqueeze(1)
        inside = _group_of(self.shape[1], offs) == groups
        rows = torch.where(inside.unsqueeze(1), self, 0.0)
        return (rows @ torch.where(inside.unsqueeze(2), mat2, 0.0)).to(dtype)
    every = torch.matmul(self, mat2).to(dtype)
    along = 1 if self.dim() == 2 else 2
    group = _group_of(every.shape[along], offs).reshape((1, -1, 1) if along == 1 else (1, 1, -1))
    return every.gather(0, group.expand(1, *every.shape[1:])).squeeze(0)


if hasattr(aten, "_grouped_mm"):
    pack.decomposition(aten._grouped_mm.default)(grouped_mm)


@pack.decomposition(aten.lcm.default)
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """Returns the minimum common multiple, 0 where one is 0."""
    divisor = torch.gcd(self, other)
    part = torch.div(self, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return torch.abs(part * other)


@pack.decomposition(aten.pdist.default)
@pack.decomposition(aten._pdist_forward.default)
def pdist(self: Tensor, p: float = 2) -> Tensor:
    """Returns the distances of the rows of a matrix from each other, each pair once."""
    count: Any = self.shape[0]
    if isinstance(count, int):
        rows, columns = torch.triu_indices(count, count, 1, device=self.device)
    else:
        own = torch.arange(count, device=self.device)
        starts = own * (count - 1) - torch.div(own * (own - 1), 2, rounding_mode="floor")
        pairs = torch.arange(count * (count - 1) // 2, device=self.device)
        rows = (pairs.unsqueeze(1) >= starts).to(torch.int64).sum(1) - 1
        columns = pairs - starts.index_select(0, rows) + rows + 1
    return _length(self.index_select(0, rows) - self.index_select(0, columns), p)
