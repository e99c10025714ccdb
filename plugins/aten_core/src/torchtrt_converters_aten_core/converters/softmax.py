"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt_blocks import reduction, types
from torchtrt_blocks import softmax as blocks
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.converter(aten.softmax.int, aten._softmax.default)
def softmax(
    ctx: ConversionContext,
    self: NetworkTensor,
    dim: int,
    **_: Any,
) -> NetworkTensor:
    """Converts softmax over one dimension."""
    tensor = types.cast(ctx, self, types.output_dtype(ctx))
    return blocks.softmax(ctx, tensor, dim)


@pack.converter(aten.log_softmax.int, aten._log_softmax.default)
def log_softmax(ctx: ConversionContext, self: NetworkTensor, dim: int, **_: Any) -> NetworkTensor:
    """Converts the logarithm of the softmax; half precision is computed in float32, as PyTorch does."""
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, types.cast(ctx, self, dtype), types.accumulation_dtype(dtype))
    return types.cast(ctx, blocks.log_softmax(ctx, tensor, dim), dtype)


@pack.converter(aten.logsumexp.default)
def log_sum_exp(
    ctx: ConversionContext, self: NetworkTensor, dim: Sequence[int], keepdim: bool
) -> NetworkTensor:
    """Converts ``log(sum(exp(x)))``."""
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, self, types.accumulation_dtype(dtype))
    dims = reduction.all_dims(tensor, dim)
    return types.cast(ctx, blocks.log_sum_exp(ctx, tensor, dims, keepdim), dtype)
