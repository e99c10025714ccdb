"""The sizes of a program's inputs, the conditions on them, and the sizes that the program is compiled for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from torchtrt.errors import InputError
from torchtrt.expressions.bounds import Bounds
from torchtrt.expressions.values import holds
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.sizes.accepted import accepted_sizes
from torchtrt_compiler.sizes.declared import (
    DeclaredSize,
    codes_as_traced,
    count_ranges,
    declared_minima,
    declared_sizes,
    size_profiles,
)
from torchtrt_compiler.sizes.guards import (
    always_holds,
    guards_of,
    guards_since,
    is_assumed,
    place_of,
)
from torchtrt_compiler.sizes.narrowing import Narrowing, equal_sizes, size_rows
from torchtrt_compiler.sizes.numbers import symbols_of_numbers
from torchtrt_compiler.sizes.questions import asked_conditions
from torchtrt_compiler.sizes.small import small_sizes
from torchtrt_runtime.checks.dimensions import as_code, symbol_codes
from torchtrt_runtime.checks.sizes import check_decidable
from torchtrt_runtime.reports.rows import NarrowedSize, shortened
from torchtrt_runtime.size_ranges import Profile, linear_size, union_of_profiles


@dataclass(frozen=True)
class CompiledSizes:
    """The sizes for which a program is the model, among those that were declared.

    Attributes:
        profiles: The sizes that engines are built for.
        conditions: What the sizes of a call must satisfy besides.
        narrowed: The declared sizes that are left out.
    """

    profiles: tuple[Profile, ...]
    conditions: tuple[Any, ...]
    narrowed: tuple[NarrowedSize, ...]


@dataclass(frozen=True)
class ProgramSizes:
    """The sizes of a program's inputs, and the conditions on them.

    Attributes:
        exported: The program as it was exported. A call may have the sizes for which its ops have the same results.
        functional: The same program without writes, whose ops must have the same results as well.
        ranges: The minimum and the maximum value of each symbol, in the program or by the conditions.
        conditions: The conditions on the symbols under which the program is the model, each with the line of the model
            that it comes from, if that is known.
        guards: The guards of its ops, likewise. These may have taken derived sizes for neither 0 nor 1.
        added: The guards that PyTorch added while it rewrote writes.
    """

    exported: ExportedProgram
    functional: ExportedProgram
    ranges: Mapping[Any, tuple[int, int | None]]
    conditions: Mapping[Any, str]
    guards: Mapping[Any, str]
    added: Collection[Any]

    @classmethod
    def of(
        cls, exported: ExportedProgram, functional: ExportedProgram, guard_count: int
    ) -> ProgramSizes:
        """Returns the sizes of a program.

        Args:
            exported: The program as it was exported.
            functional: The same program without writes.
            guard_count: How many guards PyTorch had noted before.

        Raises:
            UnsupportedProgramError: A condition in a program from a file has a form that cannot be read.
        """
        asked, guards = asked_conditions(exported), guards_of(exported)
        lines = {} if asked is None else asked.lines
        numbers = symbols_of_numbers(exported) if asked is None else frozenset()
        added = guards_since(exported, guard_count)
        of_ops = {
            guard: line
            for guard, line in guards.items()
            if guard not in lines
            and (
                is_assumed(guard, numbers)
                or ((asked is not None or guard in added) and not isinstance(guard, sympy.Eq))
            )
        }
        conditions = {
            condition: line
            for condition, line in {**lines, **guards}.items()
            if condition not in of_ops
        }
        ranges = _ranges(exported)
        if asked is not None:
            minima = declared_minima(exported)
            ranges = {
                symbol: (
                    _least(symbol, conditions, of_ops, minima.get(symbol, min(low, 2)), low),
                    high,
                )
                for symbol, (low, high) in _ranges(functional).items()
            }
        return cls(exported, functional, ranges, conditions, of_ops, added)

    @property
    def limits(self) -> Mapping[Any, str]:
        """The conditions that symbols are in their ranges, as ``conditions``. From 2 on stands for "not 0 or 1".

        Where conditions on several symbols are the reason for a maximum, these suffice.
        """
        is_given = asked_conditions(self.exported) is None
        joint = _symbols_together((*self.conditions, *self.guards))
        environment: Any = shape_env_of(self.exported.graph)
        sources = getattr(environment, "var_to_range_sloc", {})
        limits: dict[Any, str] = {}
        for symbol, (low, high) in self.ranges.items():
            source = sources.get(symbol)
            if low > 2:
                limits[environment.replace(symbol >= low)] = place_of(source and source.lower)
            if high is not None and (is_given or symbol not in joint):
                limits[environment.replace(symbol <= high)] = place_of(source and source.upper)
        return limits

    @property
    def fixed(self) -> Mapping[Any, int]:
        """The expressions that conditions fix to a number: one may be that ``n - (n + 1) // 2`` is 1."""
        equal = (
            condition
            for condition in self.conditions
            if isinstance(condition, sympy.Eq) and condition.rhs.is_Integer
        )
        return {condition.lhs: int(condition.rhs) for condition in equal}

    def bounds_of_symbols(self, may_be_empty: bool) -> Mapping[Any, Bounds]:
        """Returns the bounds of symbols, as far as the program decides them. From 2 on stands for "not 0 or 1".

        Args:
            may_be_empty: Whether a size of 0 is declared.
        """
        least = 0 if may_be_empty else None
        return {
            symbol: (low if low > 2 else least, high) for symbol, (low, high) in self.ranges.items()
        }

    def compiled_for(
        self,
        placeholders: Sequence[Node],
        inputs: CallInputs,
        lowered: GraphModule,
        checks: Mapping[Any, str],
    ) -> CompiledSizes:
        """Returns the sizes for which the program is the model, among those that inputs ask for.

        Args:
            placeholders: The inputs of the opened program, whose sizes have the same symbols.
            inputs: The inputs that the model is compiled for.
            lowered: The lowered program: PyTorch may have assumed more while ops were decomposed.
            checks: The conditions that its ops check in eager PyTorch and exporting leaves out, each with the line of
                the model.

        Raises:
            InputError: There are none, one has no bound, or the sizes of inputs do not decide a condition on them.
        """
        sizes = declared_sizes(self.exported, placeholders, inputs)
        declared = size_profiles(sizes, count_ranges(inputs.leaves), self.ranges)
        limits = {
            limit: line
            for limit, line in self.limits.items()
            if limit.free_symbols <= declared[0].keys()
        }
        conditions = {**self.conditions, **limits, **checks}
        # What holds for all sizes of 2 or more may be of symbols that are the size of no input.
        asked = (guard for guard in self.guards if not is_assumed(guard))
        check_decidable((*conditions, *asked), declared)
        guards = {
            guard: line
            for guard, line in self.guards.items()
            if guard.free_symbols <= declared[0].keys()
        }
        programs = dict.fromkeys((self.exported.graph_module, self.functional.graph_module))
        of_one_size = [condition for condition in conditions if len(condition.free_symbols) == 1]
        if possible := accepted_sizes(of_one_size, declared).profiles:
            small = small_sizes([*programs], lowered, conditions, guards, possible)
            conditions = {**conditions, **small}
        accepted = accepted_sizes(conditions, declared)
        if not accepted.profiles:
            raise _none_taken(conditions, sizes, declared)
        # Rewriting writes makes calls of ops that check sizes of the program, which the model does not.
        own_checks = checks if self.exported is self.functional else {}
        is_given = asked_conditions(self.exported) is None
        of_program = {*self.conditions, *limits} - {*self.added} if is_given else ()
        rows = size_rows(sizes, declared, accepted)
        narrowing = Narrowing(
            self.exported, rows, declared, accepted, conditions, own_checks, of_program
        )
        codes = codes_as_traced(placeholders)
        equal = equal_sizes(self.exported, rows, codes, self.added)
        narrowed = (*narrowing.rows(), *equal)
        return CompiledSizes(accepted.profiles, accepted.conditions, narrowed)


