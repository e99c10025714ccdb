"""Values of a program's symbols, told apart by the sizes that are small for them and by the guards that do not hold.

For a call, values for which these are the same differ in nothing, so that it need run for one of them only.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sympy import Eq
from sympy.core.relational import Relational

from torchtrt.expressions.values import evaluate, holds
from torchtrt_compiler.sizes.accepted import Values
from torchtrt_compiler.sizes.calls import Call
from torchtrt_compiler.sizes.guards import bounds_of
from torchtrt_compiler.torch_internals import ValueRanges, int_oo
from torchtrt_runtime.size_ranges import Profile, some_sizes

_FIRST_VALUES, _MOST_VALUES = 32, 512
"""For how many values of a symbol the sizes are computed at first, and at most."""
_OTHER_VALUES = 16
"""For how many values of the other symbols that is done, where a size depends on several."""
BELOW = -1
"""In place of a value that is small only because ops asked for more."""

SmallSizes = frozenset[tuple[Any, int | None]]
"""Sizes of calls that are small, with their values: None for one without a value."""
Failing = frozenset[tuple[Any, bool]]
"""Guards that do not hold, and whether their two sides are equal: ops take that for another case than an excess."""


class Least(NamedTuple):
    """From which value on a size is not small.

    Attributes:
        assumed: The least value for PyTorch, which takes symbols for 2 or more.
        asked: The least value after what ops asked: they ask no more of what follows from it.
    """

    assumed: int
    asked: int

    @classmethod
    def of_sizes(cls, calls: Iterable[Call], environment: Any) -> dict[Any, Least]:
        """Returns them for the sizes of calls, whose symbols live in a ``ShapeEnv``."""
        assumed = dict.fromkeys(environment.var_to_range, ValueRanges(2, int_oo))
        asked = {
            symbol: ValueRanges(max(2, bounds.lower), int_oo)
            for symbol, bounds in environment.var_to_range.items()
        }
        sizes = dict.fromkeys(itertools.chain.from_iterable(call.sizes for call in calls))
        return {size: cls(_lower(size, assumed), _lower(size, asked)) for size in sizes}


def _lower(size: Any, ranges: dict[Any, Any]) -> int:
    bounds = bounds_of(size, ranges)
    if bounds.upper.is_Integer and bounds.upper < 2:
        return 0  # PyTorch assumes nothing of what it bounds so
    return max(int(bounds.lower) if bounds.lower.is_Integer else 0, 2)


def which_are_small(sizes: Mapping[Any, Least], values: Values) -> SmallSizes:
    """Returns which sizes are small for values of the symbols, or have no value."""
    small: list[tuple[Any, int | None]] = []
    for size, least in sizes.items():
        value = _value(size, values)
        if value is None or 0 <= value < least.asked:
            is_below = value is not None and value >= least.assumed
            small.append((size, BELOW if is_below else value))
    return frozenset(small)


def _value(size: Any, values: Values) -> Any:
    """Returns a size; None if it has no value, or depends on data."""
    try:
        return evaluate(size, values)
    except (KeyError, ArithmeticError):
        return None


def which_fail(guards: Iterable[Any], values: Values) -> Failing:
    """Returns which guards do not hold for values of the symbols."""
    return frozenset(
        (guard, _is_limit(guard, values)) for guard in guards if not holds(guard, values)
    )


def _is_limit(guard: Any, values: Values) -> bool:
    """Returns whether the two sides of a guard are equal."""
    return isinstance(guard, Relational) and holds(_limit_of(guard), values)


@functools.lru_cache(maxsize=4096)  # SymPy takes longer to make an equation than to evaluate it
def _limit_of(guard: Relational) -> Any:
    return Eq(guard.lhs, guard.rhs)


class Point(NamedTuple):
    """Values of some symbols.

    Attributes:
        values: The values.
        sizes: The sizes of calls that are small for them.
        wrong: The guards that do not hold for them.
    """

    values: Values
    sizes: SmallSizes
    wrong: Failing

    @classmethod
    def of(
        cls,
        values: Values,
        sizes: Mapping[Any, Least],
        others: Mapping[Any, Least],
        guards: Iterable[Any],
    ) -> Point:
        """Returns values of some symbols.

        Args:
            values: The values.
            sizes: The sizes that depend on all of these symbols.
            others: Those that depend on some of them. That these are small is of no interest alone.
            guards: The guards that depend on all of these symbols.
        """
        wrong = which_fail(guards, values)
        small = which_are_small(sizes, values)
        if small or wrong:
            small |= which_are_small(others, values)
        return cls(values, small, wrong)

    @property
    def is_small(self) -> bool:
        """Whether a size is so small that PyTorch assumes of any model that there is none."""
        return any(value != BELOW for _, value in self.sizes)

    @property
    def key(self) -> Hashable:
        """Equal for values for which each call does the same."""
        return self.sizes, self.wrong


def small_points(
    calls: Iterable[Call],
    least: Mapping[Any, Least],
    guards: Iterable[Any],
    conditions: Iterable[Any],
    ranges: Profile,
) -> Iterator[Point]:
    """Yields values of symbols for which sizes are small or guards do not hold, of as few symbols as these depend on.

    Of values for which each call does the same, it yields the first that satisfy the conditions.
    """
    sizes = set[Any]().union(*(call.sizes for call in calls if call.is_op))
    groups = {frozenset(expression.free_symbols) for expression in (*sizes, *guards)}
    for group in sorted(groups, key=lambda group: (len(group), sorted(map(str, group)))):
        if not group <= ranges.keys():
            continue
        asked = [guard for guard in guards if guard.free_symbols == group]
        own = {size: least[size] for size in sizes if size.free_symbols == group}
        others = {size: least[size] for size in sizes if size.free_symbols < group}
        required = [condition for condition in conditions if condition.free_symbols <= group]
        seen: set[Hashable] = set()
        group_ranges = {symbol: ranges[symbol] for symbol in sorted(group, key=str)}
        for point in _points(group_ranges, own, others, asked):
            if point.key in seen or not (point.sizes or point.wrong):
                continue
            if all(holds(condition, point.values) for condition in required):
                seen.add(point.key)
                yield point


def _points(
    ranges: Profile,
    sizes: Mapping[Any, Least],
    others: Mapping[Any, Least],
    guards: Iterable[Any],
) -> Iterator[Point]:
    """Yields some values of symbols, and those of the last symbol between which the small sizes or guards change."""
    *fixed, last = ranges
    count = math.floor(_OTHER_VALUES ** (1 / max(1, len(fixed))))
    for values in itertools.product(*(some_sizes(ranges[symbol], count) for symbol in fixed)):
        beside = dict(zip(fixed, values, strict=True))

        def point_at(value: int, beside: Values = beside) -> Point:
            return Point.of({**beside, last: value}, sizes, others, guards)

        points = {value: point_at(value) for value in some_sizes(ranges[last], _FIRST_VALUES)}
        pending = list(itertools.pairwise(points))
        while pending and len(points) < _MOST_VALUES:
            low, high = pending.pop()
            if high - low > 1 and points[low].key != points[high].key:
                middle = (low + high) // 2
                points[middle] = point_at(middle)
                pending += [(low, middle), (middle, high)]
        for value in sorted(points):
            yield points[value]
