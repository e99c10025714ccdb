"""Finds small sizes for which a program is not right.

For ``torch.export``, a dynamic size is neither 0 nor 1, whatever its range. Therefore ``squeeze`` removes nothing,
``x[:2]`` has two rows, and a sum broadcasts nothing. Ops assume the same of sizes that are derived from it, such as
that of ``x[1:]``. A range may include such sizes all the same: each call of the program is run with them, and a call
that is not right excludes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import sympy
from torch.fx import GraphModule

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import evaluate, holds
from torchtrt.graphs.nodes import model_line
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.accepted import Values, nearest_point
from torchtrt_compiler.sizes.calls import Call, distinct_calls, running_calls
from torchtrt_compiler.sizes.guards import always_holds, bounds_of
from torchtrt_compiler.torch_internals import ValueRanges, int_oo
from torchtrt_runtime.size_ranges import Profile, some_sizes, union_of_profiles

_FIRST_VALUES, _MOST_VALUES = 32, 512
"""For how many values of a symbol the sizes are computed at first, and at most."""
_OTHER_VALUES = 16
"""For how many values of the other symbols that is done, where a size depends on several."""
_MOST_POINTS = 625
"""How many combinations of small values of several symbols are tried: five of each of four symbols."""

_BELOW = -1
"""In place of a value that is small only because ops asked for more."""

SmallSizes = frozenset[tuple[Any, int | None]]
"""Sizes of calls that are small, with their values: None for one without a value."""


def small_sizes(
    graph_module: GraphModule,
    conditions: Collection[Any],
    guards: Mapping[Any, str],
    profiles: Sequence[Profile],
) -> dict[Any, str]:
    """Returns conditions that exclude sizes for which a program is not right, with the lines of the model.

    Args:
        graph_module: The graph, whose nodes have their values.
        conditions: The conditions that calls of the program satisfy.
        guards: What its ops asked of sizes. Such a guard is no condition if a size is small wherever it does not hold:
            the calls show whether they are right then.
        profiles: The sizes of its symbols that were asked for.
    """
    ranges = union_of_profiles(profiles)
    doubtful = {guard: line for guard, line in guards.items() if not always_holds(guard, ranges)}
    if not doubtful and all(size.min >= 2 for size in ranges.values()):
        return {}
    with running_calls():
        calls = list(distinct_calls(graph_module))
        sizes = _Least.of_sizes(calls, shape_env_of(graph_module.graph))
        points = list(_small_points(calls, sizes, doubtful, conditions, ranges))
        excused = {guard for point in points for guard in point.wrong if point.is_small}
        excused -= {guard for point in points for guard in point.wrong if not point.is_small}
        kept = {guard: line for guard, line in doubtful.items() if guard not in excused}
        trials = _Trials(calls, sizes, excused, (*conditions, *kept), profiles)
        count = -1
        while count < len(trials.excluding):
            count = len(trials.excluding)
            trials.run([point for point in points if point.sizes])
            if count < len(trials.excluding):
                accepted = (*conditions, *kept, *trials.excluding)
                points = list(_small_points(calls, sizes, excused, accepted, ranges))
        return {**kept, **trials.excluding}


class _Point(NamedTuple):
    """Values of some symbols.

    Attributes:
        values: The values.
        sizes: The sizes of calls that are small for them.
        wrong: The guards that do not hold for them.
    """

    values: Values
    sizes: SmallSizes
    wrong: frozenset[Any]

    @classmethod
    def of(
        cls,
        values: Values,
        sizes: Mapping[Any, _Least],
        others: Mapping[Any, _Least],
        guards: Iterable[Any],
    ) -> _Point:
        """Returns values of some symbols.

        Args:
            values: The values.
            sizes: The sizes that depend on all of these symbols.
            others: Those that depend on some of them. That these are small is of no interest alone.
            guards: The guards that depend on all of these symbols.
        """
        wrong = frozenset(guard for guard in guards if not holds(guard, values))
        small = _small(sizes, values)
        if small or wrong:
            small |= _small(others, values)
        return cls(values, small, wrong)

    @property
    def is_small(self) -> bool:
        """Whether a size is so small that PyTorch assumes of any model that there is none."""
        return any(value != _BELOW for _, value in self.sizes)

    @property
    def key(self) -> Hashable:
        """Equal for values for which each call does the same."""
        return self.sizes, self.wrong


def _small_points(
    calls: Iterable[Call],
    least: Mapping[Any, _Least],
    guards: Iterable[Any],
    conditions: Iterable[Any],
    ranges: Profile,
) -> Iterator[_Point]:
    """Yields values of symbols for which sizes are small or guards do not hold, of as few symbols as these depend on.

    Of values for which each call does the same, it yields the first that satisfy the conditions.
    """
    sizes = set[Any]().union(*(call.sizes for call in calls if call.is_op))
    groups = {frozenset(expression.free_symbols) for expression in (*sizes, *guards)}
    for group in sorted(groups, key=lambda group: (len(group), sorted(map(str, group)))):
        if not group <= ranges.keys():
            continue
        asked = [guard for guard in guards if guard.free_symbols == group]
        own = {size: least[size] for size in sizes if size.free_symbols <= group}
        required = [condition for condition in conditions if condition.free_symbols <= group]
        seen: set[Hashable] = set()
        group_ranges = {symbol: ranges[symbol] for symbol in sorted(group, key=str)}
        for point in _points(group_ranges, own, asked):
            if point.key in seen or not (point.sizes or point.wrong):
                continue
            if all(holds(condition, point.values) for condition in required):
                seen.add(point.key)
                yield point


def _points(
    ranges: Profile, sizes: Mapping[Any, _Least], guards: Iterable[Any]
) -> Iterator[_Point]:
    """Yields some values of symbols, and those of the last symbol between which the small sizes or guards change."""
    own, others = (
        {
            size: least
            for size, least in sizes.items()
            if (size.free_symbols == ranges.keys()) == depends_on_all
        }
        for depends_on_all in (True, False)
    )
    *fixed, last = ranges
    count = math.floor(_OTHER_VALUES ** (1 / max(1, len(fixed))))
    for values in itertools.product(*(some_sizes(ranges[symbol], count) for symbol in fixed)):
        beside = dict(zip(fixed, values, strict=True))

        def point_at(value: int, beside: Values = beside) -> _Point:
            return _Point.of({**beside, last: value}, own, others, guards)

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


class _Least(NamedTuple):
    """From which value on a size is not small.

    Attributes:
        assumed: The least value for PyTorch, which takes symbols for 2 or more.
        asked: The least value after what ops asked: they ask no more of what follows from it.
    """

    assumed: int
    asked: int

    @classmethod
    def of_sizes(cls, calls: Iterable[Call], environment: Any) -> dict[Any, _Least]:
        """Returns them for the sizes of calls, whose symbols live in a ``ShapeEnv``."""
        assumed, asked = (
            {symbol: ValueRanges(max(2, least), int_oo) for symbol, least in lower.items()}
            for lower in (
                dict.fromkeys(environment.var_to_range, 2),
                {symbol: bounds.lower for symbol, bounds in environment.var_to_range.items()},
            )
        )
        sizes = dict.fromkeys(itertools.chain.from_iterable(call.sizes for call in calls))
        return {size: cls(_lower(size, assumed), _lower(size, asked)) for size in sizes}


def _lower(size: Any, ranges: dict[Any, Any]) -> int:
    lower = bounds_of(size, ranges).lower
    return max(int(lower) if lower.is_Integer else 0, 2)


def _small(sizes: Mapping[Any, _Least], values: Values) -> SmallSizes:
    """Returns which sizes are small for values of the symbols, or have no value."""
    small: list[tuple[Any, int | None]] = []
    for size, least in sizes.items():
        value = _value(size, values)
        if value is None or 0 <= value < least.asked:
            is_below = value is not None and value >= least.assumed
            small.append((size, _BELOW if is_below else value))
    return frozenset(small)


def _value(size: Any, values: Values) -> Any:
    """Returns a size; None if it has no value, or depends on data."""
    try:
        return evaluate(size, values)
    except (KeyError, ArithmeticError):
        return None


def _terms(expression: Any, sizes: Set[Any]) -> set[Any]:
    """Returns the sizes in an expression, without those inside of others."""
    if expression in sizes:
        return {expression}
    return set[Any]().union(*(_terms(part, sizes) for part in expression.args))


class _Trials:
    """Runs calls with small sizes.

    Two calls of an op do the same if the same of its sizes are small, and the same guards of these do not hold.

    Args:
        calls: The calls.
        sizes: Their sizes, with the values from which on they are not small.
        guards: The guards that need not hold.
        conditions: The conditions that calls of the program satisfy.
        profiles: The sizes that were asked for.

    Attributes:
        excluding: The conditions that exclude sizes, each with the line of the model whose call is not right for them.
    """

    def __init__(
        self,
        calls: Iterable[Call],
        sizes: Mapping[Any, _Least],
        guards: Iterable[Any],
        conditions: Collection[Any],
        profiles: Sequence[Profile],
    ) -> None:
        self._sizes, self._guards = sizes, guards
        self._conditions, self._profiles = conditions, profiles
        self.excluding: dict[Any, str] = {}
        self._done: set[Hashable] = set()
        asked = {guard: _terms(guard, sizes.keys()) for guard in guards}
        usual = self._completed({})
        # An op may take no sizes that depend on data unless these go together.
        self._calls = {
            call: [guard for guard, terms in asked.items() if not terms.isdisjoint(call.sizes)]
            for call in calls
            if not call.depends_on_data or usual is None or call.is_right(usual)
        }

    def run(self, points: Sequence[_Point]) -> None:
        """Runs all calls with small sizes: those of one symbol or computed size, and then several together."""
        for point in points:
            self._try(point.values)
        alone: dict[Any, list[int]] = {}
        for point in points:
            if len(point.values) == 1 and self._is_accepted(point.values):
                ((symbol, value),) = point.values.items()
                alone.setdefault(symbol, []).append(value)
        for values in _together(alone):
            self._try(values)

    def _try(self, values: Values) -> None:
        """Runs the calls that have small sizes for values of some symbols, and excludes those that are not right."""
        if not self._is_accepted(values) or (point := self._completed(values)) is None:
            return
        small = dict(_small(self._sizes, point))
        wrong = {guard for guard in self._guards if not holds(guard, point)}
        for call, own_guards in self._calls.items():
            sizes = {size: small[size] for size in call.sizes if size in small}
            guards = [guard for guard in own_guards if guard in wrong]
            key = call, *sizes.items(), *guards
            if (sizes or guards) and key not in self._done:
                self._done.add(key)
                if not call.is_right(point):
                    conditions = self._conditions_on(sizes, guards, point)
                    self.excluding.update(dict.fromkeys(conditions, model_line(call.node)))

    def _is_accepted(self, values: Values) -> bool:
        """Returns whether the conditions hold, as far as values of some symbols decide them."""
        return all(
            holds(condition, values)
            for condition in (*self._conditions, *self.excluding)
            if condition.free_symbols <= values.keys()
        )

    def _completed(self, values: Values) -> Values | None:
        """Returns values of all symbols for which the conditions hold, the others not small; None without any."""
        profiles = [
            profile
            for profile in self._profiles
            if all(profile[symbol].contains(value) for symbol, value in values.items())
        ]
        if not profiles:
            return None
        sizes: dict[Any, SizeRange] = {}
        for symbol, (low, opt, high) in union_of_profiles(profiles).items():
            low, high = min(max(low, 2), high), high
            if symbol in values:
                low = high = values[symbol]
            sizes[symbol] = SizeRange(low, min(max(opt, low), high), high)
        return nearest_point((*self._conditions, *self.excluding), sizes)

    def _conditions_on(
        self, sizes: Mapping[Any, int | None], guards: Iterable[Any], point: Values
    ) -> list[Any]:
        """Returns the conditions that exclude sizes for which a call is not right. Those of 0 are excluded alone.

        To SymPy, symbols are positive, so that it takes a condition on a size of 0 for true, unless that stays
        unevaluated.

        Args:
            sizes: The sizes of the call that are small.
            guards: The guards that do not hold.
            point: The values of all symbols.
        """
        if zeros := [size for size, value in sizes.items() if value == 0]:
            return [sympy.Ne(size, 0, evaluate=False) for size in zeros]
        conditions = [
            sympy.Ge(size, self._sizes[size].asked) if value == _BELOW else sympy.Ne(size, value)
            for size, value in sizes.items()
            if value is not None
        ]
        symbols = set[Any]().union(*(size.free_symbols for size in sizes))
        undefined = (sympy.Ne(symbol, point[symbol]) for symbol in symbols if symbol in point)
        return [sympy.Or(*([*conditions, *guards] or undefined))]


def _together(alone: Mapping[Any, Sequence[int]]) -> Iterator[Values]:
    """Yields small values of several symbols."""
    count = math.floor(_MOST_POINTS ** (1 / max(1, len(alone)))) - 1
    if not count:
        yield {symbol: values[0] for symbol, values in alone.items()}
        return
    options: list[list[int | None]] = []
    for values in alone.values():
        chosen = some_sizes(SizeRange(0, 0, len(values) - 1), count)
        options.append([None, *(values[index] for index in chosen)])
    for point in itertools.product(*options):
        pairs = zip(alone, point, strict=True)
        together = {symbol: value for symbol, value in pairs if value is not None}
        if len(together) > 1:
            yield together
