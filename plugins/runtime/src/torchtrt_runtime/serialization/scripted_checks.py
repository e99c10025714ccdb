"""Checks of sizes in TorchScript: a C++ program runs no check of Python, and PyTorch's ops take any size."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from torchtrt.expressions.values import evaluate
from torchtrt_runtime.checks.dimensions import Dimension
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.tensors import TensorCheck
from torchtrt_runtime.size_ranges import union_of_profiles
from torchtrt_runtime.torch_internals import assert_true

aten = torch.ops.aten


def add_size_checks(graph: Graph, inputs: Sequence[Node | None], checks: InputChecks) -> None:
    """Makes a graph check the sizes of its inputs as Python does before a call.

    Checked are ranks, fixed sizes, sizes that must be equal, the ranges of the others, and the conditions under which
    the model is this program.

    Args:
        graph: The graph; the checks are added at its end.
        inputs: The placeholder of each input of the model; None for one that is no tensor.
        checks: What Python checks.
    """
    checking = _Checking(graph, checks)
    for node, (_, check) in zip(inputs, checks.inputs, strict=True):
        if node is not None and isinstance(check, TensorCheck):
            checking.read(node, check)
    checking.check_sizes()
    checking.check_ranges()
    checking.check_conditions()


class _Checking:
    """Adds checks to a graph."""

    def __init__(self, graph: Graph, checks: InputChecks) -> None:
        self._graph, self._checks = graph, checks
        self._tracer = GraphAppendingTracer(graph)
        self._sizes: list[tuple[Dimension, Any]] = []
        self._values: dict[Any, Any] = {}
        self._names: dict[Any, str] = {}

    def read(self, node: Node, check: TensorCheck) -> None:
        """Reads the sizes of an input, and checks their number.

        Args:
            node: Its placeholder.
            check: What the model was compiled for.
        """
        rank = len(check.sizes)
        self._add(self._call(aten.dim, node) == rank, f"{check.name}.dim() == {rank}")
        for dim, dimension in enumerate(check.dimensions):
            read = self._call(aten.size, node, dim)
            self._sizes.append((dimension, read))
            linear = dimension.linear
            if linear is None or (linear.symbol in self._values and not linear.is_symbol):
                continue
            product = operator.sub(read, linear.offset)
            value = read if linear.is_symbol else operator.floordiv(product, linear.factor)
            self._values[linear.symbol], self._names[linear.symbol] = value, dimension.code

    def check_sizes(self) -> None:
        """Checks each size that is a number, or that the values of the symbols give."""
        for dimension, read in self._sizes:
            size, code = dimension.size, dimension.code
            if isinstance(size, int):
                self._add(read == size, f"{code} == {size}")
            elif self._has_values(size) and self._values.get(size) is not read:
                condition = read == evaluate(size, self._values)
                self._add(condition, f"{code} == {self._checks.as_code(size)}")

    def check_ranges(self) -> None:
        """Checks that the value of each symbol is in a range of the model."""
        for symbol, (low, _, high) in union_of_profiles(self._checks.profiles).items():
            if symbol in self._values:
                value = self._values[symbol]
                text = f"{low} to {high} in {self._names[symbol]}"
                self._add((value >= low) & (value <= high), text)

    def check_conditions(self) -> None:
        """Checks the conditions under which the model is this program."""
        for guard in filter(self._has_values, self._checks.guards):
            self._add(evaluate(guard, self._values), self._checks.as_code(guard))

    def _has_values(self, expression: Any) -> bool:
        return bool(expression.free_symbols <= self._values.keys())

    def _call(self, op: Any, *args: Any) -> Any:
        return Proxy(self._graph.call_function(op, args), self._tracer)

    def _add(self, condition: Any, text: str) -> None:
        # TorchScript drops each other check, which to it has no effect.
        message = f"The model was compiled for {text}."
        self._graph.call_function(assert_true, (condition.node, message))
