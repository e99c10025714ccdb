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
    row_indices = torch.arange(input.shape[0], device=input.device).unsqueeze(1)
    behind = row_indices >= offs
    group = behind.to(torch.int64).sum(1).clamp_max(weight.shape[0] - 1)
    every = torch.matmul(input, weight)
    chosen = every.gather(0, group.reshape(1, -1, 1).expand(1, *every.shape[1:])).squeeze(0)
    return torch.where(behind[:, -1:], 0.0, chosen)
