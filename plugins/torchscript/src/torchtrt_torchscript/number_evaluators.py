"""Evaluators of numbers: known ones, symbolic ones, and those that tensors hold when the engine runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchtrt_torchscript.numbers import Undecided, held_number, number_as_tensor

# PyTorch gives these functions no types.
_sym_not: Any = torch.sym_not
_sym_min: Any = torch.sym_min
sym_max: Any = torch.sym_max
sym_int: Any = torch.sym_int
sym_float: Any = torch.sym_float
_sym_sqrt: Any = torch.sym_sqrt

Evaluator = Callable[..., Any]
"""Takes the values of a node's inputs, and returns its value, or one per output."""


def of_numbers(function: Callable[..., Any]) -> Evaluator:
    """Makes an evaluator of a function of numbers that works on 0-d tensors too."""

    def evaluate(*args: Any) -> Any:
        if not any(isinstance(value, Undecided) for value in args):
            return function(*args)
        result = function(*map(_operand, args))
        return Undecided(result) if isinstance(result, Tensor) else result

    return evaluate


def _operand(value: Any) -> Any:
    if isinstance(value, Undecided):
        return value.tensor
    return number_as_tensor(value) if isinstance(value, torch.SymBool) else value


def of_undecided(
    of_tensor: Callable[..., Tensor],
    dtype: torch.dtype = torch.float64,
    of_size: Callable[..., Any] | None = None,
) -> Evaluator:
    """Makes an evaluator of a function of numbers that depend on data or on dynamic sizes: its result depends too.

    Args:
        of_tensor: The function, of float64 tensors.
        dtype: What the result is converted to.
        of_size: The function of symbolic numbers, where there is one.
    """

    def evaluate(*args: Any) -> Any:
        if of_size is not None and not any(isinstance(value, Undecided) for value in args):
            return of_size(*args)
        operands = (
            value.tensor if isinstance(value, Undecided) else number_as_tensor(value)
            for value in args
        )
        return Undecided(of_tensor(*(operand.to(torch.float64) for operand in operands)).to(dtype))

    return evaluate


def reading(dtype: torch.dtype, cast: Callable[[Any], Any]) -> Evaluator:
    """Makes an evaluator that reads a number out of a tensor, or converts a number."""

    def evaluate(value: Any) -> Any:
        if isinstance(value, Undecided):
            value = value.tensor
        if not isinstance(value, Tensor):
            return cast(value)
        number = held_number(value)
        if number is not None:
            return cast(number)
        return Undecided(
            value.reshape(()).to(dtype, copy=True)
        )  # the tensor may be written to later

    return evaluate


def scalar(value: Any) -> Any:
    """Returns the number that a tensor holds, ``Undecided`` where that is known only at run time; a number itself."""
    if isinstance(value, Tensor):
        if value.dtype is torch.bool:
            return reading(torch.bool, boolean)(value)
        if value.is_floating_point():
            return reading(torch.float64, sym_float)(value)
        return reading(torch.int64, sym_int)(value)
    return value


def boolean(value: Any) -> Any:
    """Returns ``bool(value)``, symbolic for a symbolic number."""
    if isinstance(value, torch.SymBool):
        return value
    return value != 0 if isinstance(value, (torch.SymInt, torch.SymFloat)) else bool(value)


def negated(value: Any) -> Any:
    """Returns ``not value``, of a tensor element by element."""
    return torch.logical_not(value) if isinstance(value, Tensor) else _sym_not(value)


def square_root(value: Any) -> Any:
    """Returns the square root of a number, a symbolic number or a tensor."""
    return torch.sqrt(value) if isinstance(value, Tensor) else _sym_sqrt(value)


def minimum(first: Any, second: Any = None) -> Any:
    """Returns the smaller of two numbers or tensors, or the smallest of a list."""
    return _extreme(_sym_min, torch.minimum, first, second)


def maximum(first: Any, second: Any = None) -> Any:
    """Returns the larger of two numbers or tensors, or the largest of a list."""
    return _extreme(sym_max, torch.maximum, first, second)


def _extreme(numbers_function: Any, tensors_function: Any, first: Any, second: Any) -> Any:
    if second is None:
        pair = of_numbers(functools.partial(_extreme, numbers_function, tensors_function))
        return functools.reduce(pair, first)
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return tensors_function(torch.as_tensor(first), torch.as_tensor(second))
    return numbers_function(first, second)
