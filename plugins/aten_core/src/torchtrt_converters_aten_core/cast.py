"""Changes of dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import (
    STORAGE_DTYPES,
    converts_elementwise,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def _wraps(node: Node) -> str | None:
    source, target = value_of(node.args[0]), node.meta["val"]
    narrow = target.dtype in (torch.uint8, torch.int8) and source.dtype is not target.dtype
    if narrow and types.is_integer(source.dtype):
        return "TensorRT limits a whole number that does not fit into eight bits, PyTorch wraps it"
    return None


@converts_elementwise(
    aten._to_copy.default,
    aten.to.device,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.other,
    aten.type_as.default,
    torch.ops.prims.convert_element_type.default,
    unless=_wraps,
    dtypes=STORAGE_DTYPES,
)
def cast(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a change of dtype; devices and memory formats mean nothing inside an engine."""
    return types.cast(ctx, args[0], types.output_dtype(ctx), name)
