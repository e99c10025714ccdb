"""A tensor argument of a case, in words: its sizes, which may vary, its dtype and its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

Sizes = tuple[int, int, int]
"""The minimum, usual and maximum size of a dynamic dimension."""

DIMENSIONS: Mapping[str, Sizes] = {"batch": (1, 3, 5), "length": (3, 5, 8)}
"""The dynamic dimensions in every case. A case may add its own."""

MINIMUM, USUAL, MAXIMUM = range(3)
"""Which sizes a tensor is made with."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument: an input of the model that a case compiles.

    Attributes:
        shape: The sizes, separated by spaces: numbers, and names of dynamic dimensions, as
            ``"batch length 4"``. ``""`` is a tensor without dimensions.
        dtype: The dtype; that of the case if omitted.
        low: The minimum of random values.
        high: The maximum of random values; it does occur for integers.
        values: The values themselves, as nested lists or a tensor, in place of random ones. The
            shape is then theirs and fixed.
    """

    shape: str = ""
    dtype: torch.dtype | None = None
    low: float = -3.0
    high: float = 3.0
    values: Any = None

    def make(
        self, dtype: torch.dtype, dimensions: Mapping[str, Sizes], point: int, seed: int
    ) -> torch.Tensor:
        """Returns the tensor.

        Args:
            dtype: The dtype, if the argument has none of its own.
            dimensions: The sizes of the dynamic dimensions.
            point: Which of them: ``MINIMUM``, ``USUAL`` or ``MAXIMUM``.
            seed: What random values follow from.
        """
        dtype = self.dtype or dtype
        if isinstance(self.values, torch.Tensor):
            return self.values.detach().clone()
        if self.values is not None:
            return torch.tensor(self.values, dtype=dtype)
        sizes = [
            dimensions[part][point] if part in dimensions else int(part)
            for part in self.shape.split()
        ]
        generator = torch.Generator().manual_seed(seed)
        if dtype is torch.bool:
            return torch.randint(0, 2, sizes, generator=generator).bool()
        if dtype.is_floating_point or dtype.is_complex:
            parts = [*sizes, 2] if dtype.is_complex else sizes
            uniform = torch.rand(parts, generator=generator, dtype=torch.float32)
            numbers = self.low + (self.high - self.low) * uniform
            return (torch.view_as_complex(numbers) if dtype.is_complex else numbers).to(dtype)
        return torch.randint(
            int(self.low), int(self.high) + 1, sizes, generator=generator, dtype=dtype
        )

    def varying(self, dimensions: Mapping[str, Sizes]) -> dict[int, str]:
        """Returns the places of the dynamic dimensions, and their names."""
        parts = self.shape.split() if self.values is None else []
        return {index: part for index, part in enumerate(parts) if part in dimensions}


def is_shape(text: str, dimensions: Mapping[str, Sizes]) -> bool:
    """Returns whether a string is a shape: nothing but numbers and names of dimensions."""
    return all(part in dimensions or part.isdecimal() for part in text.split())
