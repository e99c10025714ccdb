"""Numbers that vary: callers pass integers, and the graph takes the first sizes of tensors without elements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch


def as_sizes(leaves: Sequence[Any], numbers: Collection[int]) -> Sequence[Any]:
    """Returns a caller's flattened inputs as the graph takes them. A value that is no size stays as it is.

    Args:
        leaves: The inputs.
        numbers: The positions of those that are numbers.
    """
    if not numbers:
        return leaves
    devices = [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]
    device = max(devices, key=lambda device: device.type == "cuda", default=None)
    taken = list(leaves)
    for index in numbers:
        if type(leaves[index]) is int and 0 <= leaves[index] < 2**63:  # sizes are 64 bits
            taken[index] = torch.empty(leaves[index], 0, dtype=torch.float32, device=device)
    return taken


def as_numbers(leaves: Sequence[Any], numbers: Collection[int]) -> list[Any]:
    """Returns inputs of the graph as a caller passes them: the inverse of ``as_sizes``."""
    return [leaf.shape[0] if index in numbers else leaf for index, leaf in enumerate(leaves)]
