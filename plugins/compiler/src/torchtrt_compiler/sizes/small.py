"""Finds small sizes for which a program is not right.

For ``torch.export``, a dynamic size is neither 0 nor 1, whatever its range. Therefore ``squeeze`` removes nothing,
``x[:2]`` has two rows, and a sum broadcasts nothing. Ops assume the same of sizes that are derived from it, such as
that of ``x[1:]``. A range may include such sizes all the same: each call of the program is run with them, and a call
that is not right excludes them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import sympy
from torch.fx import GraphModule

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import evaluate, holds
from torchtrt.graphs.nodes import model_line
from torchtrt_compiler.sizes.accepted import Values, nearest_point, points_in
from torchtrt_compiler.sizes.calls import Call, distinct_calls, running_calls
from torchtrt_compiler.sizes.guards import always_holds, bounds_of, is_assumed
from torchtrt_compiler.torch_internals import ValueRanges, int_oo, sympy_functions
from torchtrt_runtime.size_ranges import Profile, some_sizes, union_of_profiles

_REMAINDERS = (sympy_functions.Mod, sympy_functions.PythonMod)
_MAXIMA = (sympy_functions.Max, sympy.Max)
_MOST_SYMBOLS = 4
"""Of how many sizes the small values are combined in one call. Of more, each is small alone, and all are together."""
_MOST_VALUES = 256
"""For how many values of a symbol the assumptions are evaluated: those at the ends of its range, and some between."""
_MOST_POINTS, _TRIED_POINTS = 1024, 16
"""For how many values of several symbols an assumption is evaluated, and how many of the wrong ones are tried."""
_MOST_RUNS = 16
"""In how many runs of values assumptions may differ. Of more, as those of a remainder are, calls are not run."""


def assumption_in(condition: Any) -> Any | None:
    """Returns what a condition says if that is only that a size is not 0 or 1; None for other conditions.

    Ops compare sizes with multiples of them.
    Where ``w`` is less than ``h * w``, or is no multiple of it, ``h`` is not 1.
    """
    if isinstance(condition, sympy.Ne):
        least, size = sorted(condition.args, key=lambda side: not side.is_Integer)
        if least == 0 and isinstance(size, _REMAINDERS):
            return _not_one([size.args[1] / size.args[0]])
        ratios = [size / least, least / size] if least else []
    elif isinstance(condition, (sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)):
        least, size = condition.lts, condition.gts
        ratios = [size / least] if isinstance(condition, (sympy.Gt, sympy.Lt)) and least else []
    else:
        return None
    if condition.has(*_REMAINDERS):
        return None  # no size is one
    if least.is_Integer:
        is_small = least <= (2 if isinstance(condition, (sympy.Ge, sympy.Le)) else 1)
        return condition if is_small else None
    return _not_one(ratios)


def _not_one(ratios: Sequence[Any]) -> Any | None:
    """Returns the condition that the first of several ratios that is a size is not 1."""
    sizes = (ratio for ratio in ratios if ratio.as_numer_denom()[1] == 1)
    return next((sympy.Ne(size, 1) for size in sizes), None)


def small_sizes(
    graph_module: GraphModule,
    conditions: Collection[Any],
    assumptions: Collection[Any],
    profiles: Sequence[Profile],
) -> dict[Any, str]:
    """Returns conditions that exclude small sizes for which a program is not right, with the lines of the model.

    Args:
        graph_module: The graph, whose nodes have their values.
        conditions: The conditions that calls of the program satisfy.
        assumptions: What its ops assumed of sizes, as ``assumption_in`` returns it. Calls need not satisfy it.
        profiles: The sizes of its symbols that were asked for.
    """
    ranges = union_of_profiles(profiles)
    doubtful = [assumed for assumed in assumptions if not always_holds(assumed, ranges)]
    if not doubtful and all(size.min >= 2 for size in ranges.values()):
        return {}
    with running_calls():
        calls = list(distinct_calls(graph_module))
        sizes = set[Any]().union(*(call.sizes for call in calls))
        tried = [assumed for assumed in doubtful if is_assumed(assumed) or _is_of(sizes, assumed)]
        kept = [assumed for assumed in doubtful if assumed not in tried]
        trials = _Trials((*conditions, *kept), tried, profiles)
        for call in calls:
            trials.run(call)
        trials.run_computed(calls)
    return {**dict.fromkeys(kept, ""), **trials.excluding}


def _is_of(sizes: Set[Any], assumed: Any) -> bool:
    """Returns whether an assumption is on sizes of calls, or on their product: calls run where these are small."""
    size = next(side for side in assumed.args if not side.is_Integer)
    factors = sympy.Mul.make_args(sympy.factor_terms(size))
    # Strides count a size as 1 at least.
    forms = ({factor, *factor.args} if factor.func in _MAXIMA else {factor} for factor in factors)
    return all(
        factor.is_Integer or not sizes.isdisjoint(form)
        for factor, form in zip(factors, forms, strict=True)
    )


class _SmallSizes(NamedTuple):
    """The values of a symbol for which a size is small.

    Attributes:
        alone: 0 and 1, and the ends of the runs of values for which the same assumptions are wrong.
        together: Those that are tried with small values of other symbols: the least, and the last.
        assumptions: For values from 2 on the narrowest assumption that is wrong for it.
    """

    alone: Sequence[int]
    together: Sequence[int]
    assumptions: Mapping[int, Any]

    @classmethod
    def of(
        cls, symbol: Any, assumptions: Sequence[Any], profiles: Sequence[Profile]
    ) -> _SmallSizes | None:
        """Returns the small values of a symbol; None if the assumptions on it are wrong for too many."""
        sizes = [some_sizes(profile[symbol], _MOST_VALUES) for profile in profiles]
        values = sorted(set().union(*sizes))
        wrong = {
            value: [assumed for assumed in assumptions if not holds(assumed, {symbol: value})]
            for value in values
        }
        runs = [
            (run[0], run[-1])
            for is_wrong, group in itertools.groupby(values, lambda value: wrong[value])
            if is_wrong and (run := list(group))
        ]
        if len(runs) > _MOST_RUNS:
            return None
        plain = [value for value in (1, 0) if value in values]
        ends = [value for value in dict.fromkeys(itertools.chain(*runs)) if value > 1]
        counts = {
            assumed: sum(assumed in others for others in wrong.values()) for assumed in assumptions
        }
        narrowest = {value: min(wrong[value], key=counts.__getitem__) for value in ends}
        together = dict.fromkeys([*plain, *ends[:1], *ends[-1:]])
        return cls([*plain, *ends], [*together], narrowest)


class _Trials:
    """Runs calls with small sizes.

    Attributes:
        excluding: The conditions that exclude sizes, each with the line of the model whose call is not right for them.
    """

    def __init__(
        self,
        conditions: Collection[Any],
        assumptions: Collection[Any],
        profiles: Sequence[Profile],
    ) -> None:
        self._conditions, self._profiles = conditions, profiles
        self._small: dict[Any, _SmallSizes] = {}
        self._points: dict[frozenset[tuple[Any, int]], list[Values]] = {}
        self._ranges = union_of_profiles(profiles)
        self.excluding: dict[Any, str] = {}
        self._results: dict[tuple[Call, Any], bool] = {}
        self._joint = [assumed for assumed in assumptions if len(assumed.free_symbols) > 1]
        for symbol in profiles[0]:
            own = [assumed for assumed in assumptions if assumed.free_symbols == {symbol}]
            small = _SmallSizes.of(symbol, own, profiles)
            if small is None:
                self.excluding.update(dict.fromkeys(own, ""))
                small = _SmallSizes.of(symbol, [], profiles)
            if small and small.alone:
                self._small[symbol] = small

    def run(self, call: Call) -> None:
        """Runs a call with each combination of its small sizes, and excludes those for which it is not right."""
        small = {symbol: self._small[symbol] for symbol in call.symbols if symbol in self._small}
        if small and call.depends_on_data and not all(map(call.is_right, self._points_of({}))):
            return  # no op takes sizes that do not go together
        for assignment in _assignments(small):
            if not self._is_right(call, assignment) and len(assignment) > 1:
                options = [small[symbol].alone for symbol in assignment]
                for sizes in itertools.product(*options):
                    self._is_right(call, dict(zip(assignment, sizes, strict=True)))

    def run_computed(self, calls: Sequence[Call]) -> None:
        """Runs calls with sizes that are small together: ``n * m``, which PyTorch takes for 4 or more."""
        sizes = dict.fromkeys(size for call in calls for size in call.sizes)
        for size in sizes:
            if len(size.free_symbols) > 1 and size.free_symbols <= self._ranges.keys():
                own = [call for call in calls if size in call.sizes]
                self._try(sympy.Ge(size, _least(size), evaluate=False), own, size)
        for assumed in self._joint:
            own = [call for call in calls if not assumed.free_symbols.isdisjoint(call.symbols)]
            self._try(assumed, own)

    def _try(self, assumed: Any, calls: Sequence[Call], size: Any = None) -> None:
        """Runs calls with sizes for which an assumption is wrong, and excludes those for which one is not right.

        Args:
            assumed: The assumption.
            calls: The calls.
            size: The computed size whose values are excluded one by one; all are together where there is none.
        """
        if always_holds(assumed, self._ranges):
            return
        for _ in range(_MOST_RUNS):
            wrong = next(
                (
                    (point, call)
                    for point in self._points_against(assumed)
                    for call in calls
                    if not self._runs(call, point)
                ),
                None,
            )
            if wrong is None:
                return
            point, call = wrong
            condition = assumed if size is None else sympy.Ne(size, _value(size, point))
            self.excluding[condition] = model_line(call.node)
        self.excluding[assumed] = ""

    def _points_against(self, assumed: Any) -> Iterator[Values]:
        """Yields some of the sizes that are not excluded and for which an assumption is wrong."""
        symbols = sorted(assumed.free_symbols, key=str)
        conditions = [
            condition
            for condition in (*self._conditions, *self.excluding)
            if condition.free_symbols <= {*symbols}
        ]
        wrong = [
            point
            for point in points_in(
                {symbol: self._ranges[symbol] for symbol in symbols}, _MOST_POINTS
            )
            if not holds(assumed, point)
            and all(holds(condition, point) for condition in conditions)
        ]
        for index in some_sizes(SizeRange(0, 0, len(wrong) - 1), _TRIED_POINTS):
            yield from self._find_points(wrong[index])[:1]

    def _is_right(self, call: Call, assignment: Mapping[Any, int]) -> bool:
        """Returns whether a call is right for small sizes, or these are excluded; if not, excludes them."""
        if self._is_excluded(assignment):
            return True
        is_right = all(self._runs(call, point) for point in self._points_of(assignment))
        if not is_right:
            self._exclude(assignment, model_line(call.node))
        return is_right

    def _runs(self, call: Call, point: Values) -> bool:
        """Returns whether a call is right for sizes. It runs once for each combination of those that are small."""
        values = ((size, _value(size, point)) for size in call.sizes)
        small = frozenset(
            (size, value) for size, value in values if value is None or value < _least(size)
        )
        if not small:
            return True
        if (call, small) not in self._results:
            self._results[call, small] = call.is_right(point)
        return self._results[call, small]

    def _is_excluded(self, assignment: Mapping[Any, int]) -> bool:
        """Returns whether a condition on some of these sizes excludes them already."""
        return not all(
            holds(condition, assignment)
            for condition in self.excluding
            if condition.free_symbols <= assignment.keys()
        )

    def _points_of(self, assignment: Mapping[Any, int]) -> list[Values]:
        """Returns the values of symbols to run calls with: small ones, beside the optimal and the largest others."""
        key = frozenset(assignment.items())
        if key not in self._points:
            self._points[key] = self._find_points(assignment)
        return self._points[key]

    def _find_points(self, assignment: Mapping[Any, int]) -> list[Values]:
        """Returns up to two points with small sizes for which the conditions hold."""
        profiles = [
            profile
            for profile in self._profiles
            if all(profile[symbol].contains(size) for symbol, size in assignment.items())
        ]
        if not profiles:
            return []
        sizes: dict[Any, SizeRange] = {}
        for symbol, (low, opt, high) in union_of_profiles(profiles).items():
            low, high = min(max(low, 2), high), high
            if symbol in assignment:
                low = high = assignment[symbol]
            sizes[symbol] = SizeRange(low, min(max(opt, low), high), high)
        conditions = (*self._conditions, *self.excluding)
        usual = nearest_point(conditions, sizes)
        largest = {symbol: size.max for symbol, size in sizes.items()}
        points = [] if usual is None else [usual]
        if largest != usual and all(holds(condition, largest) for condition in conditions):
            points.append(largest)
        return points

    def _exclude(self, assignment: Mapping[Any, int], line: str) -> None:
        """Excludes sizes: the smallest of those that are too small together, or all of them as a condition.

        To SymPy, symbols are positive, so that it takes a condition on a size of 0 for true, unless that stays
        unevaluated. Such sizes are excluded alone.
        """
        least = min(assignment.values())
        if len(assignment) > 1 and least:
            different = (self._without(symbol, size) for symbol, size in assignment.items())
            self.excluding[sympy.Or(*different)] = line
            return
        for symbol, size in assignment.items():
            if size == least:
                is_assumed = size in self._small[symbol].assumptions
                above = sympy.Ge(symbol, size + 1, evaluate=False)
                self.excluding[self._without(symbol, size) if is_assumed else above] = line

    def _without(self, symbol: Any, size: int) -> Any:
        """Returns the condition that a symbol has not this value, nor others for which the same assumption is wrong."""
        return self._small[symbol].assumptions.get(size, sympy.Ne(symbol, size))


@functools.lru_cache(maxsize=1024)
def _least(size: Any) -> int:
    """Returns from which value on a size is not small: the least one for PyTorch, which takes symbols for 2 or more."""
    bounds = bounds_of(size, {symbol: ValueRanges(2, int_oo) for symbol in size.free_symbols})
    return max(int(bounds.lower) if bounds.lower.is_Integer else 0, 2)


def _value(size: Any, values: Values) -> Any:
    """Returns a size; None if it has no value, or depends on data."""
    try:
        return evaluate(size, values)
    except (KeyError, ArithmeticError):
        return None


def _assignments(small: Mapping[Any, _SmallSizes]) -> Iterator[Mapping[Any, int]]:
    """Yields small sizes for some symbols: first each alone, then several together."""
    counts: Sequence[int] = range(1, len(small) + 1)
    if len(small) > _MOST_SYMBOLS:
        counts = (1, len(small))
    for count in counts:
        for symbols in itertools.combinations(small, count):
            options = [
                small[symbol].alone if count == 1 else small[symbol].together for symbol in symbols
            ]
            if count > _MOST_SYMBOLS:
                options = [sizes[:1] for sizes in options]
            for sizes in itertools.product(*options):
                yield dict(zip(symbols, sizes, strict=True))
