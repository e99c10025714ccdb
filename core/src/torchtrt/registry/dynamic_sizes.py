"""Nodes with sizes that are known only at run time."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

_SYMBOLIC_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def has_symbolic_dimensions(node: Node) -> bool:
    """Returns whether the node's result or an input, however nested, has a symbolic size or is a symbolic number."""
    # all_input_nodes has the nodes inside nested lists, dicts and slices too.
    return any(
        _is_symbolic(graph_node.meta.get("val")) for graph_node in (node, *node.all_input_nodes)
    )


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        # The flag takes a quarter of the time that reading the shape takes, and is mostly false.
        return value._has_symbolic_sizes_strides and any(map(_is_symbolic, value.shape))
    if isinstance(value, _SYMBOLIC_NUMBERS):
        # A symbol that turned out to have one value only is as good as a number.
        return bool(getattr(getattr(value.node, "expr", None), "free_symbols", ()))
    return isinstance(value, (tuple, list)) and any(map(_is_symbolic, value))
