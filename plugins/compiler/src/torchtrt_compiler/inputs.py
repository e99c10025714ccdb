"""The inputs that a model is compiled for: example tensors, or ranges of shapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

import torch

from torchtrt.errors import InputError
from torchtrt.torch_internals import pytree


@dataclass(frozen=True)
class Input:
    """The shapes and dtype of one input tensor.

    Give ``shape`` for a fixed shape, or ``min_shape``, ``opt_shape`` and ``max_shape`` for dynamic sizes.
    For dynamic sizes in several ranges, give ``ranges``: each is a minimum, an optimal and a maximum shape.
    Engines accept every size from min to max and are fastest at opt.

    Attributes:
        shape: The fixed shape.
        min_shape: The minimum sizes, of all ranges.
        opt_shape: The sizes to optimize for; min_shape <= opt_shape <= max_shape. Of the first range.
        max_shape: The maximum sizes, of all ranges.
        dtype: The tensor's dtype.
        device: The device of the example tensor that the model is exported with; default: the model's.
        ranges: For each range the minimum, optimal and maximum shape.
    """

    shape: Sequence[int] | None = None
    min_shape: Sequence[int] | None = None
    opt_shape: Sequence[int] | None = None
    max_shape: Sequence[int] | None = None
    dtype: torch.dtype = torch.float32
    device: torch.device | str | None = None
    ranges: Sequence[Sequence[Sequence[int]]] | None = None

    def __post_init__(self) -> None:
        ranges = self._given_ranges()
        if self.ranges is not None:
            object.__setattr__(self, "ranges", ranges)
        minima, optima, maxima = zip(*ranges, strict=True)
        object.__setattr__(self, "min_shape", tuple(map(min, zip(*minima, strict=True))))
        object.__setattr__(self, "opt_shape", optima[0])
        object.__setattr__(self, "max_shape", tuple(map(max, zip(*maxima, strict=True))))
        dtype: object = self.dtype
        if not isinstance(dtype, torch.dtype):
            raise InputError(f"Input has dtype={dtype!r}. Give a torch.dtype: torch.float32.")

    def _given_ranges(self) -> tuple[_Range, ...]:
        """Returns the ranges that the arguments describe, checked: one, unless ``ranges`` has several."""
        shapes: Any = (self.min_shape, self.opt_shape, self.max_shape)
        has_bounds = any(shape is not None for shape in shapes)
        if [has_bounds, self.shape is not None, self.ranges is not None].count(True) > 1:
            message = (
                "Input takes either shape, or min_shape, opt_shape and max_shape, or ranges. Give shapes of dynamic "
                "sizes by name: torchtrt.Input(min_shape=..., opt_shape=..., max_shape=...)."
            )
            raise InputError(message)
        triples: Any = (shapes,)
        if self.shape is not None:
            triples = ((self.shape,) * 3,)
        elif self.ranges is not None:
            triples = self.ranges
        ranges = (
            tuple(_checked(triple) for triple in triples) if isinstance(triples, Sequence) else ()
        )
        if len({len(minimum) for minimum, _, _ in ranges}) != 1:
            raise InputError(f"Input has ranges={self.ranges!r}. Give one or more, of equal rank.")
        return ranges

    @property
    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The minimum shape of all ranges, the optimal one of the first, and the maximum of all."""
        return self.min_shape, self.opt_shape, self.max_shape  # type: ignore[return-value]  # made so

    def in_profile(self, number: int) -> tuple[tuple[int, ...], ...]:
        """Returns the minimum, optimal and maximum shapes of one of the ranges; of the only one for any number."""
        ranges: Any = self.ranges or (self.bounds,)
        return ranges[number % len(ranges)]  # type: ignore[no-any-return]

    def example(self, device: torch.device) -> torch.Tensor:
        """Returns a tensor to export with: of the optimal shape, but at least 2 where the size varies.

        Exporting treats a size of 0 or 1 as a special case of its own, which would narrow the range.

        Raises:
            InputError: PyTorch does not have the device here, or there is no memory for the tensor.
        """
        shape = [
            optimal if minimum == maximum else min(max(optimal, 2), maximum)
            for minimum, optimal, maximum in zip(*self.bounds, strict=True)
        ]
        target = self._device() or device
        try:
            if self.dtype.is_floating_point or self.dtype.is_complex:
                own = torch.Generator(target).manual_seed(0)  # the caller draws as without
                return torch.rand(shape, generator=own, device=target).to(self.dtype)
            return torch.ones(shape, dtype=self.dtype, device=target)
        except RuntimeError as error:  # also of too many elements to count
            raise InputError(
                f"PyTorch could not make the tensor that the model is exported with, {self.dtype} of the optimal shape "
                f"{tuple(shape)} on {target}: {str(error).splitlines()[0]}. Give an opt_shape that fits in memory, and "
                "a dtype that PyTorch has there."
            ) from error

    def _device(self) -> torch.device | None:
        """Returns the device that was asked for.

        Raises:
            InputError: PyTorch does not have it here.
        """
        if self.device is None:
            return None
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f"Input has device={self.device!r}, which PyTorch {torch.__version__} does not have here: {reason}. "
                "Leave it out for the device of the model."
            ) from error
        return device

    @property
    def may_be_empty(self) -> bool:
        """True if a size may be 0."""
        return 0 in self.bounds[0]

    def dynamic_dims(self) -> dict[int, Any]:
        """Returns the ranges for ``torch.export`` of the dynamic sizes.

        To PyTorch, a size of 0 or 1 is never symbolic. A size of at most 2 would be the number 2, so its range ends
        with 3 here. Engines are built for the sizes of this ``Input``, and calls with others are refused.
        """
        minimum, _, maximum = self.bounds
        return {
            dim: torch.export.Dim.AUTO(min=low, max=max(high, 3))
            for dim, (low, high) in enumerate(zip(minimum, maximum, strict=True))
            if low != high
        }


