"""Changes of dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_converters_aten_core.impl import types
from torchtrt_converters_aten_core.registration import STORAGE_DTYPES, converts_elementwise

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
    return types.cast(ctx, args[0], types.output_dtype(ctx), name)
