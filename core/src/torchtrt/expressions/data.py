"""Sizes as data that JSON holds: what may be in them, what they compute, and SymPy's expressions from and to them.

A size is an ``int``, or a list whose first entry says what the others are:

- ``["symbol", place]``: a size that is not known yet, and what it is the size of
- ``["bool", value]``, ``["float", value]`` and ``["rational", numerator, denominator]``: other numbers
- ``[function, *operands]``: one of ``FUNCTIONS`` of other sizes

Plans, their descriptions, saved models and the programs in them have no other sizes, and each is read as this data
first. SymPy and PyTorch's functions are imported when an expression is needed; computing needs neither.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from torchtrt.errors import UnreadableFileError
from torchtrt.expressions import torch_internals

Size = int | list[Any]


class InexpressibleError(NotImplementedError):
    """A size has no such form, or a plugin cannot compute it; the text is the reason, as the end of a sentence."""


def _power(base: Any, exponent: Any) -> Any:
    """Returns a power; an ``OverflowError`` for a number that would fill the memory."""
    if exponent == _HALF and isinstance(exponent, float):
        return torch_internals.unary("sqrt")(base)
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(max(base.bit_length() - 1, 0) * max(exponent, 0))
    return base**exponent


def _float_power(base: Any, exponent: Any) -> Any:
    return torch.sym_float(base) ** torch.sym_float(exponent)


def _where(condition: Any, value: Any, other: Any) -> Any:
    if isinstance(condition, bool):
        return value if condition else other
    return torch.sym_ite(condition, value, other)


def _shifted_left(number: Any, bits: Any) -> Any:
    if isinstance(bits, int):
        _check_bits(bits)
    return number << bits


def _choice(*cases: tuple[Any, Any]) -> Any:
    """Returns the value of the first case whose condition is true, as SymPy's ``Piecewise`` does."""
    *others, (value, _) = cases
    for other, condition in reversed(others):
        value = _where(condition, other, value)
    return value


def _check_bits(bits: int) -> None:
    if bits > _MOST_BITS:
        message = f"a size would be a number of {bits} bits"
        raise OverflowError(message)


_HALF = 0.5
_MOST_BITS = 1 << 16
_SYMBOL_BITS = 1
"""A symbol stays a symbol where an expression is made."""
_MOST_FACTORS = 64
"""How many sizes a size may multiply with each other: a tensor has at most 64 dimensions."""
_MOST_NESTED = 200
"""How deep an expression may nest: Python parses parentheses no deeper."""
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
"""Functions whose second operand multiplies the digits of the first."""
_UNARY = (
    *("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh"),
)
_OF_MANY = frozenset({"Add", "Mul", "Max", "Min", "And", "Or", "Xor"})
"""Functions of any number of operands. Two at a time are computed."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "And": operator.and_,
    "Or": operator.or_,
    "Xor": operator.xor,
    "Not": torch.sym_not,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    "Abs": abs,
    "Pow": _power,
    "PowByNatural": _power,
    "FloatPow": _float_power,
    "LShift": _shifted_left,
    "RShift": operator.rshift,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda left, right: -(-left // right),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "floor": math.floor,
    "ceiling": math.ceil,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "TruncToFloat": lambda number: torch.sym_float(math.trunc(number)),
    "RoundToInt": round,
    "RoundDecimal": round,
    "ToFloat": torch.sym_float,
    "Identity": lambda number: number,
    "Where": _where,
    "ITE": _where,
    "Piecewise": _choice,
    "ExprCondPair": lambda value, condition: (value, condition),
    "BitwiseFn_bitwise_and": operator.and_,
    "BitwiseFn_bitwise_or": operator.or_,
    "BitwiseFn_bitwise_xor": operator.xor,
    "IsNonOverlappingAndDenseIndicator": torch_internals.is_non_overlapping_and_dense,
    **{f"OpaqueUnaryFn_{name}": torch_internals.unary(name) for name in _UNARY},
}
"""The functions of sizes, by the names of their classes in SymPy and in PyTorch, and how to compute them.

PyTorch's symbolic sizes have no others, and these names are all that a file may have for a function of sizes.
"""


def to_json(expression: Any, symbol: Callable[[Any], Any] = str) -> Size:
    """Returns an expression as data.

    Args:
        expression: A number, or a SymPy expression.
        symbol: From a symbol to what stands for it.

    Raises:
        InexpressibleError: It has a function or a number that no size has.
    """
    if isinstance(expression, int):
        return int(expression)
    if expression.is_Symbol:
        return ["symbol", symbol(expression)]
    if expression.is_Integer:
        return int(expression)
    if expression in (True, False):
        return ["bool", bool(expression)]
    if expression.is_Rational:
        return ["rational", int(expression.p), int(expression.q)]
    if expression.is_Float and math.isfinite(expression):
        return ["float", float(expression)]
    name = torch_internals.names_of_size_classes(tuple(FUNCTIONS)).get(type(expression))
    if name is None:
        what = type(expression).__name__
        message = f"the size {expression} has {what}, which is no function of sizes"
        raise InexpressibleError(message)
    return [name, *(to_json(argument, symbol) for argument in expression.args)]


def check_size(data: Any) -> None:
    """Checks data that was read, before anything is made of it or computed with it.

    Raises:
        UnreadableFileError: It has no form of a size, or its number is too large for any.
    """
    _bits_in(data, 0)
    if _factors_in(data) > _MOST_FACTORS:
        raise _too_large()


def _factors_in(size: Size) -> int:
    """Returns how many symbols a size multiplies with each other: SymPy's time grows with powers of sums."""
    match size:
        case ["symbol", _]:
            return 1
        case ["Pow" | "PowByNatural", base, int(exponent)]:
            return _factors_in(base) * max(abs(exponent), 1)
        case ["Mul", *operands]:
            return sum(map(_factors_in, operands))
        case [str(), *operands]:
            return max(map(_factors_in, operands), default=0)
    return 0


