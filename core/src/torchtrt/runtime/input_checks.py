"""Checks that inputs are what a model was compiled for, before anything runs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._dynamo import guards as _guards
from torch.fx import Node

from torchtrt.conversion.size_ranges import Profile
from torchtrt.errors import InputError
from torchtrt.inputs import check_strided
from torchtrt.lowering import shape_env_of

_REMEMBERED = 256
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def unlike(*_: Any) -> bool:
    """Returns false, as what :func:`matcher_of` returns for values that are no such tensors."""
    return False


def telling_strides(tensor: torch.Tensor) -> list[int | None]:
    """Returns strides, None along a size of 1: there they say nothing, and slices of what grows differ in them."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride if size != 1 else None for size, stride in sizes]


def matcher_of(values: Sequence[Any], exact: bool = False) -> Callable[..., bool]:
    """Returns what tells whether other values are plain tensors like these, but for their numbers and addresses.

    PyTorch compares types, dtypes, devices, sizes, strides, ``requires_grad`` and the modes that are on, in C++: in a
    fifth of the time that it takes to read them. Nested tensors must not be asked about: that ends the process.
    """
    if not all(type(value) in _PLAIN and value.layout is torch.strided for value in values):
        return unlike
    sizes = [list(value.shape) for value in values]
    strides = [list(x.stride()) if exact else telling_strides(x) for x in values]
    guards: Any = _guards.TensorGuards
    return guards(*values, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TensorCheck:
    """What one input tensor must be; each size is an int, or an expression of the model's symbols."""

    name: str
    dtype: torch.dtype
    layout: torch.layout
    sizes: tuple[Any, ...]


@dataclass
class InputChecks:
    """What the flattened inputs of a compiled model must be.

    Attributes:
        inputs: For each input, its tensor check, or the value it was compiled with where it is no tensor.
        profiles: The sizes that go together, for each symbol.
        assumptions: Conditions on the symbols under which the graph was traced.
    """

    inputs: tuple[tuple[str, Any], ...]
    profiles: tuple[Profile, ...]
    assumptions: tuple[Any, ...] = ()
    _passed: dict[tuple[Any, ...], Callable[..., bool]] = field(default_factory=dict)
    _matches: Callable[..., bool] = unlike

    @classmethod
    def of(cls, placeholders: Sequence[Node], profiles: tuple[Profile, ...]) -> InputChecks:
        """Returns the checks for a program's inputs."""
        inputs: list[tuple[str, Any]] = []
        for node in placeholders:
            value, name = node.meta.get("val"), str(node.target)
            if isinstance(value, torch.Tensor):
                sizes = tuple(
                    size if isinstance(size, int) else size.node.expr for size in value.shape
                )
                value = TensorCheck(name, value.dtype, value.layout, sizes)
            inputs.append((name, value))
        shape_env = shape_env_of(placeholders[0].graph) if placeholders else None
        guards = [guard.expr for guard in shape_env.guards] if shape_env else []
        assumptions = tuple(each for each in guards if each.free_symbols <= profiles[0].keys())
        return cls(tuple(inputs), profiles, assumptions)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_passed": {}, "_matches": unlike}

    def check(self, leaves: Sequence[Any]) -> None:
        """Checks flattened inputs. Shapes that passed once are not looked at again.

        Raises:
            InputError: One does not fit; the message names it and the sizes it may have.
        """
        for leaf in leaves:
            if getattr(leaf, "is_nested", False):
                break
        else:
            if self._matches(*leaves):
                return
        try:
            kinds = [
                (type(leaf), leaf.shape, leaf.dtype, leaf.layout)
                if isinstance(leaf, torch.Tensor)
                else (type(leaf), repr(leaf))
                for leaf in leaves
            ]
            if (known := self._passed.get(key := tuple(kinds))) is not None:
                self._matches = known
                return
        except (TypeError, RuntimeError):  # a symbolic size has no hash, a nested tensor no shape
            key = ()
        self._check(leaves)
        if len(self._passed) >= _REMEMBERED:
            self._passed.clear()
        self._passed[key] = self._matches = matcher_of(leaves)

    def _check(self, leaves: Sequence[Any]) -> None:
        bound: dict[Any, tuple[int, str]] = {}
        derived: list[tuple[Any, int, str]] = []
        for (name, wanted), leaf in zip(self.inputs, leaves, strict=True):
            subject = f"Input {name!r}"
            if not isinstance(wanted, TensorCheck):
                # Of numbers, this tells -0.0 from 0.0, and not NaN from NaN.
                if type(leaf) is not type(wanted) or repr(leaf) != repr(wanted):
                    raise _misfit(subject, repr(leaf), repr(wanted))
                continue
            if not isinstance(leaf, torch.Tensor):
                given = "and is missing" if leaf is None else f"not a {type(leaf).__name__}"
                raise InputError(f"{subject} must be a tensor, {given}.")
            check_strided(leaf)
            if type(leaf) not in _PLAIN:
                raise InputError(
                    f"Engines run on plain strided tensors, and {name!r} is a {type(leaf).__name__}. "
                    "What is compiled is not compiled or exported again: torchtrt.save makes an exported program of it."
                )
            for is_, compiled in ((leaf.dtype, wanted.dtype), (leaf.layout, wanted.layout)):
                if is_ is not compiled:
                    raise _misfit(subject, is_, compiled)
            if leaf.dim() != len(wanted.sizes):
                raise _misfit(subject, f"{leaf.dim()} dimensions", len(wanted.sizes), "has")
            for dim, (size, expected) in enumerate(zip(leaf.shape, wanted.sizes, strict=True)):
                where = f"dimension {dim} of input {name!r}"
                if isinstance(expected, int):
                    if size != expected:
                        raise _misfit(f"The size of {where}", size, expected)
                elif expected.is_Symbol:
                    self._bind(expected, size, where, bound)
                else:
                    derived.append((expected, size, where))
        values = {symbol: size for symbol, (size, _) in bound.items()}
        if not any(all(each[s].takes(values[s]) for s in values) for each in self.profiles):
            given = ", ".join(f"{where} is {size}" for size, where in bound.values())
            together = (
                ", ".join(f"{bound[s][1]} is {each[s]}" for s in values) for each in self.profiles
            )
            raise InputError(
                f"The model was compiled for each of these sizes, but not for all of them together: {given}. It takes: "
                f"{'; or '.join(together)}."
            )
        for expression, size, where in derived:
            expected = expression.xreplace(values)
            if expected != size:
                raise InputError(
                    f"The size of {where} is {size}, but it must be {expression} = {expected}."
                )
        for assumption in self.assumptions:
            if assumption.xreplace(values) == False:  # noqa: E712  (a sympy relation, not a bool)
                places = ", ".join(
                    f"{symbol} is {bound[symbol][1]}"
                    for symbol in sorted(assumption.free_symbols, key=str)
                    if symbol in bound
                )
                raise InputError(
                    f"These sizes break {assumption}, which the model was traced under ({places}). "
                    "Compile again with example inputs of such sizes."
                )

    def _bind(self, symbol: Any, size: int, where: str, bound: dict[Any, tuple[int, str]]) -> None:
        if symbol in bound and bound[symbol][0] != size:
            first, place = bound[symbol]
            message = f"The size of {where} is {size}, but it must equal the size of {place}, which is {first}."
            raise InputError(message)
        allowed = [profile[symbol] for profile in self.profiles]
        if not any(each.takes(size) for each in allowed):
            ranges = " or ".join(dict.fromkeys(map(str, allowed)))
            raise InputError(
                f"The size of {where} is {size}, but the model was compiled for {ranges}. Compile again with a wider "
                "range to use this size."
            )
        bound.setdefault(symbol, (size, where))


def _misfit(subject: str, is_: object, compiled: object, verb: str = "is") -> InputError:
    return InputError(f"{subject} {verb} {is_}, but the model was compiled for {compiled}.")
