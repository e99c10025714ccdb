"""Weights of a graph of ``torch.compile`` as its engines hold them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from torchtrt_runtime.weights.marks import WatchedWeights, layout_of


class HeldWeights:
    """Weights as they are in engines.

    Args:
        tensors: The weights, by their positions among a graph's inputs.
        written: The positions of those that calls write to: others may not be in their place.
    """

    def __init__(self, tensors: Mapping[int, torch.Tensor], written: Collection[int]) -> None:
        self.tensors, self._written = tensors, written
        self._layouts = {index: layout_of(tensors[index]) for index in written}
        self._watched = WatchedWeights(tensors)
        self._watched.allow_writes(written)

    def now(self, inputs: Sequence[Any]) -> HeldWeights:
        """Returns the weights as they are among inputs."""
        return HeldWeights({index: inputs[index] for index in self.tensors}, self._written)

    def are(self, inputs: Sequence[Any]) -> bool:
        """Returns whether weights among inputs are these, with the values that they had."""
        return (
            all(inputs[index] is tensor for index, tensor in self.tensors.items())
            and not self._watched.have_changed()
        )

    def changed(self, inputs: Sequence[Any]) -> list[int]:
        """Returns the positions of the weights that may have changed.

        Those that no call writes to are all among them: PyTorch does not count what eager batch normalization writes
        to its statistics.
        """
        return [
            index
            for index, tensor in self.tensors.items()
            if index not in self._written
            or inputs[index] is not tensor
            or layout_of(inputs[index]) != self._layouts[index]
        ]
