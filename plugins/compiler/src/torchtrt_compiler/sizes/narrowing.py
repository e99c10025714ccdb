"""Reports the declared sizes that a compiled model refuses, because its code is another program for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
from torch.export import ExportedProgram

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import holds
from torchtrt_compiler.sizes.accepted import Accepted, fixes_a_size
from torchtrt_compiler.sizes.calls import are_refused_by_ops
from torchtrt_compiler.sizes.declared import DeclaredSize
from torchtrt_compiler.sizes.guards import place_of
from torchtrt_compiler.sizes.model_checks import is_check
from torchtrt_compiler.sizes.questions import AskedConditions, asked_conditions
from torchtrt_compiler.torch_internals import size_as_traced
from torchtrt_runtime.checks.dimensions import as_code, symbol_codes
from torchtrt_runtime.reports.report import NarrowedSize
from torchtrt_runtime.size_ranges import Profile, some_sizes, union

_POINTS = 4
"""How many of the sizes beyond each end of a range are tried."""


class Narrowing(NamedTuple):
    """How the sizes that were asked for became those that are compiled.

    Attributes:
        exported: The exported program.
        sizes: The dimensions of its inputs whose sizes vary.
        codes: How the model's code reads sizes, by the symbols that they had before PyTorch replaced some of them.
        declared: The profiles that were asked for, as far as PyTorch exported them.
        accepted: The part of them that is compiled.
        lines: The conditions, each with the line of the model that it comes from, if that is known.
        checks: Those that ops of the model check in eager PyTorch: it refuses what they exclude.
        added: Those that PyTorch added while it rewrote writes.
        of_program: Those that are a part of a program which the user exported.
    """

    exported: ExportedProgram
    sizes: Sequence[DeclaredSize]
    codes: Mapping[Any, str]
    declared: tuple[Profile, ...]
    accepted: Accepted
    lines: Mapping[Any, str]
    checks: Collection[Any]
    added: Collection[Any]
    of_program: Collection[Any]

    def rows(self) -> Iterator[NarrowedSize]:
        """Yields the requested sizes that the model's code, as PyTorch exported it, does not take.

        A condition on several sizes has a row of its own, at the first of them. Sizes between the limits that the model
        itself refuses are no reason for a row: nothing is lost, and no range could leave them out. Conditions of a
        program that the user exported are a part of it.
        """
        codes = symbol_codes(size.dimension for size in self.sizes)
        asked = asked_conditions(self.exported)
        gaps = list(self._gaps(asked))
        limits = [(size, self._limits(size)) for size in self.sizes]
        is_left_out = any(len(self.accepted.profiles) < len(size.ranges) for size in self.sizes)
        rows = []
        for size, row in limits:
            symbol = size.linear.symbol
            own = [
                condition
                for condition, examples in self.accepted.examples.items()
                if examples and condition.free_symbols == {symbol}
            ]
            has_gaps = not {*gaps}.isdisjoint(own)
            lines = {end: self._line(symbol, size.size, end) for end in _narrowed_ends(row)}
            if not lines and not has_gaps:
                continue
            branches = (line for line in lines.values() if not is_check(line))
            line = next(filter(None, (*branches, *lines.values())), "")
            line = line or self._line(symbol, size.size, 1)
            text = " and ".join(_operand(condition, codes) for condition in own)
            row = dataclasses.replace(row, model_line=line, condition=text)
            if asked is None:
                is_of_program = not text and self._is_declared(symbol)
                row = dataclasses.replace(row, is_of_program=is_of_program)
            elif not has_gaps and self._is_refused(size, row, lines, asked.lines):
                row = dataclasses.replace(row, is_refused=True)
            elif not text and not line:
                limiting = _limiting(size, row, limits, is_left_out)
                row = dataclasses.replace(row, depends_on=limiting)
            rows.append(row)
        # A range that is left out as a whole takes the sizes of the other inputs with it.
        cause = next((row.model_line for row in rows if row.model_line), "") if is_left_out else ""
        for row in rows:
            yield dataclasses.replace(row, model_line=row.model_line or cause)
        for condition in gaps:
            if len(condition.free_symbols) > 1:
                first = next(
                    row for size, row in limits if size.linear.symbol in condition.free_symbols
                )
                line, text = self.lines.get(condition, ""), as_code(condition, codes)
                yield dataclasses.replace(first, model_line=line, condition=text)
        if asked is not None:
            yield from self._equal_sizes(limits, asked)

    def _limits(self, size: DeclaredSize) -> NarrowedSize:
        """Returns a dimension with the limits of the sizes that were asked for and that are compiled."""
        linear = size.linear
        declared, compiled = self._ranges_of(linear.symbol)
        lows, _, highs = (
            [number for number in numbers if number is not None]
            for numbers in zip(*size.ranges, strict=True)
        )
        asked = linear.values(
            min(lows, default=linear.size(declared.min)),
            max(highs, default=linear.size(declared.max)),
        )
        low, high, least, most = map(linear.size, (*asked, compiled.min, compiled.max))
        return NarrowedSize(size.dimension.input, size.dimension.dim, (low, high), (least, most))

    def _ranges_of(self, symbol: Any) -> list[SizeRange]:
        """Returns the values of a symbol that were asked for, and those that are compiled."""
        groups = self.declared, self.accepted.profiles
        return [union(profile[symbol] for profile in profiles) for profiles in groups]

    def _is_declared(self, symbol: Any) -> bool:
        """Returns whether the program itself has the limits that are compiled."""
        declared, compiled = self._ranges_of(symbol)
        return (declared.min, declared.max) == (compiled.min, compiled.max)

    def _is_refused(
        self,
        size: DeclaredSize,
        row: NarrowedSize,
        lines: Mapping[int, str],
        asked: Mapping[Any, str],
    ) -> bool:
        """Returns whether the model itself refuses the sizes beyond the limits, by a check or in an op.

        Args:
            size: The dimension.
            row: Its limits.
            lines: The lines of the model that narrow it, at the first and the last end.
            asked: The conditions that its code asked for, and not its ops. Functions of PyTorch's have no line.
        """
        (low, high), (least, most) = (
            size.linear.values(*ends) for ends in (row.asked, row.compiled)
        )
        beyond = SizeRange(low, 0, least - 1), SizeRange(most + 1, 0, high)
        usual = {symbol: sizes.opt for symbol, sizes in self.accepted.profiles[0].items()}
        points = [
            {**usual, size.linear.symbol: value}
            for end, line in lines.items()
            for value in some_sizes(beyond[end], _POINTS)
            if not line
        ]
        branches = [
            condition
            for condition, line in asked.items()
            if condition.free_symbols == {size.linear.symbol} and not is_check(line)
        ]
        if not all(holds(condition, point) for condition in branches for point in points):
            return False
        is_checked = all(map(is_check, filter(None, lines.values())))
        points = [point for point in points if all(holds(check, point) for check in self.checks)]
        return is_checked and are_refused_by_ops(self.exported.graph_module, points)

    def _gaps(self, asked: AskedConditions | None) -> Iterator[Any]:
        """Yields the conditions that refuse sizes within the limits which the model takes as another program.

        Where an op of the program refuses these sizes as well, the model refuses them, unless its code asked first.
        """
        graph_module = self.exported.graph_module
        for condition, points in self.accepted.examples.items():
            is_checked = condition in self.checks or is_check(self.lines.get(condition, ""))
            if not points or is_checked or condition in self.of_program:
                continue
            is_branch = asked is not None and bool(asked.lines.get(condition))
            if is_branch or not are_refused_by_ops(graph_module, points):
                yield condition

    def _line(self, symbol: Any, size: Any, end: int) -> str:
        """Returns the line of the model that narrows a size, at the first end of its range or at the last.

        The line that refuses the sizes next to those that are compiled comes first. The model may branch further on.
        """
        declared, compiled = self._ranges_of(symbol)
        next_to = (compiled.min - 1, compiled.max + 1)[end]
        beyond = (
            SizeRange(declared.min, 0, next_to - 1),
            SizeRange(next_to + 1, 0, declared.max),
        )[end]
        outside = next_to, *some_sizes(beyond, _POINTS)
        asked = [condition for condition in self.lines if condition not in self.checks]
        own = [condition for condition in asked if condition.free_symbols == {symbol}]
        refusing = (
            condition
            for value in outside
            for condition in own
            if not holds(condition, {symbol: value})
        )
        joint = [
            condition
            for condition, examples in self.accepted.examples.items()
            if symbol in condition.free_symbols
            and condition not in self.checks
            and (examples or len(condition.free_symbols) > 1)
        ]
        sources = getattr(size.node.shape_env, "var_to_range_sloc", {}).get(symbol)
        source = place_of(sources and (sources.lower, sources.upper)[end])
        return next(filter(None, (*map(self.lines.get, (*refusing, *joint)), source)), "")

    def _equal_sizes(
        self, limits: Sequence[tuple[DeclaredSize, NarrowedSize]], asked: AskedConditions
    ) -> Iterator[NarrowedSize]:
        """Yields the conditions that made sizes depend on each other, unless they are checks, or ops broadcast sizes.

        Where ``if x.shape[0] == y.shape[0]`` is true for the optimal sizes, PyTorch has one symbol for both of them. So
        it has where ``x[:, : y.shape[1]].contiguous()`` is all of ``x``, or such a slice is written to. An op may also
        fix ``x.shape[0] + y.shape[0]`` to a number.
        """
        rows = {size_as_traced(size.size): row for size, row in limits if size.is_input}
        environment: Any = self.sizes[0].size.node.shape_env if self.sizes else None
        for guard in getattr(environment, "guards", ()):
            condition = guard.expr
            line = asked.as_asked.get(condition, "")
            is_settled = environment.replace(condition) == True  # noqa: E712  (SymPy's)
            own = [symbol for symbol in sorted(condition.free_symbols, key=str) if symbol in rows]
            is_branch = line and not is_check(line)
            is_of_layout = condition in asked.by_layout or condition in self.added
            is_fixed_sum = len(condition.free_symbols) > 1 and fixes_a_size(condition)
            if is_settled and own and (is_branch or is_of_layout or is_fixed_sum):
                text = as_code(condition, self.codes)
                yield dataclasses.replace(rows[own[0]], model_line=line, condition=text)


def _narrowed_ends(row: NarrowedSize) -> list[int]:
    """Returns at which ends of a range sizes are left out: 0 for the first, 1 for the last."""
    return [end for end in (0, 1) if row.asked[end] != row.compiled[end]]


def _limiting(
    size: DeclaredSize,
    row: NarrowedSize,
    limits: Sequence[tuple[DeclaredSize, NarrowedSize]],
    is_left_out: bool,
) -> str:
    """Returns the dimension of the same symbol whose range sets the limits that are compiled; ``""`` if there is none.

    Where a range is left out as a whole, it is one with other limits.
    """
    asked, compiled = (size.linear.values(*ends) for ends in (row.asked, row.compiled))
    for other, other_row in limits:
        if other.linear.symbol == size.linear.symbol:
            others = other.linear.values(*other_row.asked)
            sets_limits = all(others[end] == compiled[end] for end in _narrowed_ends(row))
            if sets_limits or (is_left_out and others != asked):
                return str(other.dimension)
    return ""


def _operand(condition: Any, codes: Mapping[Any, str]) -> str:
    """Returns a condition as an operand of ``and``."""
    text = as_code(condition, codes)
    return f"({text})" if isinstance(condition, sympy.Or) else text
