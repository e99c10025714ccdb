"""The inputs of a network: their dtypes, and the sizes that an engine is built for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch


class SizeRange(NamedTuple):
    """The sizes an engine is built for along one dimension, or one symbol: ``min <= opt <= max``."""

    min: int
    opt: int
    max: int

    def __str__(self) -> str:
        return f"{self.min} to {self.max}" if self.min < self.max else str(self.min)

    def contains(self, size: int) -> bool:
        """Returns whether a size lies in the range."""
        return self.min <= size <= self.max

    def intersect(self, other: SizeRange) -> SizeRange:
        """Returns the sizes that are in both, with the other's optimum where it is the narrower."""
        low, high = max(self.min, other.min), min(self.max, other.max)
        optimum = self.opt if (low, high) == (self.min, self.max) else other.opt
        return SizeRange(low, min(max(optimum, low), high), high)


Ranges = tuple[SizeRange, ...]
"""The sizes of each dimension of a tensor."""


@dataclass(frozen=True)
class InputProfile:
    """The sizes of one engine input.

    Attributes:
        name: The input's name in the engine.
        dtype: Its PyTorch dtype outside the engine.
        shape: Its shape, with -1 where the size varies.
        profiles: The sizes of each dimension, in each profile.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    profiles: tuple[Ranges, ...]


def engine_profiles(inputs: Sequence[InputProfile]) -> tuple[tuple[Ranges, ...], ...]:
    """Returns an engine's optimization profiles: for each the sizes of all inputs. Equal ones are one.

    An engine without inputs has one profile, which is empty.
    """
    in_order = zip(*(input_.profiles for input_ in inputs), strict=True)
    distinct = tuple(dict.fromkeys(in_order))
    return distinct or ((),)
