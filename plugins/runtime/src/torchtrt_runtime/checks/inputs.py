"""Checks that inputs are what a model was compiled for, before anything runs on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from torchtrt.errors import InputError
from torchtrt.graphs.nodes import is_number
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt_runtime.checks.dimensions import Dimension, symbol_codes
from torchtrt_runtime.checks.sizes import CallSizes, SizeChecks, check_decidable
from torchtrt_runtime.checks.tensors import (
    InputMemory,
    TensorCheck,
    make_tensor_matcher,
    memory_of,
    misfit,
    never_matches,
)
from torchtrt_runtime.reports.rows import NarrowedSize
from torchtrt_runtime.size_ranges import Profile

_REMEMBERED = 256


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
    _sizes: SizeChecks = field(init=False)
    _passed: dict[tuple[Any, ...], Callable[..., bool]] = field(default_factory=dict)
    _matches: Callable[..., bool] = never_matches

    def __post_init__(self) -> None:
        tensors = tuple(wanted for _, wanted in self.inputs if isinstance(wanted, TensorCheck))
        self._reads_strides = any(tensor.memory is not None for tensor in tensors)
        codes = symbol_codes(dimension for tensor in tensors for dimension in tensor.dimensions)
        self._sizes = SizeChecks(
            codes, self.profiles, self.guards, self.narrowed, self.pinned_profile
        )
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
                value = tensor_check(node, memory.get(name))
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
                    self._reads_strides and memory_of(leaf),
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

    def takes(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Returns whether the inputs may have such shapes: one for each input that is a tensor."""
        tensors = [wanted for _, wanted in self.inputs if isinstance(wanted, TensorCheck)]
        sizes = CallSizes(self._sizes)
        try:
            for wanted, shape in zip(tensors, shapes, strict=True):
                sizes.add(wanted, shape)
            sizes.check_together()
        except InputError:
            return False
        return True

    def lines(self) -> Iterator[str]:
        """Yields for each input its name, with its dtype and the sizes that it may have, or its only value."""
        for name, wanted in self.inputs:
            if not isinstance(wanted, TensorCheck):
                yield f"{name}: always {wanted!r}"
                continue
            sizes = [self._text_of(dimension) for dimension in wanted.dimensions]
            if wanted.is_number:
                yield f"{name}: int {sizes[0]}"
            else:
                yield f"{name}: {dtype_name(wanted.dtype)} [{', '.join(sizes)}]"

    def _text_of(self, dimension: Dimension) -> str:
        """Returns a fixed size, the range of a dynamic size, or the expression of a size that depends on several."""
        size, linear = dimension.size, dimension.linear
        if linear is None:
            return str(size) if isinstance(size, int) else self.as_code(size)
        ranges = (linear.sizes(profile[linear.symbol]) for profile in self.profiles)
        return " or ".join(dict.fromkeys(map(str, ranges)))

    def as_code(self, expression: Any) -> str:
        """Returns an expression of the symbols as the model's code could write it: ``x.shape[1] // 2 == 4``."""
        return self._sizes.as_code(expression)

    def _check(self, leaves: Sequence[Any]) -> None:
        """Checks each input by itself, and then the conditions that involve several sizes."""
        sizes = CallSizes(self._sizes)
        for (name, wanted), leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(wanted, TensorCheck):
                wanted.check(leaf)
                sizes.add(wanted, leaf.shape)
            # Of numbers, this distinguishes -0.0 from 0.0, and accepts NaN for NaN.
            elif type(leaf) is not type(wanted) or repr(leaf) != repr(wanted):
                raise misfit(f"Input {name!r}", f"is {leaf!r}", repr(wanted))
        sizes.check_together()


def tensor_check(placeholder: Node, memory: InputMemory | None = None) -> TensorCheck:
    """Returns the requirements on an input that is a tensor in the program.

    Args:
        placeholder: The input.
        memory: Its required memory, if any.
    """
    value: torch.Tensor = placeholder.meta["val"]
    sizes = tuple(size if isinstance(size, int) else size.node.expr for size in value.shape)
    name, number = str(placeholder.target), is_number(placeholder)
    return TensorCheck(name, value.dtype, value.layout, sizes, memory, number)
