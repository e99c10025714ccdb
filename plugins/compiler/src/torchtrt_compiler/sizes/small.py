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
from typing import Any

import sympy
from sympy.core.relational import Relational
from torch.fx import GraphModule

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import holds
from torchtrt.graphs.nodes import model_line
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.accepted import Values, nearest_point
from torchtrt_compiler.sizes.calls import Call, distinct_calls, running_calls
from torchtrt_compiler.sizes.guards import always_holds
from torchtrt_compiler.sizes.points import (
    BELOW,
    Least,
    Point,
    small_points,
    which_are_small,
    which_fail,
)
from torchtrt_runtime.size_ranges import Profile, some_sizes, union_of_profiles

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
    doubtful = {guard: line for guard, line in guards.items() if not always_holds(guard, ranges)}
    if not doubtful and all(size.min >= 2 for size in ranges.values()):
        return {}
    with running_calls():
        calls = list(distinct_calls(*graph_modules, lowered=lowered))
        sizes = Least.of_sizes(calls, shape_env_of(graph_modules[0].graph))
        points = list(small_points(calls, sizes, doubtful, conditions, ranges))
        excused = {guard for point in points for guard, _ in point.wrong if point.is_small}
        excused -= {guard for point in points for guard, _ in point.wrong if not point.is_small}
        kept = {guard: line for guard, line in doubtful.items() if guard not in excused}
        trials = _Trials(calls, sizes, excused, (*conditions, *kept), profiles)
        while trials.run([point for point in points if point.sizes]):
            accepted = (*conditions, *kept, *trials.excluding)
            points = list(small_points(calls, sizes, excused, accepted, ranges))
        return {**kept, **trials.excluding}


def _without_implied(sizes: Mapping[Any, int | None]) -> dict[Any, int | None]:
    """Returns small sizes without those that follow from symbols among them."""
    symbols = {size for size, value in sizes.items() if size.is_Symbol and value != BELOW}
    return {
        size: value
        for size, value in sizes.items()
        if size.is_Symbol or not size.free_symbols <= symbols
    }


def _terms(expression: Any, sizes: Set[Any]) -> set[Any]:
    """Returns the sizes in an expression, without those inside of others, and the other symbols."""
    if expression in sizes or expression.is_Symbol:
        return {expression}
    return set[Any]().union(*(_terms(part, sizes) for part in expression.args))


def _unless(guard: Any, is_limit: bool) -> Any:
    """Returns where a guard does not fail in a way: because its sides are equal, or although they are not."""
    if not isinstance(guard, Relational):
        return guard
    if is_limit:
        return sympy.Or(guard, sympy.Ne(guard.lhs, guard.rhs))
    inclusive = {sympy.StrictLessThan: sympy.Le, sympy.StrictGreaterThan: sympy.Ge}
    return inclusive.get(guard.func, guard.func)(guard.lhs, guard.rhs)


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
        sizes: Mapping[Any, Least],
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
            call: {guard: terms for guard, terms in asked.items() if terms & call.sizes.keys()}
            for call in calls
            if not call.depends_on_data or usual is None or call.is_right(usual)
        }

    def run(self, points: Sequence[Point]) -> bool:
        """Runs all calls with small sizes: those of one symbol or computed size, and then several together.

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
        """Runs the calls that have small sizes for values of some symbols, and excludes those that are not right."""
        if not self._is_accepted(values) or (point := self._completed(values)) is None:
            return
        small = dict(which_are_small(self._sizes, point))
        wrong = which_fail(self._guards, point)
        for call, own_guards in self._calls.items():
            sizes = _without_implied(
                {
                    size: small[size]
                    for size, is_of_tensor in call.sizes.items()
                    if size in small and (is_of_tensor or small[size] != BELOW)
                }
            )
            exact = {size for size, value in sizes.items() if value not in (None, BELOW)}
            # That a guard does not hold follows from the values of all sizes in it.
            guards = [
                (guard, is_limit)
                for guard, is_limit in wrong
                if guard in own_guards and not own_guards[guard] <= exact
            ]
            key = call, *sizes.items(), frozenset(guards)
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
        self, sizes: Mapping[Any, int | None], guards: Iterable[tuple[Any, bool]], point: Values
    ) -> list[Any]:
        """Returns the conditions that exclude sizes for which a call is not right. Those of 0 are excluded alone.

        To SymPy, symbols are positive, so that it takes a condition on a size of 0 for true, unless that stays
        unevaluated.

        Args:
            sizes: The sizes of the call that are small.
            guards: The guards that do not hold, and whether at their limits.
            point: The values of all symbols.
        """
        if zeros := [size for size, value in sizes.items() if value == 0]:
            return [sympy.Ne(size, 0, evaluate=False) for size in zeros]
        conditions = [
            sympy.Ge(size, self._sizes[size].asked) if value == BELOW else sympy.Ne(size, value)
            for size, value in sizes.items()
            if value is not None
        ]
        symbols = set[Any]().union(*(size.free_symbols for size in sizes))
        undefined = (sympy.Ne(symbol, point[symbol]) for symbol in symbols if symbol in point)
        holding = [_unless(guard, is_limit) for guard, is_limit in guards]
        return [sympy.Or(*([*conditions, *holding] or undefined))]


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
