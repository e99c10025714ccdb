"""The facts about a tensor before it exists: type, shape, and sometimes its value.

The same facts serve the network definition (dimensions may be -1), the builder (constants are folded) and the
runtime (every input dimension is known). Values of small tensors are tracked by element. The shape of a ``(-1, 3)``
tensor is a value whose first element is unknown and whose second is 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchtrt_reference import dtypes

TRACKED_VOLUME = 64  # TensorRT's limit for shape tensors


class RefusedError(Exception):
    """A rule of TensorRT is broken; the text states the rule. The code that catches it adds the name of the layer."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a tensor, on the CPU.

    Attributes:
        data: The elements; where unknown, anything.
        mask: Which elements are known, a bool tensor of the same shape; None when all are.
    """

    data: torch.Tensor
    mask: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """The facts about one tensor.

    Attributes:
        dtype: The name of its type, such as ``"FLOAT"``.
        shape: Its dimensions; -1 where unknown.
        value: Its value, where tracked.
    """

    dtype: str
    shape: tuple[int, ...]
    value: Value | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return -1 not in self.shape

    @property
    def volume(self) -> int:
        """The number of elements of a static tensor."""
        return math.prod(self.shape)

    @property
    def constant(self) -> torch.Tensor | None:
        """The value if every element is known."""
        return self.value.data if self.value is not None and self.value.mask is None else None

    def elements(self) -> list[int | None] | None:
        """Returns the elements of a tracked integer tensor in order, None for each unknown one; None if untracked.

        A one-dimensional tensor of static length is always tracked: at worst every element is unknown.
        """
        if self.value is None:
            if self.is_static and self.volume <= TRACKED_VOLUME:
                return [None] * self.volume
            return None
        flat: list[int | None] = [int(item) for item in self.value.data.reshape(-1).tolist()]
        if self.value.mask is not None:
            mask = self.value.mask.reshape(-1).tolist()
            flat = [item if is_known else None for item, is_known in zip(flat, mask, strict=True)]
        return flat


def facts_of(tensor: torch.Tensor, dtype: str, with_value: bool = False) -> TensorFacts:
    """Returns what is known about an existing tensor."""
    value = Value(tensor.cpu()) if with_value else None
    return TensorFacts(dtype, tuple(tensor.shape), value)


def constant_facts(tensor: torch.Tensor, dtype: str | None = None) -> TensorFacts:
    """Returns the facts of a constant, which always carries its value."""
    return TensorFacts(dtype or dtypes.NAMES[tensor.dtype], tuple(tensor.shape), Value(tensor))


def broadcast(shapes: Sequence[tuple[int, ...]], what: str) -> tuple[int, ...]:
    """Returns the broadcast of shapes of equal rank: each dimension equal or 1.

    An unknown dimension next to a known one other than 1 must turn out equal, so the known one is the result.

    Raises:
        RefusedError: The ranks differ, or two dimensions differ and neither is 1.
    """
    if len({len(shape) for shape in shapes}) > 1:
        shown = " and ".join(_shown(shape) for shape in shapes)
        message = (
            f"{what} must have the same rank: there is no implicit rank promotion (dimensions were {shown}). "
            "Unsqueeze the smaller one."
        )
        raise RefusedError(message)
    result = []
    for dimensions in zip(*shapes, strict=True):
        others = {dimension for dimension in dimensions if dimension != 1}
        sizes = others - {-1}
        if len(sizes) > 1:
            shown = " and ".join(_shown(shape) for shape in shapes)
            message = (
                f"{what} must have same dimensions or follow broadcast rules (dimensions were {shown}): "
                "only a dimension of 1 is repeated."
            )
            raise RefusedError(message)
        result.append(sizes.pop() if sizes else -1 if others else 1)
    return tuple(result)


def _shown(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
