"""Finds the sizes for which conditions hold.

PyTorch narrows the range of a symbol itself where a guard is a plain inequality. Other conditions, such as
``s0 // 2 != 4``, leave the range as it is, and are evaluated here for the sizes of the range.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import sympy

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import CompiledExpression
from torchtrt_compiler.torch_internals import sympy_functions
from torchtrt_runtime.size_ranges import Profile, some_sizes

Values = Mapping[Any, int]
"""A value for each symbol."""
_EVALUATIONS = 2**16
"""How often all conditions are evaluated together: a quarter of a second on a slow processor."""
_INEQUALITIES = (
    sympy.GreaterThan, sympy.StrictGreaterThan, sympy.LessThan, sympy.StrictLessThan,
)  # fmt: skip
_FEWEST, _MOST = 2**6, 2**16
"""For how many combinations of values a condition is evaluated at least, and at most."""


class Accepted(NamedTuple):
    """The part of the declared sizes for which conditions hold.

    Attributes:
        profiles: The profiles, from the smallest to the largest of these sizes. Those without any are omitted.
        conditions: The conditions that calls have to be checked for besides the ranges. They do not hold for all
            declared sizes, or not each combination of sizes was checked.
    """

    profiles: tuple[Profile, ...]
    conditions: tuple[Any, ...]


def accepted_sizes(conditions: Iterable[Any], profiles: Sequence[Profile]) -> Accepted:
    """Returns the sizes of profiles for which conditions hold.

    Each combination of the sizes on which a condition depends is checked, if there are at most 65,536, and fewer for a
    program with many conditions. Otherwise some are checked, with those at the ends of the ranges.
    """
    compiled = list(map(CompiledExpression.of, conditions))
    regions = [_Region(profile, compiled) for profile in profiles]
    taken = tuple(_buildable(region.profile(), compiled) for region in regions if region)
    proved = set.intersection(*(region.proved for region in regions))
    left = tuple(
        condition.expression for condition in compiled if condition.expression not in proved
    )
    return Accepted(taken, left)


def fixes_a_size(condition: Any) -> bool:
    """Returns whether a condition says that a size is a number, rather than a multiple of one."""
    return bool(
        isinstance(condition, sympy.Eq)
        and condition.rhs.is_Integer
        and not condition.lhs.has(sympy_functions.Mod, sympy_functions.PythonMod)
    )


def _buildable(profile: Profile, conditions: Sequence[CompiledExpression]) -> Profile:
    """Returns the sizes of a profile that an engine can be built for, around optimal ones that conditions accept.

    TensorRT builds for the smallest sizes together, for the optimal and for the largest. Where these do not satisfy an
    equation, such as ``n * m == 12``, the shapes of a network do not fit the 12 that the program has there.
    """
    expressions = [condition.expression for condition in conditions]
    if (optimum := nearest_point(expressions, profile)) is not None:
        profile = {symbol: size._replace(opt=optimum[symbol]) for symbol, size in profile.items()}
    equations = [condition for condition in conditions if fixes_a_size(condition.expression)]
    for equation in equations:
        if _hold_at_corners([equation], profile):
            continue
        point = nearest_point([other.expression for other in equations], profile)
        if point is None:
            continue
        fixed = {symbol: SizeRange(*[point[symbol]] * 3) for symbol in equation.symbols}
        narrowed = {**profile, **fixed}
        for symbol in equation.symbols:
            low, _, high = profile[symbol]
            value = point[symbol]
            ranges = (low, value, high), (value, value, high), (low, value, value)
            wider = ({**narrowed, symbol: SizeRange(*limits)} for limits in ranges)
            narrowed = next((own for own in wider if _hold_at_corners(equations, own)), narrowed)
        profile = narrowed
    return profile


def _hold_at_corners(conditions: Sequence[CompiledExpression], profile: Profile) -> bool:
    """Returns whether conditions hold for the smallest sizes together, for the optimal and for the largest."""
    corners = [
        dict(zip(profile, sizes, strict=True)) for sizes in zip(*profile.values(), strict=True)
    ]
    return all(condition.holds(corner) for condition in conditions for corner in corners)


def nearest_point(conditions: Iterable[Any], profile: Profile) -> Values | None:
    """Returns the sizes of a profile that are the closest to the optimal ones of all for which conditions hold.

    None if there are none, or if none of those that were tried is.
    """
    compiled = list(map(CompiledExpression.of, conditions))
    usual = {symbol: size.opt for symbol, size in profile.items()}
    if all(condition.holds(usual) for condition in compiled):
        return usual
    points = some_points(profile, _budget(len(compiled)))
    return min(
        (point for point in points if all(condition.holds(point) for condition in compiled)),
        key=lambda point: sum(abs(size - usual[symbol]) for symbol, size in point.items()),
        default=None,
    )


class _Region:
    """The sizes of one profile for which conditions hold. It is false if there are none.

    Attributes:
        values: For each symbol, the values for which calls may be accepted: a range, or a list with gaps.
        proved: The conditions that hold for all sizes that have passed the earlier ones.
    """

    def __init__(self, sizes: Profile, conditions: Sequence[CompiledExpression]) -> None:
        self._sizes = sizes
        self.values: dict[Any, Sequence[int]] = {
            symbol: range(size.min, size.max + 1) for symbol, size in sizes.items()
        }
        self.proved: set[Any] = set()
        self._applied: list[CompiledExpression] = []
        self._budget = _budget(len(conditions))
        groups: dict[tuple[Any, ...], list[CompiledExpression]] = {}
        for condition in sorted(conditions, key=lambda condition: len(condition.symbols)):
            if not self._apply_limit(condition.expression):
                groups.setdefault(condition.symbols, []).append(condition)
        for symbols, members in groups.items():
            self._apply(symbols, members)

    def __bool__(self) -> bool:
        return all(self.values.values())

    def _apply_limit(self, condition: Any) -> bool:
        """Excludes values by a condition that compares a symbol with a number; returns whether it is one."""
        if not isinstance(condition, _INEQUALITIES):
            return False
        least, most = condition.lts, condition.gts
        distance = int(isinstance(condition, (sympy.StrictLessThan, sympy.StrictGreaterThan)))
        if least.is_Integer and (values := self.values.get(most)):
            rest = values[max(int(least) + distance - values[0], 0) :]
        elif most.is_Integer and (values := self.values.get(least)):
            rest = values[: max(int(most) - distance - values[0] + 1, 0)]
        else:
            return False
        self.values[condition.free_symbols.pop()] = rest
        self.proved.add(condition)
        return True

    def _apply(self, symbols: tuple[Any, ...], conditions: Sequence[CompiledExpression]) -> None:
        """Excludes the values of symbols for which no combination is accepted by conditions on just these symbols."""
        axes = _axes([self.values[symbol] for symbol in symbols], self._budget, conditions)
        is_complete = all(
            len(axis) == len(self.values[symbol])
            for symbol, axis in zip(symbols, axes, strict=True)
        )
        earlier = [condition for condition in self._applied if {*condition.symbols} <= {*symbols}]
        points = [
            point
            for point in _points(symbols, axes)
            if all(condition.holds(point) for condition in earlier)
        ]
        accepted = points
        for condition in conditions:
            if not all(condition.holds(point) for point in points):
                self._applied.append(condition)
                accepted = [point for point in accepted if condition.holds(point)]
            elif is_complete:
                self.proved.add(condition.expression)
        if is_complete or len(symbols) == 1:
            for symbol, axis in zip(symbols, axes, strict=True):
                refused = {*axis} - {point[symbol] for point in accepted}
                self.values[symbol] = _without(self.values[symbol], refused)
        if is_complete and len(symbols) == 1 and isinstance(self.values[symbols[0]], range):
            self.proved.update(condition.expression for condition in conditions)

    def profile(self) -> Profile:
        """Returns the ranges of the values; the optimum is the accepted value that is the closest one to it."""
        ranges = {}
        for symbol, values in self.values.items():
            optimum = self._sizes[symbol].opt
            near = values if isinstance(values, list) else (values[0], values[-1])
            if optimum not in values:
                optimum = min(near, key=lambda value: abs(value - self._sizes[symbol].opt))
            ranges[symbol] = SizeRange(values[0], optimum, values[-1])
        return ranges


def _without(values: Sequence[int], refused: Set[int]) -> Sequence[int]:
    """Returns ascending values without some: a range as long as only values at its ends are refused."""
    start, stop = 0, len(values)
    while start < stop and values[start] in refused:
        start += 1
    while start < stop and values[stop - 1] in refused:
        stop -= 1
    rest = values[start:stop]
    return rest if refused.isdisjoint(rest) else [value for value in rest if value not in refused]


def _budget(count: int) -> int:
    """Returns for how many combinations of values each of so many conditions is evaluated."""
    return min(_MOST, max(_FEWEST, _EVALUATIONS // max(1, count)))


def some_points(
    profile: Profile, most: int, conditions: Iterable[CompiledExpression] = ()
) -> Iterator[Values]:
    """Yields the combinations of a profile's values: all, or at most so many, with those at the ends of each range.

    Of one symbol, those next to the numbers in conditions are among them.
    """
    ranges = [range(size.min, size.max + 1) for size in profile.values()]
    return _points(tuple(profile), _axes(ranges, most, conditions))


def _axes(
    ranges: Sequence[Sequence[int]], most: int, conditions: Iterable[CompiledExpression]
) -> list[Sequence[int]]:
    """Returns the values of each range to try, with about so many combinations at most."""
    counts = [len(values) for values in ranges]
    while math.prod(counts) > most and max(counts) > 2:
        longest = counts.index(max(counts))
        counts[longest] -= max(1, counts[longest] // 8)
    axes: list[Sequence[int]] = [
        [values[index] for index in some_sizes(SizeRange(0, 0, len(values) - 1), count)]
        for values, count in zip(ranges, counts, strict=True)
    ]
    if len(axes) == 1:
        numbers = (condition.expression.atoms(sympy.Integer) for condition in conditions)
        near = {int(number) + step for number in set().union(*numbers) for step in (-1, 0, 1)}
        axes = [sorted({*axes[0], *(value for value in near if value in ranges[0])})]
    return axes


def _points(symbols: Sequence[Any], axes: Sequence[Sequence[int]]) -> Iterator[Values]:
    """Yields the combinations of the symbols' values."""
    return (dict(zip(symbols, point, strict=True)) for point in itertools.product(*axes))
