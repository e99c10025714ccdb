"""Finds small sizes for which a program is not right.

For ``torch.export``, a dynamic size is neither 0 nor 1, whatever its range. Therefore ``squeeze`` removes nothing,
``x[:2]`` has two rows, and a sum broadcasts nothing. Ops assume the same of sizes that are derived from it, such as
that of ``x[1:]``. A range may include such sizes all the same: each call of the program is run with them, and a call
that is not right excludes them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
from torch.fx import GraphModule

from torchtrt.conversion.inputs import SizeRange
from torchtrt.expressions.values import evaluate, holds
from torchtrt.graphs.nodes import model_line
from torchtrt_compiler.sizes.accepted import Values, nearest_point
from torchtrt_compiler.sizes.calls import Call, distinct_calls, running_calls
from torchtrt_compiler.sizes.guards import always_holds
from torchtrt_compiler.torch_internals import ValueRanges, bound_sympy, int_oo
from torchtrt_runtime.size_ranges import Profile, some_sizes, union_of_profiles

_MOST_SYMBOLS = 4
"""Of how many sizes the small values are combined in one call. Of more, each is small alone, and all are together."""
_MOST_VALUES = 256
"""For how many values of a symbol the assumptions are evaluated: those at the ends of its range, and some between."""
_MOST_RUNS = 16
"""In how many runs of values assumptions may differ. Of more, as those of a remainder are, calls are not run."""


def assumption_in(condition: Any) -> Any | None:
    """Returns what a condition says if that is only that a size is not 0 or 1; None for other conditions.

    Of sizes that ops compare, one may be a multiple of the other: ``w < h * w`` says that ``h`` is not 1.
    """
    if not isinstance(condition, (sympy.Ne, sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)):
        return None
    if isinstance(condition, sympy.Ne):
        least, size = sorted(condition.args, key=lambda side: not side.is_Integer)
    else:
        least, size = condition.lts, condition.gts
    if least.is_Integer:
        is_small = least <= (2 if isinstance(condition, (sympy.Ge, sympy.Le)) else 1)
        return condition if is_small else None
    if isinstance(condition, (sympy.Ge, sympy.Le)):
        return None
    ratios = [size / least, least / size] if isinstance(condition, sympy.Ne) else [size / least]
    factors = (ratio for ratio in ratios if ratio.as_numer_denom()[1] == 1)
    return next((sympy.Ne(factor, 1) for factor in factors), None)


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
    trials = _Trials(conditions, doubtful, profiles)
    if trials.has_small_sizes:
        with running_calls():
            for call in distinct_calls(graph_module):
                trials.run(call)
    return {**trials.excluding, **dict.fromkeys(trials.untried, "")}


class _SmallSizes(NamedTuple):
    """The values of a symbol for which a size is small.

    Attributes:
        alone: 0 and 1, and the ends of the runs of values for which the same assumptions are wrong.
        together: Those that are tried with small values of other symbols: the least, and the last.
        assumptions: For values from 2 on the narrowest assumption on the symbol alone that is wrong for it.
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
        least = {other: size.min for other, size in union_of_profiles(profiles).items()}
        wrong = {
            value: [
                assumed for assumed in assumptions if not holds(assumed, {**least, symbol: value})
            ]
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
            assumed: sum(assumed in others for others in wrong.values())
            for assumed in assumptions
            if assumed.free_symbols == {symbol}
        }
        narrowest = {
            value: min(own, key=counts.__getitem__)
            for value in ends
            if (own := [assumed for assumed in wrong[value] if assumed in counts])
        }
        together = dict.fromkeys([*plain, *ends[:1], *ends[-1:]])
        return cls([*plain, *ends], [*together], narrowest)


