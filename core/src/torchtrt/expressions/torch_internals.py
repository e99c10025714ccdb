"""The parts of PyTorch without a public name that symbolic sizes need.

Functions import the slow modules, which exporting has imported before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

Bounds = tuple[int | None, int | None]
"""The least and the greatest value; None where nothing bounds it."""


def is_certain(expression: Any, value: object) -> bool:
    """Returns whether an expression has a value for all sizes.

    PyTorch's minimum and maximum are quick, and keep what SymPy's own simplify: ``min(8 * s, 32 * s)`` is ``8 * s``.
    """
    import sympy
    from torch.utils._sympy.functions import Max, Min

    exact = expression.replace(Min, sympy.Min).replace(Max, sympy.Max)
    return exact in (sympy.true, sympy.false) and bool(exact) == bool(value)


def bounds_of_symbols(
    size: torch.SymInt | torch.SymBool, stated: Mapping[Any, Bounds]
) -> dict[Any, Any]:
    """Returns the bounds of the symbols in a size, as PyTorch's ``ValueRanges``.

    Args:
        size: The size.
        stated: The bounds of symbols. Without any, sizes are at least 1, numbers 0, and sizes that depend on data what
            PyTorch has for them.
    """
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    from torch.utils._sympy.value_ranges import ValueRanges

    unbacked = free_unbacked_symbols(size)
    bounds = {}
    for symbol in size.node.expr.free_symbols:
        own = size.node.shape_env.bound_sympy(symbol)
        least, most = stated.get(symbol, (None, None))
        if least is None:
            assumed = own.lower if symbol in unbacked else 1 if symbol.is_positive else 0
            least = min(own.lower, assumed)
        bounds[symbol] = ValueRanges(least, own.upper if most is None else most)
    return bounds


def bounds_of(size: torch.SymInt, stated: Mapping[Any, Bounds]) -> Any:
    """Returns the bounds of a size as ``ValueRanges``, from those of its symbols."""
    from torch.utils._sympy.value_ranges import bound_sympy

    return bound_sympy(size.node.expr, bounds_of_symbols(size, stated))


def is_certain_within(condition: torch.SymBool, stated: Mapping[Any, Bounds]) -> bool:
    """Returns whether a condition holds for all values of its symbols, whose bounds are those of ``bounds_of_symbols``.

    PyTorch's own bounds follow from guards of ops as well, and such a guard may be no condition on calls.
    """
    environment = condition.node.shape_env
    ranges = tuple(bounds_of_symbols(condition, stated).items())
    result = environment._maybe_evaluate_static(condition.node.expr, axioms=(), var_to_range=ranges)
    return result is not None and bool(result)


@functools.cache
def _size_classes(names: tuple[str, ...]) -> dict[str, Any]:
    """Returns SymPy's and PyTorch's classes of the functions of sizes, by name, as far as this PyTorch has them."""
    import sympy
    from sympy.functions.elementary.piecewise import ExprCondPair
    from torch.utils._sympy import functions

    homes = (functions, sympy)
    classes = {
        name: next((getattr(home, name) for home in homes if hasattr(home, name)), None)
        for name in names
    }
    return {name: size_class for name, size_class in classes.items() if size_class} | {
        "ExprCondPair": ExprCondPair
    }


@functools.cache
def names_of_size_classes(names: tuple[str, ...]) -> Mapping[type, str]:
    """Returns the names of the functions of sizes, by SymPy's and PyTorch's classes.

    PyTorch has a minimum, a maximum and a remainder of its own, and reads them from files as SymPy's.
    """
    import sympy

    own = {size_class: name for name, size_class in _size_classes(names).items()}
    return own | {sympy.Max: "Max", sympy.Min: "Min", sympy.Mod: "PythonMod"}


def expression_of(data: Any, symbol: Callable[[Any], Any], names: tuple[str, ...]) -> Any:
    """Returns the SymPy expression of a size that ``torchtrt.expressions.data`` has checked.

    Args:
        data: The size.
        symbol: From what stands for a symbol to the symbol.
        names: The names of the functions of sizes.
    """
    import sympy

    match data:
        case int():
            return sympy.Integer(data)
        case ["symbol", key]:
            return symbol(key)
        case ["bool" | "float", value]:
            return sympy.sympify(value)
        case ["rational", numerator, denominator]:
            return sympy.Rational(numerator, denominator)
    name, *operands = data
    return _size_classes(names)[name](
        *(expression_of(operand, symbol, names) for operand in operands)
    )


def unary(name: str) -> Callable[[Any], Any]:
    """Returns a function of ``math`` that accepts symbolic numbers, where PyTorch has one for them."""
    function: Callable[[Any], Any] = getattr(torch, f"_sym_{name}", None) or getattr(math, name)
    return function


def is_non_overlapping_and_dense(*sizes_and_strides: Any) -> int:
    """Returns whether a tensor of these sizes and strides, one after the other, is dense in memory: 1 or 0."""
    from torch.fx.experimental.symbolic_shapes import eval_is_non_overlapping_and_dense

    half = len(sizes_and_strides) // 2
    sizes, strides = sizes_and_strides[:half], sizes_and_strides[half:]
    return int(eval_is_non_overlapping_and_dense(list(sizes), list(strides)))
