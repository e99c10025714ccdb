"""Operators whose output size depends on the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, TRTTensor, enforce_tensor_types, get_trt_tensor
from torchtrt.registry import Reject
from torchtrt_converters_aten_experimental._pack import pack


def has_dimensions(node: Node) -> bool | Reject:
    """Rejects scalars, for which TensorRT does not document the layer."""
    return node.args[0].meta["val"].dim() > 0 or Reject("a tensor of no dimensions")


@pack.converter(
    torch.ops.aten.nonzero.default,
    capability_validator=has_dimensions,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
@enforce_tensor_types({0: (TRTTensor,)})
def nonzero(
    ctx: ConversionContext, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """The indices of what is not zero: ``(count, rank)``, in row-major order."""
    value = args[0]
    if ctx.dtype_of(value) in (torch.int64, torch.int32, torch.uint8):
        value = get_trt_tensor(ctx, value, name + "/input", torch.bool)
    layer = ctx.net.add_non_zero(value)
    layer.name = name
    transpose = ctx.net.add_shuffle(layer.get_output(0))  # TensorRT has one column per index
    transpose.first_transpose = (1, 0)
    transpose.name = name + "/transpose"
    return get_trt_tensor(ctx, transpose.get_output(0), name, torch.int64)
