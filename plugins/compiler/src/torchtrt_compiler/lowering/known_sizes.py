"""Puts numbers in place of the sizes that a program was exported for alone, which stay symbols in name only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch.fx import Graph
from torch.utils import _pytree as pytree

from torchtrt_compiler.torch_internals import FakeTensor


def known_sizes(guards: Iterable[Any]) -> dict[Any, int]:
    """Returns the sizes that guards fix, by their expressions: they may say that ``n - (n + 1) // 2`` is 1."""
    equal = (guard for guard in guards if isinstance(guard, sympy.Eq) and guard.rhs.is_Integer)
    return {guard.lhs: int(guard.rhs) for guard in equal}


def settle_sizes(graph: Graph, known: Mapping[Any, int]) -> None:
    """Gives a graph's values the sizes that are known.

    Args:
        graph: The graph.
        known: The number of each expression that a guard fixes.
    """
    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(
                lambda value: _settled(value, known), node.meta["val"]
            )


def _settled(value: Any, known: Mapping[Any, int]) -> Any:
    """Returns a value with numbers for its sizes that are known."""
    if isinstance(value, torch.SymInt):
        expression = value.node.expr
        return int(expression) if expression.is_Integer else known.get(expression, value)
    if not isinstance(value, FakeTensor) or all(type(size) is int for size in value.shape):
        return value
    sizes, strides = (
        [_settled(size, known) for size in each] for each in (value.shape, value.stride())
    )
    if [type(size) for size in sizes] == [type(size) for size in value.shape]:
        return value
    with value.fake_mode:
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
