"""Reports the declared sizes that a compiled model refuses, because its code is another program for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import holds
from torchtrt.graphs.nodes import is_number
from torchtrt_compiler.inputs import CallInputs, Input
from torchtrt_compiler.sizes.accepted import Accepted
from torchtrt_compiler.sizes.declared import count_ranges, declared_limits
from torchtrt_compiler.sizes.guards import place_of
from torchtrt_compiler.sizes.model_checks import is_check
from torchtrt_compiler.sizes.questions import asked_conditions
from torchtrt_compiler.sizes.small import are_refused_by_ops
from torchtrt_compiler.torch_internals import PythonPrinter, size_as_traced
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.reports.report import NarrowedSize
from torchtrt_runtime.size_ranges import LinearSize, Profile, linear_size, union


class Narrowing(NamedTuple):
    """How the sizes that were asked for became those that are compiled.

    Attributes:
        exported: The exported program.
        placeholders: The inputs of the same program, opened.
        inputs: What was passed for them.
        declared: The profiles that were asked for, as far as PyTorch exported them.
        accepted: The part of them that is compiled.
        lines: The conditions, each with the line of the model that it comes from, if that is known.
    """

    exported: ExportedProgram
    placeholders: Sequence[Node]
    inputs: CallInputs
    declared: tuple[Profile, ...]
    accepted: Accepted
    lines: Mapping[Any, str]

    def rows(self) -> Iterator[NarrowedSize]:
        """Yields the requested sizes that the model's code, as PyTorch exported it, does not take.

        A condition on several sizes has a row of its own, at the first of them. Sizes between the limits that the model
        itself refuses are no reason for a row: nothing is lost, and no range could leave them out. Conditions of a
        program that the user exported are a part of it.
        """
        as_code = InputChecks.of(self.placeholders, self.accepted.profiles).as_code
        asked = asked_conditions(self.exported)
        gaps = [] if asked is None else list(self._gaps(asked.lines))
        dimensions = list(self._dimensions())
        rows = []
        for dimension in dimensions:
            own = [
                condition
                for condition, examples in self.accepted.examples.items()
                if examples and condition.free_symbols == {dimension.symbol}
            ]
            (low, high), (least, most) = dimension.row.asked, dimension.row.compiled
            if least > low or most < high or {*own} & {*gaps}:
                line = self._line(dimension, is_minimum=least > low)
                text = " and ".join(map(as_code, own))
                is_of_program = asked is None and not text and self._is_declared(dimension)
                rows.append(
                    dataclasses.replace(
                        dimension.row,
                        model_line=line,
                        condition=text,
                        is_of_program=is_of_program,
                    )
                )
        # A range that is left out as a whole takes the sizes of the other inputs with it.
        is_left_out = len(self.accepted.profiles) < count_ranges(self.inputs.leaves)
        cause = next((row.model_line for row in rows if row.model_line), "") if is_left_out else ""
        for row in rows:
            yield dataclasses.replace(row, model_line=row.model_line or cause)
        for condition in gaps:
            if len(condition.free_symbols) > 1:
                first = next(
                    dimension
                    for dimension in dimensions
                    if dimension.symbol in condition.free_symbols
                )
                line, text = self.lines.get(condition, ""), as_code(condition)
                yield dataclasses.replace(first.row, model_line=line, condition=text)
        if asked is not None:
            yield from self._equal_sizes(dimensions, asked.as_asked)

    def _is_declared(self, dimension: _Dimension) -> bool:
        """Returns whether the program itself has the limits that are compiled."""
        declared = union(profile[dimension.symbol] for profile in self.declared)
        return (declared.min, declared.max) == (dimension.compiled.min, dimension.compiled.max)

    def _gaps(self, asked: Mapping[Any, str]) -> Iterator[Any]:
        """Yields the conditions that refuse sizes within the limits which the model takes as another program.

        Where an op of the program refuses these sizes as well, the model refuses them, unless its code asked first.
        """
        graph_module = self.exported.graph_module
        for condition, points in self.accepted.examples.items():
            if not points or is_check(self.lines.get(condition, "")):
                continue
            is_branch = bool(asked.get(condition))
            if is_branch or not are_refused_by_ops(graph_module, points):
                yield condition

    def _dimensions(self) -> Iterator[_Dimension]:
        """Yields the dynamic dimensions of the inputs, with the limits that were asked for and that are compiled."""
        limits = declared_limits(self.exported)
        for number, (leaf, placeholder) in enumerate(self._arguments()):
            for dim, size in enumerate(getattr(placeholder.meta["val"], "shape", ())):
                linear = None if isinstance(size, int) else linear_size(size.node.expr)
                if linear is None or linear.symbol not in self.accepted.profiles[0]:
                    continue
                declared, compiled = (
                    union(profile[linear.symbol] for profile in profiles)
                    for profiles in (self.declared, self.accepted.profiles)
                )
                low, high = limits.get((number, dim), (None, None))
                if isinstance(leaf, Input):  # beside which dynamic_shapes may declare fewer
                    low = max(leaf.bounds[0][dim], low or 0)
                    high = min(leaf.bounds[2][dim], leaf.bounds[2][dim] if high is None else high)
                asked = linear.values(
                    linear.size(declared.min) if low is None else low,
                    linear.size(declared.max) if high is None else high,
                )
                low, high, least, most = map(linear.size, (*asked, compiled.min, compiled.max))
                named = None if is_number(placeholder) else dim
                row = NarrowedSize(str(placeholder.target), named, (low, high), (least, most))
                yield _Dimension(linear, row, compiled, size.node.shape_env)

    def _arguments(self) -> Iterator[tuple[Any, Node]]:
        """Yields what was passed for each input, or else its placeholder, and its placeholder."""
        return zip(self.inputs.leaves or self.placeholders, self.placeholders, strict=False)

    def _line(self, dimension: _Dimension, is_minimum: bool) -> str:
        """Returns the line of the model that narrows a size, at the minimum of its range or elsewhere."""
        symbol, compiled = dimension.symbol, dimension.compiled
        outside = {symbol: compiled.min - 1 if is_minimum else compiled.max + 1}
        refusing = [
            condition
            for condition in self.lines
            if condition.free_symbols == {symbol} and not holds(condition, outside)
        ]
        joint = [
            condition for condition in self.accepted.examples if symbol in condition.free_symbols
        ]
        sources = getattr(dimension.environment, "var_to_range_sloc", {}).get(symbol)
        own = place_of(sources and (sources.lower if is_minimum else sources.upper))
        return next(filter(None, (*map(self.lines.get, (*refusing, *joint)), own)), "")

    def _equal_sizes(
        self, dimensions: Sequence[_Dimension], asked: Collection[Any]
    ) -> Iterator[NarrowedSize]:
        """Yields the conditions of the model's code that made sizes depend on each other, unless they are checks.

        Where ``if x.shape[0] == y.shape[0]`` is true for the optimal sizes, PyTorch has one symbol for both of them.
        """
        rows = {(dimension.row.input, dimension.row.dim): dimension.row for dimension in dimensions}
        origins = {
            size_as_traced(size): (str(node.target), None if is_number(node) else dim)
            for leaf, node in self._arguments()
            for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ()))
            if isinstance(leaf, Input) and isinstance(size, torch.SymInt)
        }
        names = {
            symbol: sympy.Symbol(name if dim is None else f"{name}.shape[{dim}]")
            for symbol, (name, dim) in origins.items()
        }
        environment: Any = dimensions[0].environment if dimensions else None
        guards = {guard.expr: place_of(guard.sloc) for guard in getattr(environment, "guards", ())}
        for condition, line in guards.items():
            is_settled = environment.replace(condition) == True  # noqa: E712  (SymPy's)
            if not is_settled or condition not in asked or not line or is_check(line):
                continue
            own = (origins.get(symbol) for symbol in sorted(condition.free_symbols, key=str))
            row = next((rows[origin] for origin in own if origin in rows), None)
            if row is not None:
                text = str(PythonPrinter().doprint(condition.xreplace(names)))
                yield dataclasses.replace(row, model_line=line, condition=text)


class _Dimension(NamedTuple):
    """A dynamic dimension of an input.

    Attributes:
        linear: The size, by its symbol.
        row: The dimension, the sizes that were asked for, and the limits of those that are compiled.
        compiled: The values of the symbol that are compiled.
        environment: Where the symbol lives.
    """

    linear: LinearSize
    row: NarrowedSize
    compiled: SizeRange
    environment: Any

    @property
    def symbol(self) -> Any:
        """The symbol in the size."""
        return self.linear.symbol
