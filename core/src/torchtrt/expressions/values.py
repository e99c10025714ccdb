"""The values of SymPy's expressions of sizes: one evaluation for all that torchtrt decides about sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torchtrt.expressions.data import function_of, to_json


class CompiledExpression(NamedTuple):
    """An expression that Python's operators evaluate.

    Attributes:
        expression: The expression, or condition.
        symbols: Its symbols.
        function: What computes it, from a function that returns the value of a symbol.
    """

    expression: Any
    symbols: tuple[Any, ...]
    function: Callable[[Callable[[Any], Any]], Any]

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, expression: Any) -> CompiledExpression:
        """Returns an expression that can be evaluated.

        Raises:
            InexpressibleError: It has a function that sizes do not have.
        """
        symbols = tuple(sorted(expression.free_symbols, key=str))
        return cls(expression, symbols, function_of(to_json(expression, lambda symbol: symbol)))

    def value(self, values: Mapping[Any, Any]) -> Any:
        """Returns the value for values of the symbols: numbers, or symbolic sizes. Remainders are Python's.

        Raises:
            KeyError: A symbol has no value.
            ArithmeticError: It divides by zero, or a number is too large.
        """
        return self.function(values.__getitem__)

    def holds(self, values: Mapping[Any, int]) -> bool:
        """Returns whether a condition is true. It is not where a symbol, or the condition, has no value.

        A root of a negative number has none, and a complex one compares with nothing.
        """
        try:
            return bool(self.value(values))
        except (KeyError, ArithmeticError, ValueError, TypeError):
            return False


def evaluate(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Returns the value of an expression; see ``CompiledExpression.value``."""
    return CompiledExpression.of(expression).value(values)


def holds(condition: Any, values: Mapping[Any, int]) -> bool:
    """Returns whether a condition is true; see ``CompiledExpression.holds``."""
    return CompiledExpression.of(condition).holds(values)
