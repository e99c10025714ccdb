"""Puts numbers in place of the sizes that a program was exported for alone, which stay symbols in name only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import evaluate
from torchtrt.torch_internals import pytree
from torchtrt_compiler.torch_internals import (
    FakeTensor,
    ValueRanges,
    bound_sympy,
    disable_fake_tensor_cache,
)


def settle_sizes(
    graph: Graph,
    fixed_sizes: Mapping[Any, int],
    ranges: Mapping[Any, SizeRange] = MappingProxyType({}),
) -> None:
    """Gives a graph's values the sizes that are known. Its inputs keep their symbols, by which calls are checked.

    Args:
        graph: The graph.
        fixed_sizes: The number of each expression that a guard fixes.
        ranges: The values of each symbol, once it is known which are compiled: PyTorch adds no guard for what
            follows from them, and takes none for 0 or 1 before.
    """
    settling, settling_inputs = _Settling(fixed_sizes, ranges), _Settling({}, {})
    for node in graph.nodes:
        if "val" in node.meta:
            settle = (settling_inputs if node.op == "placeholder" else settling).value
            node.meta["val"] = pytree.tree_map(settle, node.meta["val"])


class _Settling:
    """Puts numbers in place of sizes.

    Args:
        fixed_sizes: The number of each expression that a guard fixes.
        ranges: The values of each symbol.
    """

    def __init__(self, fixed_sizes: Mapping[Any, int], ranges: Mapping[Any, SizeRange]) -> None:
        self._numbers: dict[Any, int | None] = dict(fixed_sizes)
        self._ranges = {symbol: ValueRanges(size.min, size.max) for symbol, size in ranges.items()}

    def value(self, value: Any) -> Any:
        """Returns a value with numbers for its sizes that are known."""
        if isinstance(value, torch.SymInt):
            number = self._number(value.node.expr)
            return value if number is None else number
        if not isinstance(value, FakeTensor) or all(type(size) is int for size in value.shape):
            return value
        sizes, strides = (
            list(map(self.value, numbers)) for numbers in (value.shape, value.stride())
        )
        if [type(size) for size in sizes] == [type(size) for size in value.shape]:
            return value
        offset = self.value(value.storage_offset())
        # To fill its cache, PyTorch would ask how the sizes compare.
        with value.fake_mode, disable_fake_tensor_cache(value.fake_mode):
            return value.as_strided(sizes, strides, offset)

    def _number(self, expression: Any) -> int | None:
        """Returns the number that an expression is known to be. A symbol stays one: calls are checked by it."""
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return None
        if expression not in self._numbers:
            self._numbers[expression] = self._only_value(expression)
        return self._numbers[expression]

    def _only_value(self, expression: Any) -> int | None:
        """Returns the one value that an expression has for all values of its symbols, or None."""
        if not expression.free_symbols <= self._ranges.keys():
            return None
        ranges = [self._ranges[symbol] for symbol in expression.free_symbols]
        if all(range_.is_singleton() for range_ in ranges):
            values = {symbol: int(self._ranges[symbol].lower) for symbol in expression.free_symbols}
            return int(evaluate(expression, values))
        bounds = bound_sympy(expression, self._ranges)
        return int(bounds.lower) if bounds.is_singleton() else None
