"""Values of a program's symbols, told apart by the assumptions that do not hold for them.

For a call, values for which these are the same differ in nothing, so that it need run for one of them only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any, NamedTuple

from torchtrt.expressions.values import holds
from torchtrt_compiler.sizes.accepted import Values
from torchtrt_compiler.sizes.assumptions import Assumption, Breach, breaches
from torchtrt_runtime.size_ranges import Profile, some_sizes

_FIRST_VALUES, _MOST_VALUES = 32, 512
"""For how many values of a symbol the assumptions are checked at first, and at most."""
_OTHER_VALUES = 16
"""For how many values of the other symbols that is done, where one depends on several."""


class Point(NamedTuple):
    """Values of some symbols.

    Attributes:
        values: The values.
        breaches: The assumptions that do not hold for them.
    """

    values: Values
    breaches: Set[Breach]

    @property
    def is_small(self) -> bool:
        """Whether a size is so small that PyTorch takes no model to have it."""
        return any(breach.is_small_size for breach in self.breaches)


def breaching_points(
    sizes: Collection[Assumption],
    guards: Collection[Assumption],
    conditions: Iterable[Any],
    ranges: Profile,
) -> Iterator[Point]:
    """Yields values of symbols for which assumptions do not hold, of as few symbols as these depend on.

    Of values for which each call does the same, it yields the first that satisfy the conditions.

    Args:
        sizes: What is assumed of sizes.
        guards: What is assumed besides.
        conditions: The conditions on the symbols.
        ranges: The values of the symbols.
    """
    groups = {assumption.symbols for assumption in (*sizes, *guards)}
    for group in sorted(groups, key=lambda group: (len(group), sorted(map(str, group)))):
        if not group <= ranges.keys():
            continue
        own = [assumption for assumption in (*sizes, *guards) if assumption.symbols == group]
        others = [assumption for assumption in sizes if assumption.symbols < group]
        required = [condition for condition in conditions if condition.free_symbols <= group]
        seen: set[Set[Breach]] = set()
        group_ranges = {symbol: ranges[symbol] for symbol in sorted(group, key=str)}
        for point in _points(group_ranges, own, others):
            if not point.breaches or point.breaches in seen:
                continue
            if all(holds(condition, point.values) for condition in required):
                seen.add(point.breaches)
                yield point


def _points(
    ranges: Profile, own: Collection[Assumption], others: Collection[Assumption]
) -> Iterator[Point]:
    """Yields some values of symbols, and those of the last symbol between which the breaches change.

    Args:
        ranges: The values of the symbols.
        own: The assumptions that depend on all of them.
        others: Those that depend on some of them. A call may be right only where its own do not hold either.
    """
    *fixed, last = ranges
    count = math.floor(_OTHER_VALUES ** (1 / max(1, len(fixed))))
    for values in itertools.product(*(some_sizes(ranges[symbol], count) for symbol in fixed)):
        beside = dict(zip(fixed, values, strict=True))

        def point_at(value: int, beside: Values = beside) -> Point:
            values = {**beside, last: value}
            return Point(values, frozenset(breaches((*own, *others), values).values()))

        points = {value: point_at(value) for value in some_sizes(ranges[last], _FIRST_VALUES)}
        pending = list(itertools.pairwise(points))
        while pending and len(points) < _MOST_VALUES:
            low, high = pending.pop()
            if high - low > 1 and points[low].breaches != points[high].breaches:
                middle = (low + high) // 2
                points[middle] = point_at(middle)
                pending += [(low, middle), (middle, high)]
        for value in sorted(points):
            yield points[value]
