"""The requirements on an input tensor: its dtype, layout, rank and memory, whatever its sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.errors import InputError, kind_of
from torchtrt_runtime.checks.dimensions import Dimension
from torchtrt_runtime.processes.groups import is_distributed
from torchtrt_runtime.size_ranges import linear_size
from torchtrt_runtime.torch_internals import tensor_guards

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

    @functools.cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Its dimensions."""
        return tuple(
            Dimension(
                self.name,
                None if self.is_number else dim,
                size,
                None if isinstance(size, int) else linear_size(size),
            )
            for dim, size in enumerate(self.sizes)
        )

    def check(self, leaf: Any) -> None:
        """Checks an input's kind, dtype, layout and rank.

        Raises:
            InputError: One is not as required.
        """
        subject = f"Input {self.name!r}"
        if self.is_number and not isinstance(leaf, torch.Tensor):
            actual = f"is {leaf}" if type(leaf) is int else f"must be an int, not {kind_of(leaf)}"
            raise InputError(f"{subject} {actual}. It is compiled as a size, from 0 to 2**63 - 1.")
        if not isinstance(leaf, torch.Tensor):
            actual = "and is missing" if leaf is None else f"not {kind_of(leaf)}"
            raise InputError(f"{subject} must be a tensor, {actual}.")
        check_strided(leaf)
        if type(leaf) not in _PLAIN:
            advice = "A compiled model is not exported again: torchtrt.save makes an exported program of it."
            if is_distributed(leaf):
                advice = "Give the part of this process, to_local() of it, as the model got it when it was compiled."
            raise InputError(
                f"Engines run on plain strided tensors, and {self.name!r} is {kind_of(leaf)}. {advice}"
            )
        if self.is_number and tuple(leaf.shape[1:]) != (0,):
            raise InputError(f"{subject} must be an int, not a tensor.")
        if leaf.dtype is not self.dtype:
            advice = f"Convert it with .to({self.dtype}), or compile for {leaf.dtype}."
            raise misfit(subject, f"is {leaf.dtype}", self.dtype, advice)
        if leaf.layout is not self.layout:
            raise misfit(subject, f"is {leaf.layout}", self.layout)
        if leaf.dim() != len(self.sizes):
            has = f"has {leaf.dim()} dimension{'s' if leaf.dim() != 1 else ''}"
            raise misfit(subject, has, len(self.sizes), "Their number is fixed.")
        if self.memory is not None and not self.memory.fits(leaf):
            strides, offset = memory_of(leaf)
            raise InputError(
                f"{subject} has the strides {strides} and the storage offset {offset}. The model reads memory by "
                "strides (an op such as as_strided, Python code such as x.is_contiguous(), or a write through "
                f"x.reshape(-1)), and was compiled for an input that is {self.memory}. Copy the input into such "
                "memory, or compile with one like it."
            )


def memory_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], int]:
    """Returns the strides and the storage offset of a tensor."""
    return tensor.stride(), int(tensor.storage_offset())


def misfit(subject: str, is_: object, compiled: object, advice: str = "") -> InputError:
    """Returns the error for something that is not as it was compiled."""
    what = f"{subject} {is_}, but the model was compiled for {compiled}. {advice}"
    return InputError(what.rstrip())