def _bits_in(data: Any, depth: int) -> int:
    """Returns how many bits the number of a size can have.

    Raises:
        UnreadableFileError: The data has no form of a size, or the number is too large for any.
    """
    match data:
        case int():
            return _bits_of(data)
        case ["symbol", _]:
            return _SYMBOL_BITS
        case ["bool", bool()]:
            return 1
        case ["float", float(value)]:
            return _bits_of(value)
        case ["rational", int(numerator), int(denominator)] if denominator:
            return _bits_of(numerator) + _bits_of(denominator)
        case [str(name), *operands] if name in FUNCTIONS and operands and depth < _MOST_NESTED:
            return _bits_of_result(name, (_bits_in(operand, depth + 1) for operand in operands))
    shown = repr(data)[:100] if depth < _MOST_NESTED else "a size that nests too deep"
    message = f"The file is damaged: it describes a size as {shown}, which is no expression."
    raise UnreadableFileError(message)


def _bits_of(value: float) -> int:
    """Returns the bits of the whole part of a number, which for ``inf`` is not computed."""
    return max(int(value).bit_length(), 1) if math.isfinite(value) else 1


def _bits_of_result(name: str, operands: Iterable[int]) -> int:
    """Returns how many bits the result of a function can have, from the bits of its operands.

    Raises:
        UnreadableFileError: The number is too large for any size.
    """
    first, *others = (*operands, 0)
    bits = first << min(max(others), 64) if name in _POWERS else first + sum(others) + 1
    if bits > _MOST_BITS:
        raise _too_large()
    return bits


def _too_large() -> UnreadableFileError:
    message = "The file describes a size by a number that is too large. It is not what torchtrt.save writes."
    return UnreadableFileError(message)


def from_json(data: Any, symbol: Callable[[Any], Any]) -> Any:
    """Returns the expression that ``to_json`` made data of: an ``int``, or one of SymPy's.

    Args:
        data: The data.
        symbol: From what stands for a symbol to the symbol.

    Raises:
        UnreadableFileError: It is no such data.
    """
    check_size(data)
    try:
        return (
            data
            if isinstance(data, int)
            else torch_internals.expression_of(data, symbol, tuple(FUNCTIONS))
        )
    except (ArithmeticError, AttributeError, AssertionError, TypeError, ValueError) as error:
        message = f"The file is damaged: it describes a size as {data!r:.100}: {error}."
        raise UnreadableFileError(message) from error


def evaluate(size: Any, value_of: Callable[[Any], Any]) -> Any:
    """Returns the value of a size.

    Args:
        size: The data.
        value_of: From what stands for a symbol to its value: a number, or a symbolic size.

    Raises:
        ArithmeticError: It divides by zero, or a number is too large.
    """
    return function_of(size)(value_of)


def function_of(size: Any) -> Callable[[Callable[[Any], Any]], Any]:
    """Returns the function that computes a size: from what ``evaluate`` takes for its symbols to its value."""
    match size:
        case int() | ["bool" | "float", _]:
            value = size if isinstance(size, int) else size[1]
            return lambda _: value
        case ["symbol", key]:
            return lambda value_of: value_of(key)
        case ["rational", numerator, denominator]:
            return lambda _: numerator / denominator
        case [name, *operands] if name in _OF_MANY or len(operands) == 2:
            # The numbers come last: one operand at a time takes a third of the time that a list of them takes.
            first, *others = sorted(operands, key=_is_number) if name in _OF_MANY else operands
            return functools.reduce(
                functools.partial(_with_operand, FUNCTIONS[name]), others, function_of(first)
            )
        case [name, *operands]:
            function, parts = FUNCTIONS[name], list(map(function_of, operands))
            return lambda value_of: function(*[part(value_of) for part in parts])
    raise TypeError(size)


def _is_number(size: Any) -> bool:
    return isinstance(size, int)


def _with_operand(
    function: Any, left: Callable[[Callable[[Any], Any]], Any], operand: Any
) -> Callable[[Callable[[Any], Any]], Any]:
    """Returns what computes a function of a computed size and of another one, which may be a number."""
    if _is_number(operand):
        return lambda value_of: function(left(value_of), operand)
    right = function_of(operand)
    return lambda value_of: function(left(value_of), right(value_of))
