"""Compares a program with its model for sizes of 0 and 1.

For ``torch.export``, a dynamic size is neither 0 nor 1, whatever its range.
Therefore ``x.shape[0] == 1`` is false, ``squeeze`` removes nothing, and ``x[:2]`` has two rows.
A range may include such sizes all the same. Here the program is compared with the one of each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram

from torchtrt.conversion.size_ranges import Profile, SizeRange, linear_size, union_of_profiles
from torchtrt.graphs.nodes import model_line
from torchtrt_compiler.guarded_sizes import Guarded, accepted_point, refusing
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.size_comparison import Difference, compare_at
from torchtrt_compiler.special_programs import Retrace, Values, user_inputs

_MOST_TRIALS = 4
"""How often the model is exported again to find out whether it takes sizes that guards refuse."""


class Excluded(NamedTuple):
    """Sizes that a program does not compute as its model does.

    Attributes:
        least: The smallest size that the program takes.
        model_line: The line of the model where the two differ first, if PyTorch has it.
        is_refused: Whether the model itself refuses a size of 1, the smallest that was asked for.
    """

    least: int
    model_line: str
    is_refused: bool = False


class SmallSizes(NamedTuple):
    """The sizes of 0 and 1, as a comparison of a program with its model found them.

    Attributes:
        excluded: Those that the program does not compute as its model does, for each symbol that has some.
        conditions: Conditions on other sizes under which it computes the remaining ones as its model does, each with
            the line of the model that it comes from.
    """

    excluded: Mapping[Any, Excluded]
    conditions: Mapping[Any, str]


def small_sizes(
    exported: ExportedProgram,
    program: Program,
    profiles: Sequence[Profile],
    retrace: Retrace | None,
) -> SmallSizes:
    """Returns for which of a program's symbols sizes of 0 or 1 are excluded, alone or beside certain others.

    Args:
        exported: The exported program.
        program: The same, opened; the profiles have its symbols.
        profiles: The sizes that were asked for.
        retrace: Exports the model again; ``None`` where the exported program is the model.
    """
    trials = _Trials(exported, program, profiles, retrace)
    trials.run()
    return SmallSizes(trials.excluded, trials.conditions)


class _Trials:
    """Compares a program with its model for sizes of 0 and 1.

    Args:
        exported: The exported program.
        program: The same, opened; the profiles have its symbols.
        profiles: The sizes that were asked for.
        retrace: Exports the model again; ``None`` where the exported program is the model.

    Attributes:
        excluded: The symbols for which sizes are excluded.
        conditions: Conditions under which the other sizes are not.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        program: Program,
        profiles: Sequence[Profile],
        retrace: Retrace | None,
    ) -> None:
        self.exported, self.profiles, self.retrace = exported, profiles, retrace
        self.guards = program.guards
        symbols = _symbols(exported, program).items()
        self.symbols = {symbol: own for symbol, own in symbols if own in profiles[0]}
        self.excluded: dict[Any, Excluded] = {}
        self.conditions: dict[Any, str] = {}
        self.asked = {
            own: [size for size in (0, 1) if any(each[own].contains(size) for each in profiles)]
            for own in self.symbols.values()
        }

    def run(self) -> None:
        """Compares each size alone, and several together."""
        for symbol, sizes in self.asked.items():
            for size in reversed(sizes):
                self.compare({symbol: size})
        # Sizes that have to be equal may be 1 together: no call has only one of them.
        refused = {symbol: 1 for symbol, each in self.excluded.items() if each.is_refused}
        if len(refused) > 1:
            for symbol in refused:
                del self.excluded[symbol]
            self.compare(refused)
        for point in filter(None, self._together()):
            self.compare(point)

    def _together(self) -> Iterator[Values]:
        """Yields each combination of small sizes of two symbols; of more symbols those in which all sizes are equal."""
        small = {symbol: sizes for symbol, sizes in self.asked.items() if sizes}
        if len(small) == 2:
            for point in itertools.product(*map(reversed, small.values())):
                yield dict(zip(small, point, strict=True))
        elif small:
            for size in (1, 0):
                yield {
                    symbol: size
                    for symbol, sizes in small.items()
                    if size in sizes and not self._is_excluded(symbol, size)
                }

    def _is_excluded(self, symbol: Any, size: int) -> bool:
        return symbol in self.excluded and size < self.excluded[symbol].least

    def compare(self, point: Values) -> None:
        """Excludes sizes for which the program is not its model, or adds the conditions under which it is."""
        if any(self._is_excluded(symbol, size) for symbol, size in point.items()):
            return
        sizes = self._sizes_at(point)
        usual = accepted_point((*self.guards, *self.conditions), sizes) if sizes else None
        if usual is None:
            return
        try:
            conditions = self._conditions_at(sizes, usual)
        except Difference as difference:
            line = "" if difference.node is None else model_line(difference.node)
            self._exclude(point, line, difference.is_refusal)
        else:
            self._require(point, sizes, conditions)

    def _sizes_at(self, point: Values) -> Profile:
        """Returns the sizes that go with those of a point, as ``torch.export`` takes them: 2 or more, if any are."""
        profiles = [
            profile
            for profile in self.profiles
            if all(profile[symbol].contains(size) for symbol, size in point.items())
        ]
        found: dict[Any, SizeRange] = {}
        for symbol, (low, opt, high) in union_of_profiles(profiles).items():
            low, high = (point[symbol],) * 2 if symbol in point else (min(max(low, 2), high), high)
            found[symbol] = SizeRange(low, min(max(opt, low), high), high)
        return found

    def _conditions_at(self, sizes: Profile, usual: Values) -> Mapping[Any, str]:
        """Returns the conditions under which the program is the model exported for sizes, these close to the usual."""
        near = {
            symbol: SizeRange(each.min, usual[symbol], each.max) for symbol, each in sizes.items()
        }
        far = (
            {symbol: getattr(each, end) for symbol, each in sizes.items()} for end in ("max", "min")
        )
        points = [usual, *(point for point in far if accepted_point(self.guards, _fixed(point)))]
        known = [{symbol: point[own] for symbol, own in self.symbols.items()} for point in points]
        own_sizes = {symbol: near[own] for symbol, own in self.symbols.items()}
        found = compare_at(self.exported, known, own_sizes, self.retrace)
        return {condition.xreplace(self.symbols): line for condition, line in found.items()}

    def _exclude(self, point: Values, line: str, is_refusal: bool = False) -> None:
        """Excludes the sizes of a point: where some are 0, these."""
        least = min(point.values())
        for symbol, size in point.items():
            if size == least:
                is_refused = is_refusal and size == min(self.asked[symbol]) == 1
                self.excluded[symbol] = Excluded(size + 1, line, is_refused)

    def _require(self, point: Values, sizes: Profile, conditions: Mapping[Any, str]) -> None:
        """Adds conditions for calls with the sizes of a point, unless the guards imply them.

        To SymPy, a symbol is positive, so that no condition can be one for sizes of 0. These are excluded instead.
        """
        guards = (*self.guards, *self.conditions)
        for condition in refusing(conditions, guards, sizes):
            line = conditions[condition]
            if 0 in point.values():
                self._exclude(point, line)
                return
            others = (sympy.Ne(symbol, size) for symbol, size in point.items())
            self.conditions[sympy.Or(*others, condition)] = line