def _none_taken(
    conditions: Iterable[Any], sizes: Iterable[DeclaredSize], profiles: Sequence[Profile]
) -> InputError:
    """Returns the error of a program that takes none of the sizes that were asked for."""
    ranges = union_of_profiles(profiles)
    codes = symbol_codes(size.dimension for size in sizes)
    texts = [as_code(own, codes) for own in conditions if not always_holds(own, ranges)]
    return InputError(
        f"PyTorch exported a program for sizes where {shortened(' and '.join(texts))}, and you asked for none of them. "
        "Declare other sizes or other optimal ones, export the model with another range, or change its code so that it "
        "does not depend on the size."
    )


def _symbols_together(conditions: Iterable[Any]) -> set[Any]:
    """Returns the symbols of conditions that have several."""
    symbols = (condition.free_symbols for condition in conditions)
    return set[Any]().union(*(own for own in symbols if len(own) > 1))


def _least(
    symbol: Any, conditions: Iterable[Any], guards: Iterable[Any], least: int, most: int
) -> int:
    """Returns the least value of a symbol from ``least`` to ``most`` that its conditions accept.

    PyTorch's minimum, ``most``, may also follow from guards of ops, or from other sizes, which it takes for 2 or more.
    If it follows from neither, it counts.
    """
    proved, asked = (
        [condition for condition in group if condition.free_symbols == {symbol}]
        for group in (conditions, guards)
    )
    is_joint = symbol in _symbols_together((*conditions, *guards))
    for value in range(max(least, 1), most):
        point = {symbol: value}
        is_explained = value < 2 or is_joint or not all(holds(guard, point) for guard in asked)
        if is_explained and all(holds(condition, point) for condition in proved):
            return value
    return most


def _ranges(exported: ExportedProgram) -> dict[Any, tuple[int, int | None]]:
    """Returns the minimum and the maximum value of each symbol.

    PyTorch takes no symbol for 0 or 1. Of a size that is derived from one, as ``h + 1``, it keeps the declared range.
    """
    constraints = {
        expression: (int(bounds.lower) if bounds.lower.is_Integer else 0, bounds.upper)
        for expression, bounds in exported.range_constraints.items()
        if expression.is_integer
    }
    ranges = {
        symbol: (least, int(upper) if upper.is_Integer else None)
        for symbol, (least, upper) in constraints.items()
        if symbol.is_Symbol
    }
    for expression, (least, upper) in constraints.items():
        linear = linear_size(expression)
        if linear is None or linear.is_symbol or linear.symbol not in ranges:
            continue
        low, high = ranges[linear.symbol]
        declared, _ = linear.values(max(least, 0), max(least, 0))
        if low == 2:
            low = min(2, max(declared, 0))
        if upper.is_Integer and high is not None:
            _, most = linear.values(int(upper), int(upper))
            high = min(high, most)
        ranges[linear.symbol] = low, high
    # A minimum of 0 is only where torch.export.Dim starts by default: it asks for no empty tensors.
    return {symbol: (max(low, 1), high) for symbol, (low, high) in ranges.items()}
