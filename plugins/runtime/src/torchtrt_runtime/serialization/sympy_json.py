"""Expressions of sizes as data: nested lists that ``json`` takes, and back without evaluating any text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanAtom

from torchtrt.conversion.size_ranges import Profile, SizeRange
from torchtrt.errors import UnreadableFileError
from torchtrt_runtime.serialization.number_sizes import (
    SYMBOL_BITS,
    bits_of_number,
    bits_of_result,
)
from torchtrt_runtime.torch_internals import PythonReferenceAnalysis, sympy_interp
from torchtrt_runtime.torch_internals import sympy_functions as functions

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(sympy.Add, sympy.Mul, sympy.Pow, sympy.Mod, sympy.floor, sympy.ceiling, sympy.Abs),
        *(sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge),
        *(sympy.And, sympy.Or, sympy.Not),
        *(functions.FloorDiv, functions.CeilDiv, functions.CleanDiv, functions.ModularIndexing),
        *(functions.PythonMod, functions.Max, functions.Min, functions.Where, functions.Identity),
        *(functions.IntTrueDiv, functions.FloatTrueDiv, functions.PowByNatural, functions.FloatPow),
        *(functions.ToFloat, functions.FloorToInt, functions.CeilToInt),
        *(functions.TruncToInt, functions.TruncToFloat, functions.RoundToInt),
    )
}
KINDS["Mod"] = functions.Mod  # PyTorch's own, which prints as SymPy's
_NAMES = {kind: name for name, kind in KINDS.items()} | {sympy.Mod: "SympyMod"}
KINDS["SympyMod"] = sympy.Mod


class SymbolsByName(dict[str, Any]):
    """The symbols of the sizes in one file, by name. Reading a name makes its symbol."""

    def __missing__(self, name: str) -> Any:
        made = self[name] = sympy.Symbol(name, integer=True, nonnegative=True)
        return made

    def profiles_from(self, data: Iterable[Mapping[str, Any]]) -> tuple[Profile, ...]:
        """Returns profiles from data: for each one its ranges ``[min, opt, max]``, by the names of symbols."""
        return tuple(
            {self[name]: SizeRange(*map(int, bounds)) for name, bounds in profile.items()}
            for profile in data
        )


def to_json(expression: Any, symbol: Callable[[Any], Any] = str) -> Any:
    """Returns an expression as data.

    Args:
        expression: An ``int`` or a SymPy expression.
        symbol: From a symbol to what stands for it.

    Raises:
        ValueError: It holds a function that has no form here.
    """
    if isinstance(expression, int):
        return int(expression)
    if isinstance(expression, BooleanAtom):
        return ["bool", bool(expression)]
    if expression.is_Symbol:
        return ["symbol", symbol(expression)]
    if expression.is_Integer:
        return int(expression)
    if expression.is_Rational:
        return ["rational", int(expression.p), int(expression.q)]
    if expression.is_Float:
        return ["float", float(expression)]
    name = _NAMES.get(type(expression))
    if name is None:
        message = (
            f"The size {expression} has a {type(expression).__name__}, which has no form in a file."
        )
        raise ValueError(message)
    return [name, *(to_json(argument, symbol) for argument in expression.args)]


def from_json(data: Any, symbol: Callable[[Any], Any]) -> Any:
    """Returns the expression that ``to_json`` made data of: an ``int``, or one of SymPy's.

    Args:
        data: The data.
        symbol: From what stands for a symbol to the symbol.

    Raises:
        UnreadableFileError: It is no such data.
    """
    expression, _ = _read(data, symbol)
    return expression


def _read(data: Any, symbol: Callable[[Any], Any]) -> tuple[Any, int]:
    """Returns an expression, and how many bits its number can have."""
    if isinstance(data, int):
        return data, bits_of_number(data)
    match data:
        case ["bool", bool(value)]:
            return (sympy.true if value else sympy.false), 1
        case ["symbol", name]:
            return symbol(name), SYMBOL_BITS
        case ["rational", int(numerator), int(denominator)]:
            bits = bits_of_number(numerator) + bits_of_number(denominator)
            return sympy.Rational(numerator, denominator), bits
        case ["float", float(value)]:
            return sympy.Float(value), bits_of_number(value)
        case [str(name), *arguments] if name in KINDS:
            read = [_read(each, symbol) for each in arguments]
            bits = bits_of_result(name, [each for _, each in read])
            # As PyTorch had it, and not simplified once more: a symbol's sign may be known no longer.
            return KINDS[name](*(sympy.sympify(each) for each, _ in read)), bits
    message = f"The file is damaged: it describes a size as {data!r}, which is no expression."
    raise UnreadableFileError(message)


def evaluate(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Returns the value of an expression for numbers, or for symbolic sizes."""
    if isinstance(expression, int):
        return expression
    return sympy_interp(PythonReferenceAnalysis, dict(values), expression)
