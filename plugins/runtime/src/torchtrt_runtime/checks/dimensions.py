"""The dimensions of inputs, as messages name them and as the model's code does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE, precedence

from torchtrt_runtime.reports.rows import dimension_text
from torchtrt_runtime.size_ranges import LinearSize
from torchtrt_runtime.torch_internals import PythonPrinter


@dataclass(frozen=True)
class Dimension:
    """One dimension of one input.

    Attributes:
        input: The input's name.
        dim: The dimension; ``None`` for an input that is a number.
        size: Its size in the program: a number, or an expression of symbols.
        linear: The size by its symbol, if it grows with one.
    """

    input: str
    dim: int | None
    size: Any
    linear: LinearSize | None = None

    def __str__(self) -> str:
        return dimension_text(self.input, self.dim)

    @property
    def subject(self) -> str:
        """The size in words, as the subject of a sentence."""
        return f"Input {self.input!r}" if self.dim is None else f"The size of {self}"

    @property
    def symbol_text(self) -> str:
        """The symbol in words: it is the size, or a part of the size."""
        if self.linear is None or self.linear.is_symbol:
            return str(self)
        return f"{self.linear.symbol} in {self.linear}, {self},"

    @property
    def code(self) -> str:
        """The size as the model's code reads it."""
        return self.input if self.dim is None else f"{self.input}.shape[{self.dim}]"

    @property
    def symbol_code(self) -> str:
        """The value of the symbol as the model's code could compute it."""
        code = self.code
        if self.linear is not None and self.linear.offset:
            code = f"({code} {-self.linear.offset:+d})"
        if self.linear is not None and self.linear.factor > 1:
            code = f"({code} // {self.linear.factor})"
        return code


def symbol_codes(dimensions: Iterable[Dimension]) -> dict[Any, str]:
    """Returns for the symbols in sizes how the model's code could read them: by themselves, if it can."""
    linear = [(dimension.linear, dimension) for dimension in dimensions if dimension.linear]
    codes: dict[Any, str] = {}
    for size, dimension in sorted(linear, key=lambda pair: not pair[0].is_symbol):
        codes.setdefault(size.symbol, dimension.symbol_code)
    return codes


def as_code(expression: Any, codes: Mapping[Any, str]) -> str:
    """Returns an expression of symbols as the model's code could write it: ``x.shape[1] // 2 == 4``.

    Args:
        expression: The expression.
        codes: The code for each symbol.
    """
    names = {symbol: sympy.Symbol(code) for symbol, code in codes.items()}
    return str(_CodePrinter().doprint(expression.xreplace(names)))


class _CodePrinter(PythonPrinter):
    """Writes differences and comparisons as people do: ``8 - n < 4*m``, and ``n <= m`` for ``(-1)*n >= (-1)*m``."""

    def _print_Add(self, expr: sympy.Expr, order: str | None = None) -> str:
        del order
        text = ""
        for term in sorted(expr.args, key=lambda term: (_is_negative(term), term.is_number)):
            sign, size = ("-", -term) if _is_negative(term) else ("+", term)
            operator = f" {sign} " if text else sign.strip("+")
            text += operator + self.parenthesize(size, precedence(expr), strict=True)
        return text

    def _print_Mul(self, expr: sympy.Expr) -> str:
        if expr.args[0] == -1:
            return f"-{self.parenthesize(-expr, precedence(expr))}"
        return str(super()._print_Mul(expr))

    def _print_Relational(self, expr: sympy.Expr) -> str:
        if all(side.is_number or _is_negative(side) for side in expr.args):
            expr = expr.reversedsign
        level = PRECEDENCE["Relational"]
        left, right = (self.parenthesize(side, level, strict=True) for side in expr.args)
        return f"{left} {expr.rel_op} {right}"


def _is_negative(term: sympy.Expr) -> bool:
    return bool(term.as_coeff_Mul()[0] < 0)
