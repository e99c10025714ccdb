"""Changes of dtype."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt_blocks import types
from torchtrt_blocks.checks import STORAGE_DTYPES
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core.registration import converts_elementwise

aten = torch.ops.aten


@converts_elementwise(
    aten._to_copy.default,
    aten.to.device,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.other,
    aten.type_as.default,
    torch.ops.prims.convert_element_type.default,
    dtypes=STORAGE_DTYPES,
)
def cast(
    ctx: ConversionContext,
    self: NetworkTensor | None = None,
    a: NetworkTensor | None = None,
    **_: Any,
) -> NetworkTensor:
    """Converts a change of dtype; devices and memory formats mean nothing inside an engine."""
    tensor, dtype = a if self is None else self, types.output_dtype(ctx)
    assert tensor is not None  # one of the two names is the op's
    if dtype in _MINIMUM_BYTE and types.is_integer(ctx.dtype_of(tensor)):
        tensor = _wrap(ctx, tensor, _MINIMUM_BYTE[dtype])
    return types.cast(ctx, tensor, dtype)


_MINIMUM_BYTE = {torch.uint8: 0, torch.int8: -128}


def _wrap(ctx: ConversionContext, tensor: NetworkTensor, minimum: int) -> NetworkTensor:
    """Returns integers as the byte with the same last eight bits: TensorRT would limit them instead."""
    if ctx.dtype_of(tensor) in _MINIMUM_BYTE:
        tensor = types.cast(ctx, tensor, torch.int32)
    x = Formula(ctx, tensor)
    return ((x - minimum) % 256 + minimum if minimum else x % 256).tensor
