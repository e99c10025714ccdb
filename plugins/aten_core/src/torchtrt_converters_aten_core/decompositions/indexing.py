"""Ops that choose or replace elements computed by other ops, each a function of the op's own signature."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_blocks.sizes import is_never_negative, is_positive, maximum, minimum
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.decomposition(aten.take.default)
def take(self: Tensor, index: Tensor) -> Tensor:
    """Returns elements of the flattened tensor."""
    return self.reshape(-1)[index.reshape(-1)].reshape(index.shape)


@pack.decomposition(aten.put.default)
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Returns ``self`` with elements of the flattened tensor replaced, or added to."""
    if 0 in index.shape:
        return self.clone()
    flat = self.reshape(-1).index_put([index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(self.shape)


def _within(self: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Returns indices that are limited to the tensor's elements.

    Raises:
        NotImplementedError: Whether there are elements depends on data.
    """
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if any(
        index is not None and free_unbacked_symbols(size)
        for index, size in zip(indices, self.shape, strict=False)
    ):
        raise NotImplementedError("whether there are elements to choose from depends on data")
    return [
        None if index is None else index.clamp(-self.shape[dim], self.shape[dim] - 1)
        for dim, index in enumerate(indices)
    ]


@pack.decomposition(aten._unsafe_masked_index.default)
def unsafe_masked_index(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: float
) -> Tensor:
    """Returns elements where a mask is true and a number elsewhere; indices there may be any."""
    chosen = aten.index.Tensor(self, _within(self, indices))
    return torch.where(mask, chosen, torch.full_like(chosen, fill))


@pack.decomposition(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """Returns ``self`` with values added where a mask is true; indices elsewhere may be any."""
    added = torch.where(mask, values, torch.zeros_like(values))
    result: Tensor = aten.index_put.default(self, _within(self, indices), added, True)
    return result


@pack.decomposition(aten.embedding_renorm.default)
def embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Returns a table whose rows at some indices are not longer than a maximum norm."""
    rows = torch.arange(self.shape[0], device=self.device).unsqueeze(1)
    named = (rows == indices.reshape(-1)).any(1, keepdim=True)
    norm = torch.linalg.vector_norm(self, norm_type, 1, keepdim=True)
    scale = torch.where(named & (norm > max_norm), max_norm / (norm + 1e-7), 1.0)
    return (self * scale).to(self.dtype)


@pack.decomposition(aten.select_scatter.default)
def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Returns ``self`` with one index of a dimension replaced by ``src``."""
    chosen = _distance_from(index, self.shape[dim], self.device) == 0
    return torch.where(_along(chosen, self, dim), src.unsqueeze(dim), self)


@pack.decomposition(aten.slice_scatter.default)
def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """Returns ``self`` with some indices of a dimension, at a fixed distance, replaced by ``src``."""
    size, count = self.shape[dim], src.shape[dim]
    if step == 1 and minimum(size - count) == 0 == maximum(size - count):
        return src.to(self.dtype)  # all indices are replaced
    fixed = all(bound is None or isinstance(bound, int) for bound in (size, start, end))
    if fixed and step == 1:
        first, last, _ = slice(start, end).indices(size)
        last = max(first, last)
        before, after = self.narrow(dim, 0, first), self.narrow(dim, last, size - last)
        pieces = [piece for piece in (before, src, after) if piece.shape[dim] != 0]
        return torch.cat(pieces, dim) if pieces else self.clone()
    offset = _distance_from(0 if start is None else start, size, self.device)
    chosen = offset >= 0
    if end is not None and not (isinstance(end, int) and end == sys.maxsize):
        chosen = chosen & (_distance_from(end, size, self.device) < 0)
    if step != 1:
        chosen = chosen & (offset % step == 0)
    rows = torch.div(offset, step, rounding_mode="floor").clamp_min(0)
    if not is_positive(count):  # a row more, as there may be none to read
        shape = [*self.shape]
        shape[dim] = 1
        src, count = torch.cat([src.to(self.dtype), self.new_zeros(shape)], dim), count + 1
    rows = torch.minimum(rows, _number(count - 1, self.device))
    return torch.where(_along(chosen, self, dim), src.index_select(dim, rows), self)


def _distance_from(index: Any, size: Any, device: torch.device) -> Tensor:
    """Returns how far each place of a dimension is behind an index. It may count from the end, and be before all."""
    positions = torch.arange(size, device=device)
    distances: Tensor = positions - index
    if is_never_negative(index):
        return distances
    if isinstance(index, int):
        distances = torch.arange(-size, 0, device=device) - index
    else:
        number = _number(index, device)
        distances = positions - torch.where(number < 0, number + size, number)
    return torch.minimum(distances, positions)


def _number(value: Any, device: torch.device) -> Tensor:
    """Returns a number, which may be known only at run time, as a tensor without dimensions."""
    return torch.scalar_tensor(value, dtype=torch.int64, device=device)


@pack.decomposition(aten.diagonal_scatter.default)
def diagonal_scatter(
    self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Returns ``self`` with a diagonal of two dimensions replaced by ``src``."""
    matrix = self.movedim((dim1, dim2), (-2, -1))
    rows = torch.arange(matrix.shape[-2], device=self.device).unsqueeze(1)
    columns = torch.arange(matrix.shape[-1], device=self.device)
    along = (rows if offset >= 0 else columns) + torch.zeros_like(columns + rows)
    last = src.shape[-1] - 1
    if not isinstance(last, int):
        raise NotImplementedError("the diagonal's length is known only at run time")
    spread = src.index_select(-1, along.clamp_max(last).reshape(-1))
    spread = spread.reshape(*src.shape[:-1], *along.shape)
    result = torch.where(columns - rows == offset, spread, matrix)
    return result.movedim((-2, -1), (dim1, dim2))


@pack.decomposition(aten.masked_scatter.default)
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Returns ``self`` with the elements of ``source``, one after the other, where ``mask`` is true."""
    tensor, mask = torch.broadcast_tensors(self, mask)
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    chosen = source.reshape(-1).index_select(0, order.clamp_min(0))
    return torch.where(mask, chosen.reshape(tensor.shape), tensor)


@pack.decomposition(aten.nonzero_static.default)
def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Returns the places of the first ``size`` elements that are not zero, one in each row."""
    if self.dim() == 0:
        raise NotImplementedError("a tensor without dimensions has no places")
    counts = (self.reshape(-1) != 0).to(torch.int64).cumsum(0)
    order = torch.arange(size, device=self.device).unsqueeze(1)
    flat = (counts <= order).to(torch.int64).sum(1)
    columns = []
    rest = flat
    for extent in reversed(self.shape):
        columns.append(rest % extent)
        rest = torch.div(rest, extent, rounding_mode="floor")
    positions = torch.stack(columns[::-1], 1)
    return torch.where((rest == 0).unsqueeze(1), positions, fill_value)


@pack.decomposition(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Returns each index as many times as ``repeats`` has for it."""
    if output_size is None:
        raise NotImplementedError("the result's size depends on the data")
    ends = repeats.to(torch.int64).cumsum(0)
    positions = torch.arange(output_size, device=repeats.device).unsqueeze(1)
    return (ends <= positions).to(torch.int64).sum(1).to(repeats.dtype)


@pack.decomposition(aten.isin.Tensor_Tensor)
def isin(
    elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Returns which elements are among others."""
    is_member = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~is_member if invert else is_member


@pack.decomposition(aten.isin.Tensor_Scalar)
def isin_number(
    elements: Tensor, test_element: float, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Returns which elements equal a number."""
    return elements != test_element if invert else elements == test_element


@pack.decomposition(aten.isin.Scalar_Tensor)
def number_isin(
    element: float, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Returns whether a number is among the elements."""
    is_member = (test_elements == element).any()
    return ~is_member if invert else is_member


@pack.decomposition(aten.index_fill.int_Scalar)
def index_fill(self: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """Returns ``self`` with a number at some indices of a dimension."""
    return torch.where(_chosen(self, dim, index), torch.full_like(self, value), self)


@pack.decomposition(aten.index_fill.int_Tensor)
def index_fill_tensor(self: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """Returns ``self`` with a 0-d tensor's value at some indices of a dimension."""
    return torch.where(_chosen(self, dim, index), value.to(self.dtype), self)


def _chosen(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Returns which indices of a dimension are among ``index``, in a shape that broadcasts to ``self``."""
    if self.dim() == 0:
        return torch.ones((), dtype=torch.bool, device=self.device)
    size = self.shape[dim]
    positions = torch.arange(size, device=self.device).unsqueeze(1)
    flat = index.reshape(-1)
    chosen = ((flat == positions) | (flat + size == positions)).any(1)
    return _along(chosen, self, dim)


def _along(vector: Tensor, like: Tensor, dim: int) -> Tensor:
    """Returns a vector along one dimension of a tensor, in a shape that broadcasts to it."""
    rank = like.dim()
    return vector.reshape([-1 if index == dim % rank else 1 for index in range(rank)])


@pack.decomposition(aten.index_copy.default)
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Returns ``self`` with ``source`` at some indices of a dimension."""
    if self.dim() == 0:
        return source.reshape(())
    return self.scatter(dim, _along(index, self, dim).expand(source.shape), source)


@pack.decomposition(aten.index_put.default)
def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Returns ``self`` with values, one or one for each, where a mask is true."""
    masks = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(masks) != 1 or masks[0][1].dtype is not torch.bool:
        raise NotImplementedError(
            "several masks, or masks with indices, select elements by their values"
        )
    first_dim, mask = masks[0]
    after = self.dim() - first_dim - mask.dim()
    values = values.to(self.dtype)
    if values.dim() > after:
        before, count, rest = _around(values.shape, after)
        if isinstance(count, int) and count == 1:
            values = values.reshape(*before, *[1] * mask.dim(), *rest)
        elif first_dim or before:
            raise NotImplementedError(
                "a value for each element of the mask needs a mask of the first dimensions"
            )
        else:
            order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
            if not is_positive(count - 1):  # a single row is for all places
                order = order * _number(torch.sym_min(count - 1, 1), self.device)
            # With a row more there is something to choose from where the mask is nowhere true.
            values = torch.cat([values, values.new_zeros((1, *rest))])
            chosen = values.index_select(0, order.clamp_min(0))
            values = chosen.reshape(*mask.shape, *rest)
    wide = mask.reshape(*mask.shape, *[1] * after)
    return torch.where(wide, self + values if accumulate else values, self)


def _around(shape: Sequence[int], after: int) -> tuple[Sequence[int], int, Sequence[int]]:
    """Returns the size before the last ``after`` ones, and what is around it."""
    axis = len(shape) - after - 1
    return shape[:axis], shape[axis], shape[axis + 1 :]
