"""Numbers that are not known when a model is compiled: symbolic sizes, and numbers read out of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt.graphs import size_bounds
from torchtrt.torch_internals import pytree


class DependsOnDataError(Exception):
    """A number was to be known while the model is compiled, and depends on data."""


class Undecided:
    """A number or truth value that is known only when the engine runs: the value of a tensor.

    Whatever needs its value, such as comparing it or looking for it in a list, raises
    ``DependsOnDataError``.

    Attributes:
        tensor: A 0-d tensor: int64, float64 or bool.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def _refuse(self, *_: Any) -> Any:
        raise DependsOnDataError

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = __str__ = __format__ = (
        _refuse
    )
    __index__ = __int__ = __float__ = __len__ = _refuse


class Uninitialized:
    """Stands for a result that nothing reads: where a function returns early, what would come after it."""


def is_undecided(value: Any) -> bool:
    """Returns whether a value is an undecided number."""
    return isinstance(value, Undecided)


def is_symbolic(values: Any) -> bool:
    """Returns whether a number in ``values`` is symbolic or undecided."""
    kinds = (Undecided, torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(isinstance(leaf, kinds) for leaf in pytree.tree_leaves(values, is_leaf=is_undecided))


def number_as_tensor(value: Any) -> Tensor:
    """Returns a number, which may be symbolic, as a 0-d tensor: int64, float64 or bool."""
    if isinstance(value, (bool, torch.SymBool)):
        dtype = torch.bool
    else:
        dtype = torch.float64 if isinstance(value, (float, torch.SymFloat)) else torch.int64
    return torch.full((), value, dtype=dtype)


def as_number(value: Any) -> Any:
    """Returns an undecided number as PyTorch's own symbolic one, also those in lists, where PyTorch needs numbers."""
    return pytree.tree_map(
        lambda leaf: leaf.tensor.item() if is_undecided(leaf) else leaf, value, is_leaf=is_undecided
    )


# A trace computes with sizes as 0-d tensors. The number such a tensor holds travels with it, so that what is
# made of it is a size again.

_NUMBER = "_torchtrt_number"


def holding(tensor: Tensor, number: Any) -> Tensor:
    """Returns a 0-d tensor, marked as holding a symbolic number."""
    setattr(tensor, _NUMBER, (number, tensor._version))
    return tensor


def held_number(tensor: Tensor) -> Any:
    """Returns the number that a 0-d tensor is known to hold, or ``None``."""
    number, version = getattr(tensor, _NUMBER, (None, 0))
    if number is not None:
        return number if version == tensor._version else None
    constant = getattr(tensor, "constant", tensor)  # of a fake tensor: its value, if it has one
    return constant.item() if type(constant) in (Tensor, torch.nn.Parameter) else None


def _added(first: Any, second: Any, alpha: Any = 1) -> Any:
    return first + alpha * second


def _subtracted(first: Any, second: Any, alpha: Any = 1) -> Any:
    return first - alpha * second


def _subtracted_from(first: Any, second: Any, alpha: Any = 1) -> Any:
    return second - alpha * first


def _raised(first: Any, second: Any) -> Any:
    return first**second if isinstance(second, int) and second >= 0 else None


def _shifted_left(first: Any, second: Any) -> Any:
    return first * 2**second if isinstance(second, int) and 0 <= second < 63 else None


def _shifted_right(first: Any, second: Any) -> Any:
    return first // 2**second if isinstance(second, int) and 0 <= second < 63 else None


def _absolute(number: Any) -> Any:
    return torch.sym_max(number, -number)


def _divided(first: Any, second: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return first / second
    # Sizes are no less than zero: then rounding down is rounding to zero.
    least, _ = zip(*map(size_bounds, (first, second)), strict=True)
    signs = all(number is not None and number >= 0 for number in least)
    return first // second if rounding_mode == "floor" or signs else None


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "aten::add": _added,
    "aten::sub": _subtracted,
    "aten::mul": operator.mul,
    "aten::div": _divided,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::rsub": _subtracted_from,
    "aten::abs": _absolute,
    "aten::pow": _raised,
    "aten::__lshift__": _shifted_left,
    "aten::__rshift__": _shifted_right,
    "aten::maximum": torch.sym_max,
    "aten::minimum": torch.sym_min,
}
"""Operators of traces on sizes."""


def as_known(kind: str, args: Sequence[Any], result: Any) -> Any:
    """Returns an op's result, marked with the number that it holds if it was computed from held ones."""
    if kind not in _ARITHMETIC or not any(hasattr(argument, _NUMBER) for argument in args):
        return result
    numbers = [
        held_number(argument) if isinstance(argument, Tensor) else argument for argument in args
    ]
    if not all(isinstance(number, (int, torch.SymInt)) for number in numbers[:2]):
        return result
    number = _ARITHMETIC[kind](*numbers)
    return result if number is None else holding(result, number)
