"""Dynamic sizes of calls: those that the user declared, and those that differed between calls.

The first call is compiled for its sizes, and others widen a range. The ends of such a range are powers of 2, so that
the number of compilations grows with the logarithm of the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from numbers import Integral
from typing import Any

import torch

from torchtrt.errors import InputError, kind_of
from torchtrt.torch_internals import pytree
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
                    dims[dim] = (1 << (least.bit_length() - 1), size, 1 << (most - 1).bit_length())
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


def declared_bounds(value: Any, declared: Any, where: str) -> Iterator[Bounds]:
    """Yields for each tensor of an argument the sizes that were declared to vary.

    Args:
        value: The argument: a tensor, a container, or anything else.
        declared: The declaration for it. Declarations of containers nest as these do.
        where: The name of the argument, with the way into its containers.

    Raises:
        InputError: The declaration does not fit.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    if declared is None:
        yield from ({} for _ in tensors)
    elif isinstance(value, torch.Tensor):
        yield _tensor_bounds(value, declared, where)
    elif isinstance(value, Mapping) and isinstance(declared, Mapping):
        for name, part in value.items():
            yield from declared_bounds(part, declared.get(name), f"{where}[{name!r}]")
    elif isinstance(value, list | tuple) and isinstance(declared, list | tuple):
        for number, (part, own) in enumerate(zip_longest(value, declared[: len(value)])):
            yield from declared_bounds(part, own, f"{where}[{number}]")
    elif tensors:
        raise InputError(
            f"dynamic_shapes gives {kind_of(declared)} for {where!r}, which is {kind_of(value)}."
        )


def _tensor_bounds(tensor: torch.Tensor, declared: Any, where: str) -> Bounds:
    """Returns the sizes of a tensor that were declared to vary, by dimension."""
    rank = tensor.dim()
    if isinstance(declared, Input):
        if len(declared.bounds[0]) != rank:
            raise InputError(
                f"dynamic_shapes gives {len(declared.bounds[0])} dimensions for {where!r}, which has {rank}."
            )
        ranges = enumerate(zip(*declared.bounds, strict=True))
        return {dim: sizes for dim, sizes in ranges if sizes[0] != sizes[2]}
    dims = list(declared.items() if isinstance(declared, Mapping) else enumerate(declared))
    for dim, _ in dims:
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise InputError(
                f"dynamic_shapes names dimension {dim!r} of {where!r}, which has {rank} dimensions."
            )
    return {dim % rank: _range(sizes, where) for dim, sizes in dims if sizes is not None}


def _range(declared: Any, where: str) -> tuple[int, int, int]:
    """Returns the minimum, optimal and maximum size in a declaration."""
    sizes = declared
    if not isinstance(declared, tuple | list):  # a torch.export.Dim
        sizes = getattr(declared, "min", None), getattr(declared, "max", None)
    if len(sizes) not in (2, 3) or not all(isinstance(size, Integral) for size in sizes):
        raise InputError(
            f"dynamic_shapes gives {declared!r} for a dimension of {where!r}. Give (min, max), (min, opt, max), or "
            "torch.export.Dim(name, min=, max=)."
        )
    least, *usual, most = map(int, sizes)
    if not 0 <= least <= (usual or [most])[0] <= most:
        raise InputError(f"dynamic_shapes gives {declared!r} for {where!r}, which is no range.")
    return least, (usual or [most])[0], most
