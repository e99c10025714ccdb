"""The sizes that depend on data: an engine can take a tensor with such a size if the program bounds it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion.inputs import InputProfile, SizeRange
from torchtrt.graphs.symbols import sizes_from_data
from torchtrt.tensorrt.shims import INT32_RANGE
from torchtrt.torch_internals import pytree
from torchtrt_runtime.size_ranges import Profile, profile_input, size_bounds


def has_unbounded_size(node: Node) -> bool:
    """Returns whether a tensor of a node has a size that depends on data and has no maximum.

    The maximum is that of the program: of a ``torch._check``, of an op's own fake kernel, or of what a mask can choose.
    A tensor that would have more elements than TensorRT takes has none.
    """
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return not all(_is_bounded(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def profile_of_input(name: str, value: torch.Tensor, profiles: Sequence[Profile]) -> InputProfile:
    """Returns the profile of an engine's input, whose sizes may depend on data. Those are the same in each profile.

    Args:
        name: The input's name.
        value: Its fake tensor. Its sizes that depend on data have a maximum.
        profiles: The range of each symbol of the model's inputs.
    """
    if not (ranges := _ranges(value)):
        return profile_input(name, value, profiles)
    profile = profile_input(name, value, [{**ranges, **profile} for profile in profiles])
    # PyTorch has n - 1 for the size of what follows the first of n rows, also of none.
    shapes = (
        tuple(SizeRange(max(low, 0), max(opt, 0), max(high, 0)) for low, opt, high in sizes)
        for sizes in profile.profiles
    )
    return dataclasses.replace(profile, profiles=tuple(shapes))


def _ranges(tensor: torch.Tensor) -> dict[Any, SizeRange]:
    """Returns the range of each symbol in a tensor's sizes that depends on data and has a maximum."""
    ranges = {}
    sizes: list[Any] = [size for size in tensor.shape if not isinstance(size, int)]
    for symbol in sizes_from_data(tensor):
        bounds = sizes[0].node.shape_env.var_to_range[symbol]
        if bounds.upper.is_Integer and bounds.upper <= INT32_RANGE[1]:
            low = max(int(bounds.lower), 0) if bounds.lower.is_Integer else 0
            ranges[symbol] = SizeRange(low, int(bounds.upper), int(bounds.upper))
    return ranges


def _is_bounded(tensor: torch.Tensor) -> bool:
    """Returns whether all sizes of a tensor that depend on data have a maximum, and few elements result from them."""
    symbols = sizes_from_data(tensor)
    if not symbols:
        return True
    ranges = _ranges(tensor)
    if ranges.keys() < symbols:
        return False
    shape: tuple[Any, ...] = tuple(tensor.shape)
    own = [
        size for size in shape if isinstance(size, int) or size.node.expr.free_symbols <= symbols
    ]
    most = math.prod(size_bounds(size, ranges).max for size in own)
    return most <= INT32_RANGE[1]
