"""Finds the sizes for which the guards of a program hold.

PyTorch narrows the range of a symbol itself where a guard is a plain inequality. Other guards, such as
``s0 // 2 != 4``, leave the range as it is, and are evaluated here for the sizes of the range.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch

from torchtrt.conversion.size_ranges import Profile, SizeRange, some_sizes, union_of_profiles
from torchtrt_compiler.torch_internals import PythonPrinter, sympy_functions

_MOST_POINTS = 2**16
"""For how many combinations of values a guard is evaluated."""
_LEAST_POINTS = 2**6
"""The same, where a program has very many guards."""
_EVALUATIONS = 2**18
"""How often all guards are evaluated together: half a second on a slow processor."""
_MOST_SEARCHES = 8
"""How often sizes are searched that only one guard refuses."""


class Guarded(NamedTuple):
    """The part of the declared sizes for which the guards of a program hold.

    Attributes:
        profiles: The profiles, from the smallest to the largest of these sizes. Those without any are omitted.
        refused: For each symbol, the declared values for which no call is accepted, in order. A symbol is only here
            if each of its values was checked.
        conditions: The guards that are false for some declared sizes. Those that refuse only what others do are
            omitted.
        gaps: Those of them that are false for some declared sizes within the limits of these profiles, each with one or
            two such sizes. As few of the others as possible refuse the same.
    """

    profiles: tuple[Profile, ...]
    refused: Mapping[Any, Sequence[int]]
    conditions: tuple[Any, ...]
    gaps: Mapping[Any, Sequence[Mapping[Any, int]]]


def guarded_sizes(guards: Iterable[Any], profiles: Sequence[Profile]) -> Guarded:
    """Returns the sizes of profiles for which guards hold.

    Each combination of the sizes on which a guard depends is checked, if there are at most 65,536, and fewer for a
    program with many guards. Otherwise some are checked, with those at the ends of the ranges.
    """
    evaluable = [_Guard.of(guard) for guard in guards]
    regions = [_Region(profile, evaluable) for profile in profiles]
    left = tuple(region.profile() for region in regions if region)
    conditions = dict.fromkeys(guard.condition for region in regions for guard in region.conditions)
    gaps = dict(pair for region in regions for pair in region.gaps(union_of_profiles(left)))
    return Guarded(left, _refused(regions), tuple(conditions), gaps)


def accepted_point(guards: Iterable[Any], profile: Profile) -> Mapping[Any, int] | None:
    """Returns the sizes of a profile that are the closest to the optimal ones of all for which guards hold."""
    known = [_Guard.of(guard) for guard in guards]
    usual = {symbol: size.opt for symbol, size in profile.items()}
    if all(guard.holds(usual) for guard in known):
        return usual
    axes = _axes([range(each.min, each.max + 1) for each in profile.values()], _budget(len(known)))
    points = _points(tuple(profile), axes)
    return min(
        (point for point in points if all(guard.holds(point) for guard in known)),
        key=lambda point: sum(abs(size - usual[symbol]) for symbol, size in point.items()),
        default=None,
    )


def refusing(conditions: Iterable[Any], guards: Iterable[Any], profile: Profile) -> list[Any]:
    """Returns the conditions that refuse sizes of a profile for which guards hold.

    A condition on more combinations of sizes than can be checked is among them.
    """
    tried, known = ([_Guard.of(each) for each in every] for every in (conditions, guards))
    found = []
    for condition in tried:
        symbols = tuple(
            symbol
            for symbol, size in profile.items()
            if symbol in condition.symbols or size.min == size.max
        )
        ranges = [range(profile[symbol].min, profile[symbol].max + 1) for symbol in symbols]
        same = [guard for guard in known if {*guard.symbols} <= {*symbols}]
        if math.prod(map(len, ranges)) > _budget(len(tried)) or any(
            not condition.holds(point) and all(guard.holds(point) for guard in same)
            for point in _points(symbols, ranges)
        ):
            found.append(condition.condition)
    return found


class _Guard(NamedTuple):
    """A guard as a function of Python, which is a hundred times as fast as the evaluation of SymPy.

    Attributes:
        condition: The guard.
        symbols: Its symbols.
        function: Returns whether it holds for values of the symbols.
    """

    condition: Any
    symbols: tuple[Any, ...]
    function: Callable[..., Any]

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, condition: Any) -> _Guard:
        """Returns a guard that can be evaluated."""
        symbols = tuple(sorted(condition.free_symbols, key=str))
        names = [vars(sympy_functions), {"torch": torch}]
        function = sympy.lambdify(symbols, condition, names, printer=PythonPrinter())
        return cls(condition, symbols, function)

    def holds(self, values: Mapping[Any, int]) -> bool:
        """Returns whether the guard is true for values of its symbols. A quotient by zero is refused in a call too."""
        try:
            return bool(self.function(*(values[symbol] for symbol in self.symbols)))
        except ZeroDivisionError:
            return False


class _Region:
    """The sizes of one profile for which guards hold. It is false if there are none.

    Args:
        sizes: The profile.
        guards: The guards.

    Attributes:
        values: For each symbol, the values for which calls may be accepted.
        restricted: The symbols with values that are never accepted.
        conditions: The guards that refuse something.
    """

    def __init__(self, sizes: Profile, guards: Sequence[_Guard]) -> None:
        self.sizes = sizes
        self.values: dict[Any, Sequence[int]] = {
            symbol: range(each.min, each.max + 1) for symbol, each in sizes.items()
        }
        self.restricted: set[Any] = set()
        self.conditions: list[_Guard] = []
        groups: dict[tuple[Any, ...], list[_Guard]] = {}
        for guard in sorted(guards, key=lambda each: (len(each.symbols), len(str(each.condition)))):
            groups.setdefault(guard.symbols, []).append(guard)
        self._most = _budget(len(guards))
        for symbols, members in groups.items():
            self._apply(symbols, members)
        if not self:
            self.values, self.restricted = dict.fromkeys(sizes, ()), {*sizes}

    def __bool__(self) -> bool:
        return all(self.values.values())

    def gaps(self, limits: Profile) -> Iterator[tuple[Any, Sequence[Mapping[Any, int]]]]:
        """Yields the guards that refuse declared sizes within limits which no earlier one does, with such sizes."""
        found: list[_Guard] = []
        within = self._within(limits) if limits else {}
        searches = 0
        for guard in self.conditions if within else ():
            points = [*self._refused_points(guard, within)]
            refused = [point for point in points if all(each.holds(point) for each in found)]
            if points and not refused and searches < _MOST_SEARCHES:
                searches += 1
                others = (each.condition for each in found)
                refused = [
                    *filter(None, [accepted_point([sympy.Not(guard.condition), *others], within)])
                ]
            if refused:
                found.append(guard)
                yield guard.condition, self._ends(refused)

    def _within(self, limits: Profile) -> Profile:
        """Returns the declared sizes within limits. The optimum is accepted, if any sizes are."""
        profile = self.profile() if self else self.sizes
        found = {}
        for symbol, size in self.sizes.items():
            low, high = max(size.min, limits[symbol].min), min(size.max, limits[symbol].max)
            found[symbol] = SizeRange(low, min(max(profile[symbol].opt, low), high), high)
        return found

    def _refused_points(self, guard: _Guard, sizes: Profile) -> Iterator[Mapping[Any, int]]:
        """Yields sizes that a guard refuses. Those on which it does not depend are the optimal ones."""
        usual = {symbol: size.opt for symbol, size in sizes.items()}
        ranges = {symbol: range(size.min, size.max + 1) for symbol, size in sizes.items()}
        for point in _points(guard.symbols, self._axes(guard.symbols, ranges, [guard])):
            if not guard.holds(point):
                yield {**usual, **point}

    def _ends(self, points: Sequence[Mapping[Any, int]]) -> list[Mapping[Any, int]]:
        """Returns the first and the last one of the sizes that as few guards as possible refuse."""
        some = [*points[:_LEAST_POINTS], *points[_LEAST_POINTS:][-_LEAST_POINTS:]]
        counts = list(map(self._count_refusing, some))
        pairs = zip(some, counts, strict=True)
        fewest = [point for point, count in pairs if count == min(counts)]
        return [fewest[0], *fewest[1:][-1:]]

    def _count_refusing(self, point: Mapping[Any, int]) -> int:
        return sum(not guard.holds(point) for guard in self.conditions)

    def _apply(self, symbols: tuple[Any, ...], guards: Sequence[_Guard]) -> None:
        """Excludes the values of symbols for which no combination is accepted by guards on just these symbols."""
        axes = self._axes(symbols, self.values, guards)
        sizes = [len(self.values[symbol]) for symbol in symbols]
        is_complete = sizes == [len(axis) for axis in axes]
        known = [each for each in self.conditions if {*each.symbols} <= {*symbols}]
        points = [
            point for point in _points(symbols, axes) if all(guard.holds(point) for guard in known)
        ]
        for guard in guards:
            accepted = [point for point in points if guard.holds(point)]
            if len(accepted) < len(points):
                self.conditions.append(guard)
                points = accepted
        for symbol in symbols if is_complete else ():
            values = sorted({point[symbol] for point in points})
            if len(values) < len(self.values[symbol]):
                self.values[symbol] = values
                self.restricted.add(symbol)

    def _axes(
        self,
        symbols: Sequence[Any],
        values: Mapping[Any, Sequence[int]],
        guards: Sequence[_Guard],
    ) -> list[Sequence[int]]:
        """Returns the values of symbols to try guards for: some of many, and those next to the numbers in a guard."""
        axes = _axes([values[symbol] for symbol in symbols], self._most)
        if len(symbols) > 1:
            return axes
        numbers = {int(each) for guard in guards for each in guard.condition.atoms(sympy.Integer)}
        near = {number + step for number in numbers for step in (-1, 0, 1)}
        known = values[symbols[0]]
        return [sorted({*axes[0], *(value for value in near if value in known)})]

    def profile(self) -> Profile:
        """Returns the ranges of the values; the optimum is the accepted value that is the closest one to it."""
        found = dict(self.sizes)
        for symbol in self.restricted:
            values, opt = self.values[symbol], self.sizes[symbol].opt
            closest = min(values, key=lambda value, opt=opt: abs(value - opt))  # type: ignore[misc]
            found[symbol] = SizeRange(values[0], closest, values[-1])
        return found


def _budget(count: int) -> int:
    """Returns for how many combinations of values each of so many guards is evaluated."""
    return min(_MOST_POINTS, max(_LEAST_POINTS, _EVALUATIONS // max(1, count)))


def _axes(ranges: Sequence[Sequence[int]], most: int) -> list[Sequence[int]]:
    """Returns values of each range with at most so many combinations: of a long range some, with those at its ends."""
    counts = [len(values) for values in ranges]
    while math.prod(counts) > most and max(counts) > 2:
        longest = counts.index(max(counts))
        counts[longest] -= max(1, counts[longest] // 8)
    return [
        [values[place] for place in some_sizes(SizeRange(0, 0, len(values) - 1), count)]
        for values, count in zip(ranges, counts, strict=True)
    ]


def _points(symbols: Sequence[Any], axes: Sequence[Sequence[int]]) -> Iterator[Mapping[Any, int]]:
    """Yields the combinations of the symbols' values."""
    return (dict(zip(symbols, point, strict=True)) for point in itertools.product(*axes))


def _refused(regions: Sequence[_Region]) -> dict[Any, Sequence[int]]:
    """Returns the values that are in profiles, and that no region accepts."""
    found: dict[Any, Sequence[int]] = {}
    for symbol in dict.fromkeys(symbol for region in regions for symbol in region.restricted):
        declared = (range(each.sizes[symbol].min, each.sizes[symbol].max + 1) for each in regions)
        accepted = (each.values[symbol] for each in regions)
        found[symbol] = sorted(set().union(*declared).difference(*accepted))
    return found
