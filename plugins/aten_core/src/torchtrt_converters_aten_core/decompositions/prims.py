"""PyTorch's primitive ops computed by ATen's, each a function of the op's own signature."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

prims = torch.ops.prims


@pack.decomposition(prims.broadcast_in_dim.default)
def broadcast_in_dim(
    a: Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Tensor:
    """Returns ``a``, whose dimensions stand at the given places, broadcast to a shape."""
    for index in range(len(shape)):
        if index not in broadcast_dimensions:
            a = a.unsqueeze(index)
    return a.expand(list(shape))


@pack.decomposition(prims.div.default)
def div(self: Tensor, other: Tensor) -> Tensor:
    """Returns a quotient, that of integers rounded toward zero."""
    rounding = None if self.dtype.is_floating_point else "trunc"
    return torch.div(self, other, rounding_mode=rounding)


@pack.decomposition(prims.sum.default)
def sum(
    inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None
) -> Tensor:
    """Returns the sum over some dimensions, which are dropped; of none it is the tensor itself."""
    dtype = output_dtype or inp.dtype
    if dims is not None and not dims:
        return inp.to(dtype)
    return torch.sum(inp, None if dims is None else list(dims), dtype=dtype)
