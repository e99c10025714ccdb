"""The recorder of how an engine's weights follow from the model's, so that they can be replaced."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch


class WeightRecorder:
    """Watches the conversion of one block; by itself nothing, so that the engine's weights stay what they are."""

    def recording(self) -> AbstractContextManager[None]:
        """Records what is computed from weights in a ``with`` block."""
        return nullcontext()

    def paused(self) -> AbstractContextManager[None]:
        """Does not record what is computed in a ``with`` block."""
        return nullcontext()

    def name_weights(self, tensor: torch.Tensor, set_name: Callable[[str], bool], /) -> None:
        """Calls ``set_name`` with a name for the weights with these values, if they can be replaced."""
