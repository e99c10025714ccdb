"""The protocol of what watches a compilation, so that the weights of its engines can be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch.fx import GraphModule

from torchtrt.conversion.recording import NoRecorder, WeightRecorder
from torchtrt_runtime.weights.model_weights import ModelWeights
from torchtrt_runtime.weights.recipe import Recipe


class BlockWatcher(WeightRecorder, Protocol):
    """Watches the conversion of one block."""

    def recipe(self) -> Recipe | None:
        """Returns how the engine's weights follow from the block's attributes."""
        ...

    def followed(self) -> Mapping[str, torch.Tensor]:
        """Returns the block's attributes that follow from the model's weights, by name."""
        ...


class ProgramWatcher(Protocol):
    """Watches the lowering of a program."""

    def recording(self) -> AbstractContextManager[None]:
        """Records what is computed from weights in a ``with`` block."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Records nothing of what happens in a ``with`` block, although it is inside one of ``recording``."""
        ...

    def moved(self, memory: Mapping[int, torch.Tensor], /) -> AbstractContextManager[None]:
        """Maps memory to other memory in a ``with`` block: each storage to a tensor over the one with its values."""
        ...

    def keep_equal(self, weights: Mapping[str, torch.Tensor], /) -> None:
        """Notes weights that have to be equal in all processes, whatever their values."""
        ...

    def block(self, block: GraphModule, /) -> BlockWatcher:
        """Returns what watches the conversion of a block."""
        ...

    def weights(self, graph_module: GraphModule, /) -> ModelWeights | None:
        """Returns the model's weights, and how the attributes of the lowered graph follow from them."""
        ...


class UnwatchedBlock(NoRecorder):
    """Watches nothing: the engine's weights stay what they are."""

    def recipe(self) -> None:
        """Returns ``None``: the engine's weights cannot be replaced."""

    def followed(self) -> Mapping[str, torch.Tensor]:
        """Returns nothing: no weight can be replaced."""
        return {}


class UnwatchedProgram:
    """Watches nothing, where weights are immutable."""

    def recording(self) -> AbstractContextManager[None]:
        """Returns a context that does nothing."""
        return nullcontext()

    def paused(self) -> AbstractContextManager[None]:
        """Returns a context that does nothing."""
        return nullcontext()

    def moved(self, memory: Mapping[int, torch.Tensor]) -> AbstractContextManager[None]:
        """Returns a context that does nothing."""
        del memory
        return nullcontext()

    def keep_equal(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Does nothing: the weights stay what they are."""

    def block(self, block: GraphModule) -> UnwatchedBlock:
        """Returns what watches no block."""
        del block
        return UnwatchedBlock()

    def weights(self, graph_module: GraphModule) -> None:
        """Returns ``None``: no weight can be replaced."""