class Number(Input):
    """The values of an input that is a number: an ``int`` from min to max.

    To engines it is the first size of an empty tensor. They accept every value from min to max and are fastest at opt.

    Args:
        min: The minimum, 0 or more.
        opt: The value to optimize for; min <= opt <= max.
        max: The maximum.

    Raises:
        InputError: The values are no integers, negative, or not in this order.
    """

    def __init__(self, min: int, opt: int, max: int) -> None:
        values = (min, opt, max)
        if not all(type(value) is int for value in values) or not 0 <= min <= opt <= max:
            raise InputError(
                f"Number has min={min!r}, opt={opt!r}, max={max!r}. Give integers with 0 <= min <= opt <= max. For a "
                "number that may be negative, pass a tensor."
            )
        super().__init__(min_shape=(min, 0), opt_shape=(opt, 0), max_shape=(max, 0))

    def __repr__(self) -> str:
        return "Number(min={}, opt={}, max={})".format(*(shape[0] for shape in self.bounds))

    @property
    def may_be_empty(self) -> bool:
        """True if the minimum is 0."""
        return self.bounds[0][0] == 0

    def example(self, device: torch.device) -> Any:  # noqa: ARG002  (a number is on none)
        """Returns a number to export with: the optimal one, but at least 2 if it varies."""
        minimum, optimal, maximum = (shape[0] for shape in self.bounds)
        return optimal if minimum == maximum else min(max(optimal, 2), maximum)

    def dynamic_dims(self) -> Any:
        """Returns the range for ``torch.export``; ``None`` if there is one value only."""
        return super().dynamic_dims().get(0)


class CallInputs(NamedTuple):
    """The inputs of a call, as the caller of the compiler gave them.

    Attributes:
        args: The positional inputs.
        kwargs: The keyword inputs.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def tree(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs as pytrees nest them: a tuple and a dictionary."""
        return tuple(self.args), dict(self.kwargs)

    @property
    def leaves(self) -> list[Any]:
        """The inputs, flattened in the order of the graph's placeholders."""
        return pytree.tree_leaves(self.tree, is_leaf=is_input)

    @property
    def may_be_empty(self) -> bool:
        """Whether a size of 0 is declared."""
        return any(is_input(leaf) and leaf.may_be_empty for leaf in self.leaves)


_NAMES = ("min_shape", "opt_shape", "max_shape")
_Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The minimum, optimal and maximum shape of one range."""


def _checked(shapes: Any) -> _Range:
    """Returns the shapes of one range as tuples.

    Raises:
        InputError: They are no three shapes of one rank with ascending sizes.
    """
    if not isinstance(shapes, Sequence) or len(shapes) != 3:
        raise InputError(f"Input has the range {shapes!r}. Give (min, opt, max) shapes.")
    minimum, optimal, maximum = (
        _sizes(shape, name) for shape, name in zip(shapes, _NAMES, strict=True)
    )
    described = f"min_shape={minimum}, opt_shape={optimal}, max_shape={maximum}"
    if not len(minimum) == len(optimal) == len(maximum):
        raise InputError(f"The shapes of an Input must have one rank: {described}.")
    if any(size < 0 for size in (*minimum, *optimal, *maximum)):
        raise InputError(
            f"A size cannot be negative: {described}. For a dynamic size give its minimum, optimum and maximum: "
            "Input(min_shape=(1, 16), opt_shape=(8, 16), max_shape=(32, 16))."
        )
    if not all(
        low <= best <= high for low, best, high in zip(minimum, optimal, maximum, strict=True)
    ):
        raise InputError(
            f"Input shapes must satisfy min <= opt <= max in every dimension: {described}."
        )
    return minimum, optimal, maximum


def _sizes(shape: Any, name: str) -> tuple[int, ...]:
    if shape is None:
        raise InputError("Input needs shape, or all of min_shape, opt_shape and max_shape.")
    try:
        return tuple(map(index, shape))
    except TypeError:
        raise InputError(
            f"Input has {name}={shape!r}. Give a sequence of integers, such as (1, 3, 224, 224)."
        ) from None


def is_input(value: Any) -> bool:
    """Returns whether ``value`` is an ``Input``."""
    return isinstance(value, Input)


def nested_shapes(tree: Any) -> Any:
    """Returns the dynamic sizes of nested inputs as ``torch.export`` takes them: a registered class is a list."""
    if is_input(tree):
        return tree.dynamic_dims()
    parts, spec = pytree.tree_flatten(tree, is_leaf=lambda part: part is not tree)
    if spec.is_leaf():
        return None
    shapes = list(map(nested_shapes, parts))
    is_builtin = isinstance(tree, (tuple, list, dict, deque))
    return pytree.tree_unflatten(shapes, spec) if is_builtin else shapes
