"""The assumptions of PyTorch on sizes: that they are neither 0 nor 1, and the guards of its ops.

For some sizes, an assumption does not hold. Where the same ones do not hold in the same way, a call does the same.
"""

from __future__ import annotations

import abc
import enum
import functools
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
from sympy.core.relational import Relational

from torchtrt.expressions.values import CompiledExpression
from torchtrt_compiler.sizes.accepted import Values
from torchtrt_compiler.sizes.calls import Call
from torchtrt_compiler.sizes.guards import bounds_of
from torchtrt_compiler.torch_internals import ValueRanges, int_oo


class Way(enum.Enum):
    """In which way an assumption does not hold, besides the value of a small size."""

    UNDEFINED = enum.auto()
    """A size has no value."""
    BELOW = enum.auto()
    """A size is small only because ops asked for more."""
    EXCESS = enum.auto()
    """A guard does not hold, and its sides are not equal."""
    LIMIT = enum.auto()
    """The sides of a guard are equal, which ops take for another case than an excess."""


class Breach(NamedTuple):
    """An assumption that does not hold.

    Attributes:
        assumption: The assumption.
        way: In which way it does not hold. Of a size that PyTorch takes no model to have, the value.
    """

    assumption: Assumption
    way: int | Way

    @property
    def is_small_size(self) -> bool:
        """Whether a size is so small that PyTorch takes no model to have it."""
        return self.way is Way.UNDEFINED or not isinstance(self.way, Way)

    @property
    def otherwise(self) -> Any:
        """The condition that the assumption does not fail in this way. None for a size without a value.

        To SymPy, symbols are positive, so that it takes a condition on a size of 0 for true, unless that stays
        unevaluated.
        """
        assumption, way = self
        expression = assumption.expression
        if way is Way.UNDEFINED:
            return None
        if way is Way.BELOW:
            return sympy.Ge(expression, assumption.asked)  # type: ignore[attr-defined]
        if not isinstance(way, Way):
            return sympy.Ne(expression, way, evaluate=way != 0)
        if not isinstance(expression, Relational):
            return expression
        if way is Way.LIMIT:
            return sympy.Or(expression, sympy.Ne(expression.lhs, expression.rhs))
        inclusive = {sympy.StrictLessThan: sympy.Le, sympy.StrictGreaterThan: sympy.Ge}
        return inclusive.get(expression.func, expression.func)(expression.lhs, expression.rhs)


@dataclass(frozen=True, eq=False)
class Assumption(abc.ABC):
    """An assumption of PyTorch on sizes.

    Attributes:
        expression: A size or a condition.
        terms: The sizes and symbols that it is computed from.
    """

    expression: Any
    terms: Set[Any]

    @functools.cached_property
    def symbols(self) -> frozenset[Any]:
        """The symbols in it."""
        return frozenset(self._compiled.symbols)

    def breach(self, values: Values) -> Breach | None:
        """Returns in which way the assumption does not hold for values of the symbols; None if it does."""
        way = self._way(values)
        return None if way is None else Breach(self, way)

    @abc.abstractmethod
    def _way(self, values: Values) -> int | Way | None: ...

    @functools.cached_property
    def _compiled(self) -> CompiledExpression:
        return CompiledExpression.of(self.expression)


@dataclass(frozen=True, eq=False)
class GuardAssumption(Assumption):
    """That what an op asked of sizes holds."""

    def _way(self, values: Values) -> Way | None:
        if self._compiled.holds(values):
            return None
        return Way.LIMIT if self._limit and self._limit.holds(values) else Way.EXCESS

    @functools.cached_property
    def _limit(self) -> CompiledExpression | None:
        guard = self.expression
        if not isinstance(guard, Relational):
            return None
        return CompiledExpression.of(sympy.Eq(guard.lhs, guard.rhs))


@dataclass(frozen=True, eq=False)
class SizeAssumption(Assumption):
    """That a size is not small.

    Attributes:
        assumed: Its least value for PyTorch, which takes symbols for 2 or more.
        asked: Its least value after what ops asked: they ask no more of what follows from it.
    """

    assumed: int
    asked: int

    def _way(self, values: Values) -> int | Way | None:
        try:
            value = self._compiled.value(values)
        except (KeyError, ArithmeticError):  # it depends on data, or divides by zero
            return Way.UNDEFINED
        if not 0 <= value < self.asked:
            return None
        return int(value) if value < self.assumed else Way.BELOW


def size_assumptions(calls: Iterable[Call], environment: Any) -> dict[Call, list[Assumption]]:
    """Returns what PyTorch takes for granted of the sizes of each call.

    The symbols of inputs in these sizes and in its numbers count as well: how sizes compare may depend on what a symbol
    is taken for.

    Args:
        calls: The calls.
        environment: The ``ShapeEnv`` of their symbols.
    """
    ranges = {symbol: max(2, bounds.lower) for symbol, bounds in environment.var_to_range.items()}
    assumed = dict.fromkeys(ranges, ValueRanges(2, int_oo))
    asked = {symbol: ValueRanges(least, int_oo) for symbol, least in ranges.items()}
    calls = list(calls)
    sizes = set[Any]().union(*(call.sizes for call in calls))

    @functools.cache
    def of_tensor(size: Any) -> Assumption:
        least = _least(size, assumed), _least(size, asked)
        return SizeAssumption(size, _operands(size, sizes), *least)

    of_number = functools.cache(lambda symbol: SizeAssumption(symbol, frozenset(), 2, 2))
    return {
        call: [
            *map(of_tensor, call.sizes),
            *map(of_number, (symbol for symbol in call.input_symbols if symbol not in call.sizes)),
        ]
        for call in calls
    }


def guard_assumptions(
    guards: Iterable[Any], own: Mapping[Call, Collection[Assumption]]
) -> list[GuardAssumption]:
    """Returns what ops asked of sizes.

    Args:
        guards: The guards.
        own: What PyTorch takes for granted of the sizes of each call.
    """
    sizes = {assumption.expression for assumptions in own.values() for assumption in assumptions}
    return [GuardAssumption(guard, _operands(guard, sizes)) for guard in guards]


def breaches(assumptions: Iterable[Assumption], values: Values) -> dict[Assumption, Breach]:
    """Returns the assumptions that do not hold for values of the symbols."""
    pairs = ((assumption, assumption.breach(values)) for assumption in assumptions)
    return {assumption: breach for assumption, breach in pairs if breach}


def without_implied(breached: Collection[Breach]) -> list[Breach]:
    """Returns breaches without those that follow from the values of small sizes among them."""
    exact = {assumption.expression for assumption, way in breached if not isinstance(way, Way)}
    return [
        breach
        for breach in breached
        if not breach.assumption.terms or not breach.assumption.terms <= exact
    ]


def _least(size: Any, ranges: dict[Any, Any]) -> int:
    """Returns from which value on a size is not small, by the ranges of symbols."""
    bounds = bounds_of(size, ranges)
    if bounds.upper.is_Integer and bounds.upper < 2:
        return 0  # PyTorch assumes nothing of what it bounds so
    return max(int(bounds.lower) if bounds.lower.is_Integer else 0, 2)


def _operands(expression: Any, sizes: Set[Any]) -> set[Any]:
    """Returns what an expression is computed from: other sizes, without those inside of them, and other symbols."""
    return set[Any]().union(*(_terms(operand, sizes) for operand in expression.args))


def _terms(expression: Any, sizes: Set[Any]) -> set[Any]:
    is_term = expression in sizes or expression.is_Symbol
    return {expression} if is_term else _operands(expression, sizes)