def _fixed(point: Values) -> Profile:
    return {symbol: SizeRange(size, size, size) for symbol, size in point.items()}


def branches(
    exported: ExportedProgram, program: Program, guarded: Guarded, retrace: Retrace
) -> list[Any]:
    """Returns the guards that refuse sizes which the model takes, perhaps as another program.

    Args:
        exported: The exported program.
        program: The same, opened.
        guarded: The sizes for which its guards hold. For a few of the guards with gaps, some refused sizes are tried.
        retrace: Exports the model again.
    """
    symbols = _symbols(exported, program)
    tried: dict[Any, bool] = {}
    points = {guard: _refused_by(guard, guarded) for guard in guarded.gaps}
    rounds = itertools.chain.from_iterable(itertools.repeat([*points], _MOST_TRIALS))
    trials = 0
    for guard in rounds:
        point = None if tried.get(guard) else next(points[guard], None)
        if point is None or trials == _MOST_TRIALS:
            continue
        trials += 1
        values = {symbol: point[own] for symbol, own in symbols.items() if own in point}
        tried[guard] = _takes(exported, values, retrace)
    return [guard for guard in points if tried.get(guard, True)]


def _refused_by(guard: Any, guarded: Guarded) -> Iterator[Values]:
    """Yields sizes that a guard refuses: first some that it alone refuses, if there are any."""
    others = [each for each in guarded.conditions if each != guard]
    alone = (accepted_point([sympy.Not(guard), *others], each) for each in guarded.profiles)
    yield from itertools.islice(filter(None, alone), 1)
    yield from guarded.gaps[guard]


def _takes(exported: ExportedProgram, values: Values, retrace: Retrace) -> bool:
    """Returns whether a model takes sizes with these values of the program's symbols."""
    try:
        compare_at(exported, [values], _fixed(values), retrace)
    except Difference as difference:
        return not difference.is_refusal and difference.__cause__ is None
    return True


def without(profiles: Sequence[Profile], excluded: Mapping[Any, Excluded]) -> tuple[Profile, ...]:
    """Returns the profiles without the excluded sizes. Profiles without any size left are omitted."""
    if not excluded:
        return tuple(profiles)
    narrowed = [
        {
            symbol: size.intersect(SizeRange(excluded[symbol].least, size.opt, size.max))
            if symbol in excluded
            else size
            for symbol, size in profile.items()
        }
        for profile in profiles
    ]
    taken = (each for each in narrowed if all(size.min <= size.max for size in each.values()))
    return tuple(taken)


def _symbols(exported: ExportedProgram, program: Program) -> dict[Any, Any]:
    """Returns the symbols of the exported program's inputs, each with the opened program's."""
    found: dict[Any, Any] = {}
    for given, opened in zip(user_inputs(exported), program.placeholders, strict=True):
        shapes = (getattr(node.meta.get("val"), "shape", ()) for node in (given, opened))
        for sizes in zip(*shapes, strict=True):
            symbols = [
                linear and linear.symbol
                for linear in (
                    linear_size(size.node.expr) for size in sizes if isinstance(size, torch.SymInt)
                )
            ]
            if len(symbols) == 2 and None not in symbols:
                found[symbols[0]] = symbols[1]
    return found
