"""The sizes of several calls, and the ranges to compile for.

The first call is compiled for its sizes, and others widen a range. The ends of such a range are powers of 2, so that
the number of compilations grows with the logarithm of the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchtrt_compiler.inputs import Input

Shapes = Sequence[Sequence[int]]
Bounds = Mapping[int, tuple[int, int, int]]
"""For dimensions of a tensor that vary: the minimum, optimal and maximum size."""


class SeenSizes:
    """The sizes of the tensors in the calls of one kind."""

    def __init__(self) -> None:
        self._least: list[list[int]] = []
        self._most: list[list[int]] = []
        self._fixed: list[frozenset[tuple[int, int]]] = []

    def add(self, shapes: Shapes) -> None:
        """Adds the shapes of a call."""
        if not self._least:
            self._least, self._most = ([list(shape) for shape in shapes] for _ in range(2))
        for shape, least, most in zip(shapes, self._least, self._most, strict=True):
            least[:] = map(min, least, shape)
            most[:] = map(max, most, shape)

    def varying(self) -> frozenset[tuple[int, int]]:
        """Returns the sizes that varied so far: the number of the tensor and the dimension."""
        return frozenset(
            (number, dim)
            for number, (least, most) in enumerate(zip(self._least, self._most, strict=True))
            for dim in range(len(least))
            if least[dim] != most[dim]
        )

    def fix(self) -> None:
        """Notes that the sizes that varied so far cannot vary in one program."""
        self._fixed.append(self.varying())

    def bounds(self, shapes: Shapes, declared: Sequence[Bounds]) -> list[Bounds]:
        """Returns the sizes to compile for, for each tensor of a call.

        Args:
            shapes: The shapes of the call.
            declared: The sizes that the user declared to vary.
        """
        varying = self.varying()
        if varying in self._fixed:
            varying = frozenset()
        bounds: list[Bounds] = []
        for number, (shape, ranges) in enumerate(zip(shapes, declared, strict=True)):
            dims = {}
            for dim, size in enumerate(shape):
                if dim in ranges and ranges[dim][0] <= size <= ranges[dim][2]:
                    dims[dim] = ranges[dim]
                elif (number, dim) in varying:
                    least, most = self._least[number][dim], self._most[number][dim]
                    start = least and 1 << (least.bit_length() - 1)
                    dims[dim] = (start, size, 1 << (most - 1).bit_length())
            bounds.append(dims)
        return bounds


def end_shapes(shapes: Shapes, bounds: Sequence[Bounds], end: int) -> list[tuple[int, ...]]:
    """Returns the least, optimal or greatest shape of each tensor: 0, 1 or 2."""
    return [
        tuple(dims[dim][end] if dim in dims else size for dim, size in enumerate(shape))
        for shape, dims in zip(shapes, bounds, strict=True)
    ]


def as_input(tensor: torch.Tensor, bounds: Bounds) -> Any:
    """Returns what a model is compiled with for a tensor of a call."""
    if all(least == most for least, _, most in bounds.values()):
        return tensor
    least, usual, most = (end_shapes([tensor.shape], [bounds], end)[0] for end in range(3))
    return Input(
        min_shape=least, opt_shape=usual, max_shape=most, dtype=tensor.dtype, device=tensor.device
    )
