"""Checks that inputs are what a model was compiled for, before anything runs on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import sympy
import torch
from torch.fx import Node

from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError, kind_of
from torchtrt.expressions.values import holds
from torchtrt.graphs.nodes import is_number
from torchtrt_runtime.processes.groups import is_distributed
from torchtrt_runtime.reports.rows import OTHER_PROGRAM, NarrowedSize, shortened
from torchtrt_runtime.size_ranges import LinearSize, Profile, linear_size
from torchtrt_runtime.torch_internals import PythonPrinter, tensor_guards

_REMEMBERED = 256
_NEARBY = 256
"""How far from a refused size accepted ones are looked for."""
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def never_matches(*_: Any) -> bool:
    """Returns false, as what ``make_tensor_matcher`` returns for values that are no such tensors."""
    return False


def significant_strides(tensor: torch.Tensor) -> list[int | None]:
    """Returns strides, None along a size of 1: there they have no effect, and slices of what grows differ in them."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride if size != 1 else None for size, stride in sizes]


def make_tensor_matcher(values: Sequence[Any], exact: Collection[int] = ()) -> Callable[..., bool]:
    """Returns a check whether other values are plain tensors like these, but for their numbers and addresses.

    Strides along a size of 1 are compared at the places ``exact`` only.

    PyTorch compares types, dtypes, devices, sizes, strides, ``requires_grad`` and the modes that are on, in C++: in a
    fifth of the time that it takes to read them. Nested tensors must not be checked: that ends the process.
    """
    if not all(type(value) in _PLAIN and value.layout is torch.strided for value in values):
        return never_matches
    sizes = [list(value.shape) for value in values]
    strides = [
        list(value.stride()) if index in exact else significant_strides(value)
        for index, value in enumerate(values)
    ]
    guards = tensor_guards(*values, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return guards.check  # type: ignore[no-any-return]


def check_strided(tensor: torch.Tensor) -> None:
    """Raises an ``InputError`` for a tensor that no engine can read: sparse, nested or quantized."""
    special = (tensor.is_nested and "nested tensor") or (tensor.is_quantized and "quantized tensor")
    kind = special or tensor.layout
    if kind is not torch.strided:
        raise InputError(f"Engines run on plain strided tensors, and an input is a {kind}.")


@dataclass(frozen=True)
class InputMemory:
    """The memory of an input, for a model that reads memory by strides.

    Attributes:
        order: The dimensions from the outermost to the innermost in memory, without gaps.
        offset: The place of the first element in its storage; ``None`` if any place is accepted.
    """

    order: tuple[int, ...]
    offset: int | None = None

    def fits(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor has such memory."""
        is_at_place = self.offset is None or tensor.storage_offset() == self.offset
        return is_at_place and tensor.permute(self.order).is_contiguous()

    def __str__(self) -> str:
        is_in_rows = self.order == tuple(range(len(self.order)))
        order = "" if is_in_rows else f" in the order {self.order} of its dimensions"
        offset = "" if self.offset is None else f", with the storage offset {self.offset}"
        return f"contiguous{order}{offset}"


@dataclass(frozen=True)
class TensorCheck:
    """The requirements on one input tensor.

    Attributes:
        name: The input's name.
        dtype: Its dtype.
        layout: Its layout.
        sizes: Its sizes: each is an int, or an expression of the model's symbols.
        memory: Its memory, if the model reads memory by strides; ``None`` if any strides are accepted.
        is_number: Whether callers pass its first size as a number in its place. It has no elements.
    """

    name: str
    dtype: torch.dtype
    layout: torch.layout
    sizes: tuple[Any, ...]
    memory: InputMemory | None = None
    is_number: bool = False

    def dimension(self, dim: int) -> int | None:
        """Returns a dimension as messages name it: none for a number."""
        return None if self.is_number else dim


@dataclass
class InputChecks:
    """The requirements on the flattened inputs of a compiled model.

    Attributes:
        inputs: For each input, its tensor check, or the value it was compiled with where it is no tensor.
        profiles: The sizes that go together, for each symbol.
        guards: Conditions on the symbols under which the graph was traced.
        narrowed: The sizes that were asked for, where the model's code allows fewer.
        pinned_profile: The place of the only profile whose sizes a call may have; ``None`` where all may be used.
        numbers: The positions of the inputs that are numbers which vary.
    """

    inputs: tuple[tuple[str, Any], ...]
    profiles: tuple[Profile, ...]
    guards: tuple[Any, ...] = ()
    narrowed: tuple[NarrowedSize, ...] = ()
    pinned_profile: int | None = None
    numbers: tuple[int, ...] = field(init=False)
    _reads_strides: bool = field(init=False)
    _passed: dict[tuple[Any, ...], Callable[..., bool]] = field(default_factory=dict)
    _matches: Callable[..., bool] = never_matches

    def __post_init__(self) -> None:
        checks = [wanted for _, wanted in self.inputs if isinstance(wanted, TensorCheck)]
        self._reads_strides = any(check.memory is not None for check in checks)
        self.numbers = tuple(
            index
            for index, (_, wanted) in enumerate(self.inputs)
            if isinstance(wanted, TensorCheck) and wanted.is_number
        )

    @classmethod
    def of(
        cls,
        placeholders: Sequence[Node],
        profiles: tuple[Profile, ...],
        guards: tuple[Any, ...] = (),
        memory: Mapping[str, InputMemory] = MappingProxyType({}),
        narrowed: tuple[NarrowedSize, ...] = (),
    ) -> InputChecks:
        """Returns the checks for a program's inputs.

        Args:
            placeholders: The program's inputs.
            profiles: The sizes that go together, for each symbol.
            guards: Conditions on the symbols under which the graph was traced.
            memory: The required memory of inputs, by name.
            narrowed: The sizes that were asked for, where the model's code allows fewer.

        Raises:
            InputError: A guard depends on a symbol that no input determines.
        """
        check_decidable(guards, profiles)
        inputs: list[tuple[str, Any]] = []
        for node in placeholders:
            value, name = node.meta.get("val"), str(node.target)
            if isinstance(value, torch.Tensor):
                sizes = tuple(
                    size if isinstance(size, int) else size.node.expr for size in value.shape
                )
                value = TensorCheck(
                    name, value.dtype, value.layout, sizes, memory.get(name), is_number(node)
                )
            inputs.append((name, value))
        return cls(tuple(inputs), profiles, guards, narrowed)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_passed": {}, "_matches": never_matches}

    def with_pinned_profile(self, profile: int | None) -> InputChecks:
        """Returns the checks that accept the sizes of one profile only; those of all for ``None``."""
        return dataclasses.replace(self, pinned_profile=profile, _passed={}, _matches=never_matches)

    def check(self, leaves: Sequence[Any]) -> None:
        """Checks flattened inputs. Shapes that passed once are not looked at again.

        Raises:
            InputError: One does not fit; the message names it and the sizes it may have.
        """
        for leaf in leaves:
            if getattr(leaf, "is_nested", False):
                break
        else:
            # The matcher compares strides, and no storage offsets.
            if not self._reads_strides and self._matches(*leaves):
                return
        try:
            kinds = [
                (
                    type(leaf),
                    leaf.shape,
                    leaf.dtype,
                    leaf.layout,
                    self._reads_strides and _memory_of(leaf),
                )
                if isinstance(leaf, torch.Tensor)
                else (type(leaf), repr(leaf))
                for leaf in leaves
            ]
            if (matches := self._passed.get(key := tuple(kinds))) is not None:
                self._matches = matches
                return
        except (TypeError, RuntimeError):  # a symbolic size has no hash, a nested tensor no shape
            key = ()
        self._check(leaves)
        if len(self._passed) >= _REMEMBERED:
            self._passed.clear()
        self._passed[key] = self._matches = make_tensor_matcher(leaves)

    def as_code(self, expression: Any) -> str:
        """Returns an expression of the symbols as the model's code could write it: ``x.shape[1] // 2 == 4``."""
        dimensions = [
            (_Dimension(name, wanted.dimension(dim), linear), linear)
            for name, wanted in self.inputs
            if isinstance(wanted, TensorCheck)
            for dim, size in enumerate(wanted.sizes)
            if not isinstance(size, int) and (linear := linear_size(size))
        ]
        names: dict[Any, Any] = {}
        for dimension, linear in sorted(dimensions, key=lambda pair: not pair[1].is_symbol):
            names.setdefault(linear.symbol, sympy.Symbol(dimension.code))
        return str(PythonPrinter().doprint(expression.xreplace(names)))

    def _check(self, leaves: Sequence[Any]) -> None:
        """Checks each input by itself, and then the conditions that involve several sizes."""
        sizes = _Sizes(self)
        for (name, wanted), leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(wanted, TensorCheck):
                _check_tensor(name, wanted, leaf)
                for dim, (size, expected) in enumerate(zip(leaf.shape, wanted.sizes, strict=True)):
                    sizes.add(_Dimension(name, wanted.dimension(dim)), size, expected)
            # Of numbers, this distinguishes -0.0 from 0.0, and accepts NaN for NaN.
            elif type(leaf) is not type(wanted) or repr(leaf) != repr(wanted):
                raise _misfit(f"Input {name!r}", f"is {leaf!r}", repr(wanted))
        sizes.check_together()
        for guard in self.guards:
            sizes.check_guard(guard)


@dataclass(frozen=True)
class _Dimension:
    """One dimension of one input.

    Attributes:
        input: The input's name.
        dim: The dimension; ``None`` for an input that is a number.
        linear: Its size as the exported program has it, where a symbol is no size of any input by itself.
    """

    input: str
    dim: int | None
    linear: LinearSize | None = None

    def __str__(self) -> str:
        described = f"input {self.input!r}"
        if self.dim is not None:
            described = f"dimension {self.dim} of {described}"
        return f"{self.linear.symbol} in {self.linear}, {described}," if self.linear else described

    @property
    def size(self) -> str:
        """The size in words, as the subject of a sentence."""
        return f"Input {self.input!r}" if self.dim is None else f"The size of {self}"

    @property
    def code(self) -> str:
        """The size, or the symbol in it, as the model's code would read it."""
        code = self.input if self.dim is None else f"{self.input}.shape[{self.dim}]"
        if self.linear is not None and self.linear.offset:
            code = f"({code} {-self.linear.offset:+d})"
        if self.linear is not None and self.linear.factor > 1:
            code = f"({code} // {self.linear.factor})"
        return code


class _Sizes:
    """The sizes of the inputs of one call, by the symbols that stand for them.

    Args:
        checks: The requirements on the inputs.
    """

    def __init__(self, checks: InputChecks) -> None:
        self._checks, self._profiles = checks, checks.profiles
        if checks.pinned_profile is not None:
            self._profiles = (checks.profiles[checks.pinned_profile],)
        self._values: dict[Any, int] = {}
        self._dimensions: dict[Any, _Dimension] = {}
        self._derived: list[tuple[Any, int, _Dimension]] = []

    def add(self, dimension: _Dimension, size: int, expected: Any) -> None:
        """Checks one size, which must be a number, a symbol's value or an expression of symbols."""
        if isinstance(expected, int):
            if size != expected:
                advice = (
                    "To accept several sizes, compile with a range of sizes in a torchtrt.Input."
                )
                raise _misfit(dimension.size, f"is {size}", expected, advice)
        elif not expected.is_Symbol:
            self._derived.append((expected, size, dimension))
        elif self._values.setdefault(expected, size) != size:
            raise InputError(
                f"{dimension.size} is {size}, but it must equal the size of {self._dimensions[expected]}, which "
                f"is {self._values[expected]}."
            )
        else:
            self._dimensions.setdefault(expected, dimension)
            self._check_range(dimension, size, [profile[expected] for profile in self._profiles])

    def _check_range(self, dimension: _Dimension, size: int, allowed: Sequence[SizeRange]) -> None:
        """Raises an ``InputError`` if a size is in none of the allowed ranges."""
        if not any(sizes.contains(size) for sizes in allowed):
            ranges = " or ".join(dict.fromkeys(map(str, allowed)))
            if (pinned := self._checks.pinned_profile) is not None:
                raise InputError(
                    f"{dimension.size} is {size}, but runtime_settings pins optimization profile {pinned}, "
                    f"which is for {ranges}. Assign RuntimeSettings with another optimization_profile, or with None "
                    "for the first profile that fits."
                )
            raise InputError(
                f"{dimension.size} is {size}, but the model was compiled for {ranges}. "
                f"{self._advice(dimension, size, allowed)}"
            )

    def _advice(self, dimension: _Dimension, size: int, allowed: Sequence[SizeRange]) -> str:
        """Returns what a user can do about a size that no engine was built for."""
        for row in self._checks.narrowed:
            low, high = row.asked
            if (row.input, row.dim) == (dimension.input, dimension.dim) and low <= size <= high:
                return f"You asked for {low} to {high}, {row.reason}. {OTHER_PROGRAM}"
        if dimension.dim is None:
            return "Compile again with a wider range to use this number."
        if size == 0 and min(allowed).min == 1:
            return (
                "Compile again with a torchtrt.Input that has 0 in its min_shape to use this size. A torch.export.Dim "
                "starts at 1 here: PyTorch does not distinguish one with min=0 from one without a minimum."
            )
        return "Compile again with a wider range to use this size."

    def _determine(self) -> None:
        """Finds the values of symbols that are in computed sizes alone."""
        for expression, size, dimension in self._derived:
            linear = linear_size(expression)
            if linear is None or linear.symbol in self._values:
                continue
            ranges = [profile[linear.symbol] for profile in self._profiles]
            self._check_range(dimension, size, [linear.sizes(range_) for range_ in ranges])
            if (value := linear.value(size)) is None:
                raise InputError(
                    f"{dimension.size} is {size}, but it must be {linear}, for a whole {linear.symbol}."
                )
            self._values[linear.symbol] = value
            self._dimensions[linear.symbol] = dataclasses.replace(dimension, linear=linear)

    def _is_in_a_profile(self, values: Mapping[Any, int]) -> bool:
        return any(
            all(profile[s].contains(values[s]) for s in values) for profile in self._profiles
        )

    def check_together(self) -> None:
        """Checks that one profile has all of the sizes, and that computed sizes are as computed."""
        self._determine()
        values = self._values
        if not self._is_in_a_profile(values):
            sizes = ", ".join(
                f"{self._dimensions[symbol]} is {size}" for symbol, size in values.items()
            )
            together = (
                ", ".join(f"{self._dimensions[symbol]} is {profile[symbol]}" for symbol in values)
                for profile in self._profiles
            )
            raise InputError(
                f"The model was compiled for each of these sizes, but not for all of them together: {sizes}. It takes: "
                f"{'; or '.join(together)}."
            )
        for expression, size, dimension in self._derived:
            expected = expression.xreplace(values)
            if expected != size:
                raise InputError(
                    f"{dimension.size} is {size}, but it must be {self._checks.as_code(expression)} = "
                    f"{expected}."
                )

    def check_guard(self, guard: Any) -> None:
        """Checks a condition under which the model was exported."""
        if holds(guard, self._values):
            return
        symbols = sorted(guard.free_symbols, key=str)
        values = " and ".join(
            f"{self._checks.as_code(symbol)} is {self._values.get(symbol)}" for symbol in symbols
        )
        closest = next(filter(None, map(self._closest, symbols)), "")
        condition = shortened(self._checks.as_code(guard))
        raise InputError(
            f"The model was exported under the condition {condition}, but {values}. {closest}{OTHER_PROGRAM}"
        )

    def _closest(self, symbol: Any) -> str:
        """Returns the sizes in place of a refused one that are the closest accepted ones, as a sentence."""

        def is_accepted(value: int) -> bool:
            values = {**self._values, symbol: value}
            return self._is_in_a_profile(values) and all(
                holds(guard, values) for guard in self._checks.guards
            )

        if (dimension := self._dimensions.get(symbol)) is None:
            return ""
        value = self._values[symbol]
        linear = dimension.linear or LinearSize(symbol, 1, 0)
        nearby = (range(value + step, value + step * _NEARBY, step) for step in (-1, 1))
        accepted = [next(filter(is_accepted, candidates), None) for candidates in nearby]
        sizes = " or ".join(str(linear.size(number)) for number in accepted if number is not None)
        other = " if the other sizes stay as they are" if len(self._values) > 1 else ""
        name = _Dimension(dimension.input, dimension.dim).code
        return sizes and f"{name} may be {sizes}{other}. "


def _check_tensor(name: str, wanted: TensorCheck, leaf: Any) -> None:
    """Checks an input's kind, dtype, layout and rank."""
    subject = f"Input {name!r}"
    if wanted.is_number and not isinstance(leaf, torch.Tensor):
        actual = f"is {leaf}" if type(leaf) is int else f"must be an int, not {kind_of(leaf)}"
        raise InputError(f"{subject} {actual}. It is compiled as a size, from 0 to 2**63 - 1.")
    if not isinstance(leaf, torch.Tensor):
        actual = "and is missing" if leaf is None else f"not {kind_of(leaf)}"
        raise InputError(f"{subject} must be a tensor, {actual}.")
    check_strided(leaf)
    if type(leaf) not in _PLAIN:
        advice = "What is compiled is not compiled or exported again: torchtrt.save makes an exported program of it."
        if is_distributed(leaf):
            advice = "Give the part of this process, to_local() of it, as the model got it when it was compiled."
        raise InputError(
            f"Engines run on plain strided tensors, and {name!r} is {kind_of(leaf)}. {advice}"
        )
    if wanted.is_number and tuple(leaf.shape[1:]) != (0,):
        raise InputError(f"{subject} must be an int, not a tensor.")
    if leaf.dtype is not wanted.dtype:
        advice = f"Convert it with .to({wanted.dtype}), or compile for {leaf.dtype}."
        raise _misfit(subject, f"is {leaf.dtype}", wanted.dtype, advice)
    if leaf.layout is not wanted.layout:
        raise _misfit(subject, f"is {leaf.layout}", wanted.layout)
    if leaf.dim() != len(wanted.sizes):
        has = f"has {leaf.dim()} dimension{'s' if leaf.dim() != 1 else ''}"
        raise _misfit(subject, has, len(wanted.sizes), "Their number is fixed.")
    if wanted.memory is not None and not wanted.memory.fits(leaf):
        strides, offset = _memory_of(leaf)
        raise InputError(
            f"{subject} has the strides {strides} and the storage offset {offset}. The model reads memory by strides "
            "(an op such as as_strided, Python code such as x.is_contiguous(), or a write through x.reshape(-1)), and "
            f"was compiled for an input that is {wanted.memory}. Copy the input into such memory, or compile with one "
            "like it."
        )


def _memory_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], int]:
    return tensor.stride(), int(tensor.storage_offset())


def check_decidable(guards: Sequence[Any], profiles: Sequence[Profile]) -> None:
    """Checks that the sizes of the inputs decide every guard of a program.

    Raises:
        InputError: One has a symbol that no input determines, or is neither true nor false for known sizes.
    """
    for guard in guards:
        values = {symbol: sizes.opt for symbol, sizes in profiles[0].items()}
        if guard.xreplace(values) not in (True, False):
            unknown = ", ".join(sorted(map(str, guard.free_symbols - values.keys())))
            raise InputError(
                f"The model was exported under the condition {guard}, which the sizes of its inputs do not "
                f"decide{f' ({unknown} is the size of no input)' if unknown else ''}. A compiled model could not "
                "check it. Fix the sizes that the condition depends on."
            )


def _misfit(subject: str, is_: object, compiled: object, advice: str = "") -> InputError:
    what = f"{subject} {is_}, but the model was compiled for {compiled}. {advice}"
    return InputError(what.rstrip())
