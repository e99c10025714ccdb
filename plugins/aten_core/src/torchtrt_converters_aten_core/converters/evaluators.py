"""Converters that add no layer."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Node

from torchtrt.conversion import ConversionContext, value_of
from torchtrt_blocks.checks import STORAGE_DTYPES
from torchtrt_converters_aten_core.registration import converts_elementwise


def _not_a_sequence(node: Node) -> str | None:
    container = value_of(node.args[0])
    return None if isinstance(container, (tuple, list)) else "only the outputs of an op are picked"


@converts_elementwise(operator.getitem, reject_if=_not_a_sequence, dtypes=STORAGE_DTYPES)
def getitem(ctx: ConversionContext, first: Any, second: Any) -> Any:
    """Returns one output of an op with several."""
    return first[second]
