"""Products of tokens with the weights of their experts, in mixtures of experts."""

from __future__ import annotations

import torch
from torch import Tensor

from torchtrt_converters_transformers._pack import pack


@pack.decomposition("transformers::grouped_mm_fallback")
def grouped_mm_fallback(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """Returns the product of each row with the matrix of its group.

    TensorRT's matrix products have no groups whose sizes depend on data. Every row is therefore multiplied with every
    matrix, and one product of each row is selected. That is ``groups`` times the work, in one dense product.

    Args:
        input: ``(rows, width)``, the rows of a group after another.
        weight: ``(groups, width, result)``.
        offs: Integers ``(groups,)``: where each group ends. Rows behind the last end become 0.

    Returns:
        ``(rows, result)``, of the input's dtype.
    """
    return _by_group(input, weight, offs)


@pack.decomposition("aten::_grouped_mm")
def grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns the same as PyTorch's own op: ``torch.nn.functional.grouped_mm``, as experts call it.

    PyTorch leaves rows behind the last end undefined; here they are 0.

    Args:
        self: ``(rows, width)`` with ``offs``, or ``(groups, rows, width)`` without.
        mat2: ``(groups, width, result)``.
        offs: Integers ``(groups,)``: where each group ends.
        bias: Must be None, as PyTorch has it.
        out_dtype: The dtype of the result; the input's if None.

    Raises:
        NotImplementedError: The groups are parts of the columns.
    """
    if bias is not None or mat2.dim() != 3 or (self.dim() == 3) is not (offs is None):
        raise NotImplementedError("groups are parts of the columns, or there is a bias")
    result = torch.matmul(self, mat2) if offs is None else _by_group(self, mat2, offs)
    return result if out_dtype is None else result.to(out_dtype)


def _by_group(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    places = torch.arange(input.shape[0], device=input.device).unsqueeze(1)
    behind = places >= offs
    group = behind.to(torch.int64).sum(1).clamp_max(weight.shape[0] - 1)
    every = torch.matmul(input, weight)
    chosen = every.gather(0, group.reshape(1, -1, 1).expand(1, *every.shape[1:])).squeeze(0)
    return torch.where(behind[:, -1:], 0.0, chosen)
