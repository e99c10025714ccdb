"""Reports the declared sizes that a compiled model refuses."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
from torch.export import ExportedProgram

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import CompiledExpression, holds
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.accepted import (
    Accepted,
    Values,
    fixes_a_size,
    nearest_point,
    some_points,
)
from torchtrt_compiler.sizes.calls import are_refused_by_ops
from torchtrt_compiler.sizes.declared import DeclaredSize
from torchtrt_compiler.sizes.model_checks import is_check
from torchtrt_compiler.sizes.questions import asked_conditions
from torchtrt_compiler.torch_internals import size_as_traced
from torchtrt_runtime.checks.dimensions import as_code, symbol_codes
from torchtrt_runtime.reports.report import NarrowedSize
from torchtrt_runtime.size_ranges import Profile, some_sizes, union, union_of_profiles

_MOST_POINTS = 1 << 10
"""For how many combinations of sizes a condition is evaluated."""
_EXAMPLES = 8
"""For how many of the sizes that a condition excludes the ops of the program are run."""

SizeRows = Sequence[tuple[DeclaredSize, NarrowedSize]]
"""Dimensions, each with the limits of the sizes that were asked for and that are compiled."""


class _Exclusion(NamedTuple):
    """A condition that excludes sizes that were asked for.

    Attributes:
        condition: The condition.
        line: The line of the model that it comes from, if that is known.
        points: Some of the sizes, which no earlier condition excludes.
        is_lost: Whether the model takes some of them. The conditions of a program that the user exported are a part of
            it.
    """

    condition: Any
    line: str
    points: Sequence[Values]
    is_lost: bool

    @property
    def symbols(self) -> set[Any]:
        """The symbols of the sizes."""
        return self.condition.free_symbols  # type: ignore[no-any-return]

    def is_within(self, limits: Profile) -> bool:
        """Returns whether some of the sizes are between limits."""
        return any(
            all(limits[symbol].contains(point[symbol]) for symbol in self.symbols)
            for point in self.points
        )

    def distance(self, symbol: Any, limits: SizeRange) -> int:
        """Returns how far the sizes are from those between limits."""
        values = [point[symbol] for point in self.points]
        return min(max(limits.min - value, value - limits.max, 0) for value in values)


def size_rows(
    sizes: Iterable[DeclaredSize], declared: Sequence[Profile], accepted: Accepted
) -> SizeRows:
    """Returns dimensions with their limits.

    Args:
        sizes: The dimensions.
        declared: The profiles that were asked for.
        accepted: The part of them that is compiled.
    """
    return [(size, _row(size, declared, accepted.profiles)) for size in sizes]


def _row(
    size: DeclaredSize, declared: Sequence[Profile], compiled: Sequence[Profile]
) -> NarrowedSize:
    """Returns a dimension with the limits of the sizes that were asked for and that are compiled."""
    linear, dimension = size.linear, size.dimension
    taken, built = (
        union(profile[linear.symbol] for profile in group) for group in (declared, compiled)
    )
    lows, _, highs = (
        [number for number in numbers if number is not None]
        for numbers in zip(*size.ranges, strict=True)
    )
    asked = linear.values(
        min(lows, default=linear.size(taken.min)), max(highs, default=linear.size(taken.max))
    )
    low, high, least, most = map(linear.size, (*asked, built.min, built.max))
    return NarrowedSize(dimension.input, dimension.dim, (low, high), (least, most))


class Narrowing(NamedTuple):
    """How the sizes that were asked for became those that are compiled.

    Attributes:
        exported: The exported program.
        limits: The dimensions of its inputs whose sizes vary.
        declared: The profiles that were asked for.
        accepted: The part of them that is compiled.
        lines: The conditions, each with the line of the model that it comes from, if that is known.
        checks: Those that ops of the model check in eager PyTorch.
        of_program: Those that are a part of a program which the user exported.
    """

    exported: ExportedProgram
    limits: SizeRows
    declared: Sequence[Profile]
    accepted: Accepted
    lines: Mapping[Any, str]
    checks: Collection[Any]
    of_program: Collection[Any]

    def rows(self) -> Iterator[NarrowedSize]:
        """Yields the requested sizes that are left out.

        A condition on several sizes has a row of its own, at the first of them. Sizes between the limits that the model
        itself refuses are no reason for a row: nothing is lost, and no range could leave them out.
        """
        codes = symbol_codes(size.dimension for size, _ in self.limits)
        compiled = union_of_profiles(self.accepted.profiles)
        exclusions = list(self._exclusions())
        gaps = [own for own in exclusions if own.is_lost and own.is_within(compiled)]
        for size, row in self.limits:
            own_gaps = [own.condition for own in gaps if own.symbols == {size.linear.symbol}]
            if own_gaps or row.asked != row.compiled:
                text = " and ".join(_operand(condition, codes) for condition in own_gaps)
                row = dataclasses.replace(row, condition=text)
                yield self._explained(row, size, exclusions)
        for own in gaps:
            if len(own.symbols) > 1:
                first = next(row for size, row in self.limits if size.linear.symbol in own.symbols)
                text = as_code(own.condition, codes)
                yield dataclasses.replace(first, model_line=own.line, condition=text)

    def _explained(
        self, row: NarrowedSize, size: DeclaredSize, exclusions: Sequence[_Exclusion]
    ) -> NarrowedSize:
        """Returns a row with the reason for it.

        That is a condition on the size alone, if there is one. Those that can be changed come first, and then those
        that refuse the sizes next to the compiled ones: the model may branch further on. Otherwise it is a condition on
        several sizes, or the range of a dimension with the same symbol.
        """
        symbol = size.linear.symbol
        compiled = union_of_profiles(self.accepted.profiles)[symbol]
        own = [exclusion for exclusion in exclusions if exclusion.symbols == {symbol}]
        own.sort(
            key=lambda exclusion: (not exclusion.is_lost, exclusion.distance(symbol, compiled))
        )
        joint = [exclusion for exclusion in exclusions if symbol in exclusion.symbols]
        # A range that is left out as a whole takes the sizes of the other inputs with it.
        is_left_out = any(len(self.accepted.profiles) < len(size.ranges) for size, _ in self.limits)
        reasons = *own, *joint, *(exclusions if is_left_out else ())
        row = dataclasses.replace(row, model_line=next((r.line for r in reasons if r.line), ""))
        is_lost = any(exclusion.is_lost for exclusion in reasons)
        if asked_conditions(self.exported) is None:
            return dataclasses.replace(row, is_of_program=not is_lost)
        # An engine takes one of the sizes for which an equation on several holds.
        if reasons and not any(map(fixes_a_size, (reason.condition for reason in reasons))):
            return dataclasses.replace(row, is_refused=not is_lost)
        return row if reasons else dataclasses.replace(row, depends_on=self._limiting(size, row))

    def _limiting(self, size: DeclaredSize, row: NarrowedSize) -> str:
        """Returns the dimension with the same symbol for which the fewest sizes were asked; ``""`` without another."""
        asked = size.linear.values(*row.asked)
        others = [
            (high - low, str(other.dimension))
            for other, other_row in self.limits
            if other.linear.symbol == size.linear.symbol
            for low, high in [other.linear.values(*other_row.asked)]
            if (low, high) != asked
        ]
        return min(others, default=(0, ""))[1]

    def _is_narrowed(self, symbol: Any) -> bool:
        """Returns whether fewer values of a symbol are compiled than were asked for."""
        declared, compiled = (
            {(profile[symbol].min, profile[symbol].max) for profile in profiles}
            for profiles in (self.declared, self.accepted.profiles)
        )
        return declared != compiled

    def _exclusions(self) -> Iterator[_Exclusion]:
        """Yields the conditions that exclude sizes that were asked for, first those of what the model itself checks."""
        refusing = {
            condition: line
            for condition, line in self.lines.items()
            if condition in self.accepted.conditions
            or any(map(self._is_narrowed, condition.free_symbols))
        }
        checks = {
            condition
            for condition, line in refusing.items()
            if condition in self.checks or is_check(line)
        }
        asked = asked_conditions(self.exported)
        usual = {symbol: size.opt for symbol, size in self.accepted.profiles[0].items()}
        earlier: list[Any] = []
        for condition in sorted(
            refusing, key=lambda own: (own not in checks, len(own.free_symbols))
        ):
            symbols = condition.free_symbols
            required = [other for other in earlier if other.free_symbols <= symbols]
            points = [
                point
                for profile in self.declared
                for point in _points(condition, profile)
                if not holds(condition, point) and all(holds(other, point) for other in required)
            ]
            if not points:
                continue
            earlier.append(condition)
            is_lost = condition not in checks and condition not in self.of_program
            if is_lost and not (asked and asked.lines.get(condition)):
                others = [other for other in refusing if not other.free_symbols <= symbols]
                chosen = some_sizes(SizeRange(0, 0, len(points) - 1), _EXAMPLES)
                examples = self._examples([points[index] for index in chosen], others)
                is_lost = not are_refused_by_ops(self.exported.graph_module, [*examples], usual)
            yield _Exclusion(condition, refusing[condition], points, is_lost)

    def _examples(self, points: Iterable[Values], conditions: Collection[Any]) -> Iterator[Values]:
        """Yields points with sizes beside them for which conditions hold: the optimal ones, the least, the greatest."""
        for point, profile in itertools.product(points, self.declared):
            if not all(profile[symbol].contains(value) for symbol, value in point.items()):
                continue
            fixed = {symbol: SizeRange(value, value, value) for symbol, value in point.items()}
            sizes = {**profile, **fixed}
            corners = (
                dict(zip(sizes, corner, strict=True))
                for corner in zip(*sizes.values(), strict=True)
            )
            fitting = [
                corner for corner in corners if all(holds(own, corner) for own in conditions)
            ]
            yield from fitting or filter(None, [nearest_point(conditions, sizes)])


def _points(condition: Any, profile: Profile) -> Iterator[Values]:
    """Yields some sizes of a profile that a condition is on."""
    own = {symbol: profile[symbol] for symbol in sorted(condition.free_symbols, key=str)}
    return some_points(own, _MOST_POINTS, [CompiledExpression.of(condition)])


def equal_sizes(
    exported: ExportedProgram, limits: SizeRows, codes: Mapping[Any, str], added: Collection[Any]
) -> Iterator[NarrowedSize]:
    """Yields the conditions that made sizes depend on each other, unless they are checks, or ops broadcast sizes.

    Where ``if x.shape[0] == y.shape[0]`` is true for the optimal sizes, PyTorch has one symbol for both of them. So
    it has where ``x[:, : y.shape[1]].contiguous()`` is all of ``x``, or such a slice is written to. An op may also
    fix ``x.shape[0] + y.shape[0]`` to a number.

    Args:
        exported: The exported program. One that the user exported has none.
        limits: The dimensions of its inputs whose sizes vary.
        codes: How the model's code reads sizes, by the symbols that they had before PyTorch replaced some of them.
        added: The guards that PyTorch added while it rewrote writes.
    """
    asked, environment = asked_conditions(exported), shape_env_of(exported.graph)
    if asked is None or environment is None:
        return
    rows = {size_as_traced(size.size): row for size, row in limits if size.is_input}
    for condition in (guard.expr for guard in environment.guards):
        line = asked.as_asked.get(condition, "")
        is_settled = environment.replace(condition) == True  # noqa: E712  (SymPy's)
        own = [symbol for symbol in sorted(condition.free_symbols, key=str) if symbol in rows]
        is_branch = line and not is_check(line)
        is_of_layout = condition in asked.by_layout or condition in added
        is_fixed_sum = len(condition.free_symbols) > 1 and fixes_a_size(condition)
        if is_settled and own and (is_branch or is_of_layout or is_fixed_sum):
            text = as_code(condition, codes)
            yield dataclasses.replace(rows[own[0]], model_line=line, condition=text)


def _operand(condition: Any, codes: Mapping[Any, str]) -> str:
    """Returns a condition as an operand of ``and``."""
    text = as_code(condition, codes)
    return f"({text})" if isinstance(condition, sympy.Or) else text
