"""The decorator of this pack's elementwise converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchtrt_blocks.registration import Converter
from torchtrt_converters_aten_core import pack


def converts_elementwise(
    *targets: Any, table: Mapping[str, Mapping[Any, Any]] | None = None, **options: Any
) -> Callable[[Converter], Converter]:
    """Returns ``pack.converter`` for layers that work element by element.

    They accept tensors without elements, and read no sizes.
    """
    pack.reads_no_sizes(*targets, *(op for values in (table or {}).values() for op in values))
    return pack.converter(*targets, table=table, supports_empty=True, **options)
