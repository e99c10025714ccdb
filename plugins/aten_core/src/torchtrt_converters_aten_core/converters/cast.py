"""Changes of dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import elementwise, types
from torchtrt_converters_aten_core.registration import (
    STORAGE_DTYPES,
    converts_elementwise,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


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
def cast(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a change of dtype; devices and memory formats mean nothing inside an engine."""
    tensor, dtype = args[0], types.output_dtype(ctx)
    if dtype in _LEAST_BYTE and types.is_integer(ctx.dtype_of(tensor)):
        tensor = _wrap(ctx, tensor, _LEAST_BYTE[dtype], name + "/wrapped")
    return types.cast(ctx, tensor, dtype, name)


_LEAST_BYTE = {torch.uint8: 0, torch.int8: -128}


def _wrap(ctx: Any, tensor: Any, least: int, name: str) -> Any:
    """Returns whole numbers as the byte with the same last eight bits: TensorRT would limit them instead."""
    if ctx.dtype_of(tensor) in _LEAST_BYTE:
        tensor = types.cast(ctx, tensor, torch.int32, name + "/wide")
    dtype = ctx.dtype_of(tensor)
    if least:
        tensor = elementwise.arithmetic(ctx, "SUB", tensor, least, dtype, name + "/raised")
    rest = elementwise.remainder(ctx, tensor, 256, dtype, "floor", name + "/rest")
    if least:
        rest = elementwise.arithmetic(ctx, "SUM", rest, least, dtype, name + "/lowered")
    return rest
