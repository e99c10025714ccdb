"""The watchers of a compilation, so that the weights of its engines can be replaced: here ones that do nothing.

``torchtrt_compiler.refit`` has what records.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.fx import GraphModule

from torchtrt.conversion.recording import WeightRecorder
from torchtrt_runtime.weights.model_weights import ModelWeights
from torchtrt_runtime.weights.recipe import Recipe


class BlockWatcher(WeightRecorder):
    """Watches the conversion of one block; by itself nothing, so that the engine's weights stay what they are."""

    def recipe(self) -> Recipe | None:
        """Returns how the engine's weights follow from the block's attributes; None if they cannot be replaced."""
        return None

    def followed(self) -> Mapping[str, torch.Tensor]:
        """Returns the block's attributes that follow from the model's weights, by name."""
        return {}


class ProgramWatcher:
    """Watches the lowering of a program; by itself nothing, where weights are immutable."""

    def recording(self) -> AbstractContextManager[None]:
        """Records what is computed from weights in a ``with`` block."""
        return nullcontext()

    def paused(self) -> AbstractContextManager[None]:
        """Records nothing of what happens in a ``with`` block, although it is inside one of ``recording``."""
        return nullcontext()

    def moved(self, memory: Mapping[int, torch.Tensor], /) -> AbstractContextManager[None]:
        """Maps memory to other memory in a ``with`` block: each storage to a tensor over the one with its values."""
        del memory
        return nullcontext()

    def keep_equal(self, weights: Mapping[str, torch.Tensor], /) -> None:
        """Notes weights that have to be equal in all processes, whatever their values."""

    def block(self, block: GraphModule, /) -> BlockWatcher:
        """Returns what watches the conversion of a block."""
        del block
        return BlockWatcher()

    def weights(self, graph_module: GraphModule, /) -> ModelWeights | None:
        """Returns the model's weights, and how the attributes of the lowered graph follow from them."""
        del graph_module
        return None
