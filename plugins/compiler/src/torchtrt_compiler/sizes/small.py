"""Finds small sizes for which a program is not right.

For ``torch.export``, a dynamic size is neither 0 nor 1, whatever its range. Therefore ``squeeze`` removes nothing,
``x[:2]`` has two rows, and a sum broadcasts nothing. Ops assume the same of sizes that are derived from it, such as
that of ``x[1:]``. A range may include such sizes all the same: each call of the program is run with them, and a call
that is not right excludes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
from torch.fx import GraphModule

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import holds
from torchtrt.graphs.nodes import model_line
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.accepted import Values, nearest_point, some_points
from torchtrt_compiler.sizes.assumptions import (
    Assumption,
    Breach,
    breaches,
    guard_assumptions,
    size_assumptions,
    without_implied,
)
from torchtrt_compiler.sizes.calls import Call, distinct_calls, running_calls
from torchtrt_compiler.sizes.guards import always_holds
from torchtrt_compiler.sizes.points import Point, breaching_points
from torchtrt_runtime.size_ranges import Profile, some_sizes, union_of_profiles

_MOST_VALUES = 1 << 10
"""For how many combinations of values a guard is evaluated."""
_MOST_POINTS = 625
"""How many combinations of small values of several symbols are tried: five of each of four symbols."""


def small_sizes(
    graph_modules: Sequence[GraphModule],
    lowered: GraphModule,
    conditions: Collection[Any],
    guards: Mapping[Any, str],
    profiles: Sequence[Profile],
) -> dict[Any, str]:
    """Returns conditions that exclude sizes for which a program is not right, with the lines of the model.

    Args:
        graph_modules: The program's graph, and that without writes. Their nodes have their values.
        lowered: The graph after lowering.
        conditions: The conditions that calls of the program satisfy.
        guards: What its ops asked of sizes. Such a guard is no condition if a size is small wherever it does not hold:
            the calls show whether they are right then.
        profiles: The sizes of its symbols that were asked for.
    """
    ranges = union_of_profiles(profiles)
    doubtful = [guard for guard in guards if not always_holds(guard, ranges)]
    if not doubtful and all(size.min >= 2 for size in ranges.values()):
        return {}
    with running_calls():
        calls = list(distinct_calls(*graph_modules, lowered=lowered))
        own = size_assumptions(calls, shape_env_of(graph_modules[0].graph))
        of_ops = dict.fromkeys(itertools.chain(*(own[call] for call in calls if call.is_op)))
        asked = guard_assumptions(doubtful, own)
        points = list(breaching_points(of_ops, asked, conditions, ranges))
        failing = {breach.assumption for point in points for breach in point.breaches}
        excused = [
            guard for guard in asked if guard in failing and _fails_if_small(guard, of_ops, ranges)
        ]
        kept = {
            guard.expression: guards[guard.expression] for guard in asked if guard not in excused
        }
        trials = _Trials(own, excused, (*conditions, *kept), profiles)
        while trials.run(points):
            accepted = (*conditions, *kept, *trials.excluding)
            points = list(breaching_points(of_ops, excused, accepted, ranges))
        return {**kept, **trials.excluding}


def _fails_if_small(guard: Assumption, sizes: Iterable[Assumption], ranges: Profile) -> bool:
    """Returns whether a size is small wherever a guard does not hold, as far as values are tried."""
    own = [size for size in sizes if size.symbols <= guard.symbols]
    profile = {symbol: ranges[symbol] for symbol in sorted(guard.symbols, key=str)}
    failing = (values for values in some_points(profile, _MOST_VALUES) if guard.breach(values))
    return all(
        any(breach.is_small_size for breach in filter(None, (size.breach(values) for size in own)))
        for values in failing
    )


class _Trials:
    """Runs calls for values of symbols for which assumptions do not hold.

    A call does the same where the same assumptions on its own sizes do not hold in the same way.

    Args:
        own: What is assumed of the sizes of each call.
        guards: What its ops asked besides. A guard is of interest for a call that has one of the sizes in it.
        conditions: The conditions that calls of the program satisfy.
        profiles: The sizes that were asked for.

    Attributes:
        excluding: The conditions that exclude sizes, each with the line of the model whose call is not right for them.
    """

    def __init__(
        self,
        own: Mapping[Call, Sequence[Assumption]],
        guards: Sequence[Assumption],
        conditions: Collection[Any],
        profiles: Sequence[Profile],
    ) -> None:
        self._conditions, self._profiles = conditions, profiles
        self.excluding: dict[Any, str] = {}
        self._done: set[Hashable] = set()
        self._calls: dict[Call, Sequence[Assumption]] = {}
        usual = self._completed({})
        for call, assumptions in own.items():
            # An op may take no sizes that depend on data unless these go together.
            if not call.depends_on_data or usual is None or call.is_right(usual):
                sizes = {assumption.expression for assumption in assumptions}
                asked = (guard for guard in guards if not sizes.isdisjoint(guard.terms))
                self._calls[call] = *assumptions, *asked
        self._comparing = [call for call in self._calls if call.compares_numbers]

    def run(self, points: Sequence[Point]) -> bool:
        """Runs all calls for values of one symbol or of those of a computed size, and then of several together.

        Returns:
            Whether sizes were excluded. Others may have to be tried in their place.
        """
        count = len(self.excluding)
        for point in points:
            self._try(point.values)
        alone: dict[Any, list[int]] = {}
        for point in points:
            if len(point.values) == 1 and self._is_accepted(point.values):
                ((symbol, value),) = point.values.items()
                alone.setdefault(symbol, []).append(value)
        for values in _together(alone):
            self._try(values)
        return len(self.excluding) > count

    def _try(self, values: Values) -> None:
        """Runs the calls for values of some symbols, and excludes these where a call is not right.

        From sizes of 2 or more, PyTorch concludes how numbers compare, such as the limit of a slice. That may be wrong
        beside some of the other sizes only: first beside the least ones, or the greatest.
        """
        if not self._is_accepted(values):
            return
        others = [call for call in self._comparing if not values.keys() >= {*call.input_symbols}]
        for end, calls in (("opt", self._calls), ("min", others), ("max", others)):
            if calls and (point := self._completed(values, end)) is not None:
                self._run(calls, point, end)

    def _run(self, calls: Collection[Call], point: Values, end: str) -> None:
        """Runs calls for values of all symbols, and excludes these where a call is not right."""
        assumptions = itertools.chain(*(self._calls[call] for call in calls))
        breached = breaches(dict.fromkeys(assumptions), point)
        for call in calls:
            own = self._calls[call]
            of_call = without_implied([breached[it] for it in own if it in breached])
            key = call, end, *of_call
            if of_call and key not in self._done:
                self._done.add(key)
                if not call.is_right(point):
                    conditions = _conditions_against(of_call, point)
                    self.excluding.update(dict.fromkeys(conditions, model_line(call.node)))

    def _is_accepted(self, values: Values) -> bool:
        """Returns whether the conditions hold, as far as values of some symbols decide them."""
        return all(
            holds(condition, values)
            for condition in (*self._conditions, *self.excluding)
            if condition.free_symbols <= values.keys()
        )

    def _completed(self, values: Values, end: str = "opt") -> Values | None:
        """Returns values of all symbols for which the conditions hold, the others not small; None without any.

        Args:
            values: The values of some symbols.
            end: The sizes that the others are close to: ``"opt"``, ``"min"`` or ``"max"``.
        """
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
            usual = {"min": low, "opt": min(max(opt, low), high), "max": high}[end]
            sizes[symbol] = SizeRange(low, usual, high)
        return nearest_point((*self._conditions, *self.excluding), sizes)


def _conditions_against(breached: Collection[Breach], point: Values) -> list[Any]:
    """Returns the conditions that exclude sizes for which a call is not right. Those of 0 are excluded alone.

    Args:
        breached: The assumptions of the call that do not hold.
        point: The values of all symbols.
    """
    if empty := [breach.otherwise for breach in breached if breach.way == 0]:
        return empty
    conditions = [condition for breach in breached if (condition := breach.otherwise) is not None]
    symbols = set[Any]().union(*(breach.assumption.symbols for breach in breached))
    undefined = (sympy.Ne(symbol, point[symbol]) for symbol in symbols if symbol in point)
    return [sympy.Or(*(conditions or undefined))]


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