class _Trials:
    """Runs calls with small sizes.

    Attributes:
        excluding: The conditions that exclude sizes, each with the line of the model whose call is not right for them.
        untried: The assumptions on several symbols that were right for all sizes of calls.
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
        symbols_of = {assumed: assumed.free_symbols for assumed in assumptions}
        self._joint = {
            assumed: symbols for assumed, symbols in symbols_of.items() if len(symbols) > 1
        }
        self.untried = set(self._joint)
        for symbol in profiles[0]:
            own = [assumed for assumed in assumptions if symbol in assumed.free_symbols]
            small = _SmallSizes.of(symbol, own, profiles)
            if small is None:
                self.excluding.update(dict.fromkeys(own, ""))
                small = _SmallSizes.of(symbol, [], profiles)
            if small and small.alone:
                self._small[symbol] = small

    @property
    def has_small_sizes(self) -> bool:
        """Whether a size that was asked for is small."""
        return bool(self._small)

    def run(self, call: Call) -> None:
        """Runs a call with each combination of its small sizes, and excludes those for which it is not right."""
        small = {symbol: self._small[symbol] for symbol in call.symbols if symbol in self._small}
        if small and call.depends_on_data and not all(map(call.is_right, self._points_of({}))):
            return  # no op takes sizes that do not go together
        trial = functools.partial(self._is_right, call, {})
        for assignment in _assignments(small):
            if not trial(assignment) and len(assignment) > 1:
                options = [small[symbol].alone for symbol in assignment]
                for sizes in itertools.product(*options):
                    trial(dict(zip(assignment, sizes, strict=True)))
        for size in call.sizes if small else ():
            for assignment in self._below_bound(size):
                trial(assignment, size > _value(size, assignment))

    def _is_right(
        self,
        call: Call,
        results: dict[Any, bool],
        assignment: Mapping[Any, int],
        assumed: Any = None,
    ) -> bool:
        """Returns whether a call is right for small sizes, or these are excluded; if not, excludes them.

        Args:
            call: The call.
            results: Whether it is right, for each combination of its sizes that are small: it is run once for each.
            assignment: The values of some symbols.
            assumed: The assumption that is wrong for them, if it is one that PyTorch made without asking.
        """
        wrong = {
            other
            for other, symbols in self._joint.items()
            if symbols <= assignment.keys() and not holds(other, assignment)
        }
        self.untried -= wrong
        if self._is_excluded(assignment):
            return True
        is_right = True
        for point in self._points_of(assignment):
            values = ((size, _value(size, point)) for size in call.sizes)
            small = frozenset(
                (size, value)
                for size, value in values
                if value is None or value < max(lower_bound(size), 2)
            )
            if small and small not in results:
                results[small] = call.is_right(point)
            is_right = is_right and results.get(small, True)
        if not is_right:
            self._exclude(
                assignment, wrong if assumed is None else {assumed}, model_line(call.node)
            )
        return is_right

    def _below_bound(self, size: Any) -> Iterator[Mapping[Any, int]]:
        """Yields sizes for which one computed from several is less than PyTorch takes it for: ``n * m`` for 4 or more.

        All symbols have their least values but one, so that each value of the computed size occurs.
        """
        symbols = size.free_symbols & self._ranges.keys()
        if symbols < size.free_symbols or len(symbols) < 2:
            return
        least = {symbol: max(self._ranges[symbol].min, 1) for symbol in symbols}
        for symbol in symbols if _is_below(size, least) else ():
            for value in range(least[symbol], self._ranges[symbol].max + 1):
                if not _is_below(size, {**least, symbol: value}):
                    break
                yield {**least, symbol: value}

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

    def _exclude(self, assignment: Mapping[Any, int], wrong: Collection[Any], line: str) -> None:
        """Excludes sizes: the smallest of those that are too small together, or all of them as a condition.

        Assumptions on several symbols that are wrong for them are conditions from then on.

        To SymPy, symbols are positive, so that it takes a condition on a size of 0 for true, unless that stays
        unevaluated. Such sizes are excluded alone.
        """
        least = min(assignment.values())
        if wrong and least:
            self.excluding.update(dict.fromkeys(wrong, line))
            return
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
def lower_bound(size: Any) -> int:
    """Returns the least value of a size for PyTorch, which takes each symbol for 2 or more."""
    bounds = bound_sympy(size, {symbol: ValueRanges(2, int_oo) for symbol in size.free_symbols})
    return int(bounds.lower) if bounds.lower.is_Integer else 0


def _is_below(size: Any, values: Values) -> bool:
    return bool((_value(size, values) or 0) < lower_bound(size))


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
