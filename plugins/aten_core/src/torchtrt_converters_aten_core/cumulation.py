"""Running totals along a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import cumulation as impl
from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

KINDS = {aten.cumsum.default: "SUM", aten.cumprod.default: "PROD"}


def _unfit(node: Node) -> str | None:
    op = node_arguments(node)
    tensor = value_of(op.self)
    single = KINDS[node.target] == "SUM" and hasattr(trt.INetworkDefinition, "add_cumulative")
    if not single and tensor.dim() and not isinstance(tensor.shape[op.dim], int):
        return "without a layer of its own this takes a step for each bit of a size, which must be fixed"
    return None


@converts(*KINDS, unless=_unfit)
def cumulate(
    ctx: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """Converts running sums and products; half precision is computed in float32."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    tensor = types.cast(ctx, op.self, types.wide(dtype), name + "/input")
    if not len(tensor.shape):
        return types.cast(ctx, tensor, dtype, name)
    return types.cast(ctx, impl.cumulate(ctx, KINDS[target], tensor, op.dim, name), dtype, name)
