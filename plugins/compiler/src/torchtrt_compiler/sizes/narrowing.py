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
from torchtrt_runtime.size_ranges import LinearSize, Profile, linear_size, some_sizes, union

_POINTS = 4
"""How many of the sizes beyond each end of a range are tried."""


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
        is_left_out = len(self.accepted.profiles) < count_ranges(self.inputs.leaves)
        for dimension in dimensions:
            own = [
                condition
                for condition, examples in self.accepted.examples.items()
                if examples and condition.free_symbols == {dimension.symbol}
            ]
            (low, high), (least, most) = dimension.row.asked, dimension.row.compiled
            ends = {True: least > low, False: most < high}
            lines = {end: self._line(dimension, end) for end, narrowed in ends.items() if narrowed}
            if lines or {*own} & {*gaps}:
                branches = (line for line in lines.values() if not is_check(line))
                line = next(filter(None, (*branches, *lines.values())), "")
                line = line or self._line(dimension, is_minimum=False)
                text = " and ".join(map(as_code, own))
                row = dataclasses.replace(dimension.row, model_line=line, condition=text)
                if asked is None:
                    is_of_program = not text and self._is_declared(dimension)
                    row = dataclasses.replace(row, is_of_program=is_of_program)
                elif not {*own} & {*gaps} and self._is_refused(dimension, lines):
                    row = dataclasses.replace(row, is_refused=True)
                elif not text and not line:
                    limiting = _limiting(dimension, dimensions, is_left_out)
                    row = dataclasses.replace(row, depends_on=limiting)
                rows.append(row)
        # A range that is left out as a whole takes the sizes of the other inputs with it.
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

    def _is_refused(self, dimension: _Dimension, lines: Mapping[bool, str]) -> bool:
        """Returns whether the model itself refuses the sizes beyond the limits, by a check or in an op.

        Args:
            dimension: The dimension.
            lines: The lines of the model that narrow it, at its minimum and elsewhere.
        """
        compiled, (low, high) = dimension.compiled, dimension.asked
        usual = {symbol: size.opt for symbol, size in self.accepted.profiles[0].items()}
        beyond = {True: (low, compiled.min - 1), False: (compiled.max + 1, high)}
        points = [
            {**usual, dimension.symbol: value}
            for end, line in lines.items()
            for value in some_sizes(SizeRange(beyond[end][0], 0, beyond[end][1]), _POINTS)
            if not line
        ]
        is_checked = all(map(is_check, filter(None, lines.values())))
        return is_checked and are_refused_by_ops(self.exported.graph_module, points)

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
                yield _Dimension(linear, row, asked, compiled, size.node.shape_env)

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
        asked: The smallest and the largest value of the symbol that were asked for.
        compiled: The values of the symbol that are compiled.
        environment: Where the symbol lives.
    """

    linear: LinearSize
    row: NarrowedSize
    asked: tuple[int, int]
    compiled: SizeRange
    environment: Any

    @property
    def symbol(self) -> Any:
        """The symbol in the size."""
        return self.linear.symbol


def _limiting(dimension: _Dimension, dimensions: Sequence[_Dimension], is_left_out: bool) -> str:
    """Returns the dimension of the same symbol whose range sets the limits that are compiled; ``""`` if there is none.

    Where a range is left out as a whole, it is one with other limits.
    """
    limits = dimension.compiled.min, dimension.compiled.max
    narrowed = [end for end, limit in enumerate(limits) if dimension.asked[end] != limit]
    others = [other for other in dimensions if other.symbol == dimension.symbol]
    for other in others:
        is_other = is_left_out and other.asked != dimension.asked
        if is_other or all(other.asked[end] == limits[end] for end in narrowed):
            return other.row.dimension_name
    return ""
