"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import reduction, types
from torchtrt_converters_aten_core.impl import softmax as impl
from torchtrt_converters_aten_core.registration import arguments, converts

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


@converts(aten.softmax.int, aten._softmax.default)
def softmax(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts softmax over one dimension."""
    op = arguments(target, args, kwargs)
    tensor = types.cast(ctx, op.self, types.output_dtype(ctx), name + "/input")
    return impl.softmax(ctx, tensor, op.dim, name)


@converts(aten.log_softmax.int, aten._log_softmax.default)
def log_softmax(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the logarithm of the softmax; half precision is computed in float32, as PyTorch does."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, op.self, types.wide(dtype), name + "/input")
    return types.cast(ctx, impl.log_softmax(ctx, tensor, op.dim, name), dtype, name)


@converts(aten.logsumexp.default)
def log_sum_exp(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``log(sum(exp(x)))``."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, op.self, types.wide(dtype), name + "/input")
    dims = reduction.all_dims(tensor, op.dim)
    return types.cast(ctx, impl.log_sum_exp(ctx, tensor, dims, op.keepdim, name), dtype, name)
