"""Sizes as TensorRT's plugins compute them: integers, sizes of inputs, and seven operations.

A size is an ``int``, ``["dim", input, dimension]``, or ``[operation, left, right]`` with a member of TensorRT's
``DimensionOperation``. This is plain JSON, so that it travels in a plan.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Size = int | list[Any]


class InexpressibleError(NotImplementedError):
    """A plugin cannot compute a size; the text is the reason, as the end of a sentence."""


def to_size(expression: Any, place_of: Callable[[Any], Sequence[int] | None]) -> Size:
    """Returns a SymPy expression of sizes as a plugin computes it.

    Args:
        expression: An integer, or an expression of symbols.
        place_of: Returns the input and the dimension that a symbol is the size of, or None.

    Raises:
        InexpressibleError: The plugin interface has no such operation, or a symbol is no size of an input.
    """
    convert = functools.partial(to_size, place_of=place_of)
    if isinstance(expression, int) or expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        place = place_of(expression)
        if place is None:
            message = f"{expression} is no size of its inputs"
            raise InexpressibleError(message)
        return ["dim", *place]
    if expression.is_Add:
        return _sum(expression, convert)
    name = type(expression).__name__
    if name in _CHAINED:
        return _chain(_CHAINED[name], map(convert, expression.args))
    if name in _DIVISIONS:
        left, right = map(convert, expression.args)
        return [_DIVISIONS[name], left, right]
    if name in ("Mod", "PythonMod"):
        left, right = map(convert, expression.args)
        return ["SUB", left, ["PROD", ["FLOOR_DIV", left, right], right]]
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        return _chain("PROD", [convert(expression.base)] * int(expression.exp))
    message = f"TensorRT's plugins have no operation for {expression}"
    raise InexpressibleError(message)


_CHAINED: Mapping[str, str] = {"Mul": "PROD", "Max": "MAX", "Min": "MIN"}
"""The operations that SymPy applies to any number of operands."""
_DIVISIONS: Mapping[str, str] = {
    "FloorDiv": "FLOOR_DIV",
    "CleanDiv": "FLOOR_DIV",
    "CeilDiv": "CEIL_DIV",
}


def _chain(operation: str, operands: Any) -> Size:
    chained: Size = functools.reduce(lambda left, right: [operation, left, right], operands)
    return chained


def _sum(expression: Any, convert: Callable[[Any], Size]) -> Size:
    """Returns a sum as what is added, minus what is subtracted: no part of it is negative on the way."""
    added: list[Size] = []
    subtracted: list[Size] = []
    for term in expression.args:
        is_negative = term.as_coeff_Mul()[0].is_negative
        (subtracted if is_negative else added).append(convert(-term if is_negative else term))
    total = _chain("SUM", added) if added else 0
    return ["SUB", total, _chain("SUM", subtracted)] if subtracted else total


_COMPUTE: Mapping[str, Callable[[Any, Any], Any]] = {
    "SUM": operator.add,
    "PROD": operator.mul,
    "SUB": operator.sub,
    "MAX": torch.sym_max,
    "MIN": torch.sym_min,
    "FLOOR_DIV": operator.floordiv,
    "CEIL_DIV": lambda left, right: -(-left // right),
}


def evaluate(size: Size, shapes: Sequence[Sequence[Any]]) -> Any:
    """Returns a size for the shapes of the inputs, which may be symbolic themselves."""
    if isinstance(size, int):
        return size
    operation, left, right = size
    if operation == "dim":
        return shapes[left][right]
    return _COMPUTE[operation](evaluate(left, shapes), evaluate(right, shapes))
