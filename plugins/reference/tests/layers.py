"""What the tests of layers share."""

from __future__ import annotations

from typing import Any

import torch

NEWER = ["10.16.1", "11.4.0"]


def rand(*shape: int) -> torch.Tensor:
    """Reproducible random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def only(layer: Any) -> Any:
    """The first output of a layer."""
    return layer.get_output(0)
