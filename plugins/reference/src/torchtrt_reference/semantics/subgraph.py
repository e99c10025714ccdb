"""The interface of a graph inside an operation, whatever graphs are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from torchtrt_reference.semantics.tensor_facts import TensorFacts


class Subgraph(Protocol):
    """A graph inside an operation: what a loop repeats, or one branch of a conditional."""

    def infer(self, input_facts: Sequence[TensorFacts]) -> list[TensorFacts]:
        """Returns the facts of its outputs for inputs with the given facts.

        Raises:
            RefusedError: A rule is broken; the text names the layer.
        """

    def bind(
        self, input_facts: Sequence[TensorFacts], device: torch.device
    ) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """Returns the function that computes its outputs from inputs with the given facts, on a device.

        Raises:
            RefusedError: A rule is broken; the text names the layer.
        """
