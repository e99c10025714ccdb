"""Dynamic sizes of calls that the user declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from numbers import Integral
from typing import Any

import torch

from torchtrt.errors import InputError, kind_of
from torchtrt.torch_internals import pytree
from torchtrt_compiler.inputs import Input
from torchtrt_compiler.seen_sizes import Bounds


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
