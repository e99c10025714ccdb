"""Converters that add no layer."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch.fx import Node

from torchtrt_converters_aten_core.registration import (
    STORAGE_DTYPES,
    converts_elementwise,
    value_of,
)


def _not_a_sequence(node: Node) -> str | None:
    container = value_of(node.args[0])
    return None if isinstance(container, (tuple, list)) else "only the outputs of an op are picked"


@converts_elementwise(operator.getitem, unless=_not_a_sequence, dtypes=STORAGE_DTYPES)
def getitem(
    ctx: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """Returns one output of an op with several."""
    return args[0][args[1]]
