"""The values of expressions of symbolic sizes: one evaluation for all that torchtrt decides about sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class CompiledExpression(NamedTuple):
    """An expression of SymPy's as a function of Python, which is a hundred times as fast as SymPy.

    Attributes:
        expression: The expression, or condition.
        symbols: Its symbols, in the order of the function's arguments.
        function: Returns its value. Quotients and remainders are Python's, as in a model's code.
    """

    expression: Any
    symbols: tuple[Any, ...]
    function: Callable[..., Any]

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, expression: Any) -> CompiledExpression:
        """Returns an expression that can be evaluated."""
        # Here, because they take long to import, and few programs have symbolic sizes.
        import sympy
        import torch
        from torch.utils._sympy import functions
        from torch.utils._sympy.printers import PythonPrinter

        symbols = tuple(sorted(expression.free_symbols, key=str))
        names = [vars(functions), {"torch": torch}]
        function = sympy.lambdify(symbols, expression, names, printer=PythonPrinter())
        return cls(expression, symbols, function)

    def value(self, values: Mapping[Any, int]) -> Any:
        """Returns the value for values of the symbols.

        Raises:
            KeyError: A symbol has no value.
            ZeroDivisionError: It divides by zero.
        """
        return self.function(*(values[symbol] for symbol in self.symbols))

    def holds(self, values: Mapping[Any, int]) -> bool:
        """Returns whether a condition is true. It is not where a symbol has no value, or where it divides by zero."""
        try:
            return bool(self.value(values))
        except (KeyError, ZeroDivisionError):
            return False


def evaluate(expression: Any, values: Mapping[Any, int]) -> Any:
    """Returns the value of an expression; see ``CompiledExpression.value``."""
    return CompiledExpression.of(expression).value(values)


def holds(condition: Any, values: Mapping[Any, int]) -> bool:
    """Returns whether a condition is true; see ``CompiledExpression.holds``."""
    return CompiledExpression.of(condition).holds(values)
