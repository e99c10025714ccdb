"""Jagged tensors: rows of several lengths, one after the other, and the offsets at which they begin."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchtrt_converters_fbgemm import pack


@pack.decomposition("fbgemm::jagged_to_padded_dense")
@pack.decomposition("fbgemm::jagged_to_padded_dense_forward")
def jagged_to_padded_dense(
    values: Tensor,
    offsets: Sequence[Tensor],
    max_lengths: Sequence[int],
    padding_value: float = 0.0,
) -> Tensor:
    """Returns rows of one length, of shape ``[rows, max_length, ...]``; the padding is behind the values."""
    return _padded(values, _only(offsets), max_lengths[0], padding_value)


@pack.decomposition("fbgemm::jagged_2d_to_dense")
def jagged_2d_to_dense(values: Tensor, offsets: Tensor, max_sequence_length: int) -> Tensor:
    """Returns the same, padded with zeros."""
    return _padded(values, offsets, max_sequence_length, 0)


@pack.decomposition("fbgemm::jagged_1d_to_dense")
def jagged_1d_to_dense(
    values: Tensor, offsets: Tensor, max_sequence_length: int, padding_value: int
) -> Tensor:
    """Returns the same for rows of numbers."""
    return _padded(values, offsets, max_sequence_length, padding_value)


@pack.decomposition("fbgemm::dense_to_jagged")
def dense_to_jagged(
    dense: Tensor, x_offsets: Sequence[Tensor], total_L: int | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Returns the values without the padding, of shape ``[total_L, ...]``, and the offsets."""
    return dense_to_jagged_forward(dense, x_offsets, total_L), list(x_offsets)


@pack.decomposition("fbgemm::dense_to_jagged_forward")
def dense_to_jagged_forward(
    dense: Tensor, x_offsets: Sequence[Tensor], total_L: int | None = None
) -> Tensor:
    """Returns the values without the padding, of shape ``[total_L, ...]``."""
    if total_L is None:
        raise NotImplementedError("the number of values follows from the offsets: pass total_L")
    return _at_values(dense, _only(x_offsets), total_L)


@pack.decomposition("fbgemm::jagged_dense_elementwise_add")
def jagged_dense_elementwise_add(
    x_values: Tensor, x_offsets: Sequence[Tensor], y: Tensor
) -> Tensor:
    """Returns ``y`` plus the values at their positions."""
    return _padded(x_values, _only(x_offsets), y.shape[1], 0) + y


@pack.decomposition("fbgemm::jagged_dense_elementwise_add_jagged_output")
def jagged_dense_elementwise_add_jagged_output(
    x_values: Tensor, x_offsets: Sequence[Tensor], y: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Returns the values plus the elements of ``y`` at their positions."""
    return x_values + _at_values(y, _only(x_offsets), x_values.shape[0]), list(x_offsets)


@pack.decomposition("fbgemm::jagged_dense_elementwise_mul")
def jagged_dense_elementwise_mul(
    x_values: Tensor, x_offsets: Sequence[Tensor], y: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Returns the values times the elements of ``y`` at their positions."""
    return x_values * _at_values(y, _only(x_offsets), x_values.shape[0]), list(x_offsets)


@pack.decomposition("fbgemm::asynchronous_complete_cumsum")
def asynchronous_complete_cumsum(t_in: Tensor) -> Tensor:
    """Returns the offsets of rows with these lengths: a zero, and then the sums."""
    if t_in.is_floating_point():
        raise NotImplementedError(f"FBGEMM adds {t_in.dtype} in another order")
    zero = t_in.new_zeros((*t_in.shape[:-1], 1))
    return torch.cat([zero, t_in.cumsum(-1, dtype=t_in.dtype)], -1)


def _only(offsets: Sequence[Tensor]) -> Tensor:
    if len(offsets) != 1:
        raise NotImplementedError("the rows must have one jagged dimension")
    return offsets[0]


def _padded(values: Tensor, offsets: Tensor, length: int, padding: float) -> Tensor:
    # The padding is a row behind the values, so that there is one if there are no values.
    rows = torch.cat([values, values.new_full((1, *values.shape[1:]), padding)])
    positions = torch.arange(length, device=values.device)
    starts, ends = offsets[:-1, None], offsets[1:, None]
    indices = starts + positions
    return rows[torch.where(indices < ends, indices, values.shape[0])]


def _at_values(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    """Returns the elements of a padded tensor at the positions of the values; zero where it has none."""
    numbers = torch.arange(total, device=dense.device)
    rows = (numbers[:, None] >= offsets[1:]).sum(-1)
    positions = numbers - offsets[rows]
    length = dense.shape[1]
    flat = torch.cat([dense.flatten(0, 1), dense.new_zeros((1, *dense.shape[2:]))])
    is_inside = (positions >= 0) & (positions < length) & (rows < dense.shape[0])
    return flat[torch.where(is_inside, rows * length + positions, dense.shape[0] * length)]
