"""Sizes as TensorRT computes those of a plugin's results: from sizes of inputs, with seven operations on integers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from torchtrt.expressions.data import InexpressibleError, Size, to_json


class Dimensions(Protocol):
    """A builder of TensorRT's expressions of sizes."""

    def constant(self, number: int, /) -> Any:
        """Returns a number."""

    def of_input(self, number: int, dimension: int, /) -> Any:
        """Returns a size of an input."""

    def operation(self, name: str, left: Any, right: Any, /) -> Any:
        """Returns what one of TensorRT's ``DimensionOperation`` makes of two sizes."""


def to_size(expression: Any, place_of: Callable[[Any], Sequence[int] | None]) -> Size:
    """Returns a SymPy expression of sizes as data, if a plugin can compute it.

    Args:
        expression: An integer, or an expression of symbols.
        place_of: Returns the input and the dimension that a symbol is the size of, or None.

    Raises:
        InexpressibleError: The plugin interface has no such operation, or a symbol is no size of an input.
    """

    def known_place(symbol: Any) -> list[int]:
        input_dim = place_of(symbol)
        if input_dim is None:
            message = f"{symbol} is no size of its inputs"
            raise InexpressibleError(message)
        return list(input_dim)

    size = to_json(expression, known_place)
    try:
        build(size, _Checked())
    except InexpressibleError as error:
        message = f"TensorRT's plugins have no operation for {error}, as in {expression}"
        raise InexpressibleError(message) from error
    return size


def build(size: Size, dimensions: Dimensions) -> Any:
    """Returns a size as TensorRT's expression.

    Args:
        size: The data. Its symbols are the number and the dimension of an input.
        dimensions: What makes expressions.

    Raises:
        InexpressibleError: There is no such operation; the text is the name of the function.
    """
    convert = functools.partial(build, dimensions=dimensions)
    match size:
        case int():
            return dimensions.constant(size)
        case ["symbol", [number, dimension]]:
            return dimensions.of_input(number, dimension)
        case ["Add", *terms]:
            return _sum(terms, dimensions)
        case ["Mul" | "Max" | "Min" as name, *operands]:
            return _chain(_CHAINED[name], map(convert, operands), dimensions)
        case ["FloorDiv" | "CleanDiv" | "CeilDiv" as name, left, right]:
            return dimensions.operation(_DIVISIONS[name], convert(left), convert(right))
        case ["Mod" | "PythonMod", left, right]:
            multiple = convert(["Mul", ["FloorDiv", left, right], right])
            return dimensions.operation("SUB", convert(left), multiple)
        case ["Pow" | "PowByNatural", base, int(exponent)] if exponent > 0:
            return _chain("PROD", [convert(base)] * exponent, dimensions)
        case ["Identity", operand]:
            return convert(operand)
    raise InexpressibleError(str(size[0]))


_CHAINED: Mapping[str, str] = {"Mul": "PROD", "Max": "MAX", "Min": "MIN"}
"""The operations that SymPy applies to any number of operands."""
_DIVISIONS: Mapping[str, str] = {
    "FloorDiv": "FLOOR_DIV",
    "CleanDiv": "FLOOR_DIV",
    "CeilDiv": "CEIL_DIV",
}


def _chain(operation: str, operands: Iterable[Any], dimensions: Dimensions) -> Any:
    return functools.reduce(functools.partial(dimensions.operation, operation), operands)


def _sum(terms: Sequence[Size], dimensions: Dimensions) -> Any:
    """Returns a sum as what is added, minus what is subtracted: no part of it is negative on the way."""
    added: list[Any] = []
    subtracted: list[Any] = []
    for term in terms:
        match term:
            case int() if term < 0:
                subtracted.append(build(-term, dimensions))
            case ["Mul", int(factor), *others] if factor < 0:
                subtracted.append(build(["Mul", -factor, *others], dimensions))
            case _:
                added.append(build(term, dimensions))
    total = _chain("SUM", added, dimensions) if added else dimensions.constant(0)
    if not subtracted:
        return total
    return dimensions.operation("SUB", total, _chain("SUM", subtracted, dimensions))


class _Checked:
    """Makes nothing: what it is asked for has an operation."""

    def constant(self, *_: Any) -> None:
        return None

    of_input = operation = constant
