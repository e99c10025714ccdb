"""Scales of adapters, which can change like weights.

A program exported with them as buffers takes other scales by a refit.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from torchtrt_follow.libraries import scales_of


def scale_name(adapter: str) -> str:
    """Returns the name of the buffer that stands for the scale of an adapter."""
    return "torchtrt_scale_" + re.sub(r"\W", lambda match: f"_{ord(match[0])}_", adapter)


def as_tensor(scale: float) -> torch.Tensor:
    """Returns the tensor that stands for a scale."""
    return torch.tensor(float(scale))


def replace_scales(model: torch.nn.Module) -> None:
    """Makes scales buffers, in a model that is only exported."""
    for module in list(model.modules()):
        scales = scales_of(module)
        if scales:
            for adapter, value in scales.items():
                module.register_buffer(scale_name(adapter), as_tensor(value), persistent=False)
            vars(module)["scaling"] = _Scales(module, scales)


class _Scales(dict[str, Any]):
    """The scales of a layer's adapters, as copies of its buffers.

    Args:
        module: The layer.
        scales: The scales as numbers.
    """

    def __init__(self, module: torch.nn.Module, scales: dict[str, Any]) -> None:
        super().__init__(scales)
        self._module = module
        self._assigned: dict[str, Any] = {}

    def __getitem__(self, adapter: str) -> Any:
        if adapter in self._assigned:
            return self._assigned[adapter]
        # Code may multiply the result in place.
        return getattr(self._module, scale_name(adapter)).clone()

    def __setitem__(self, adapter: str, value: Any) -> None:
        self._assigned[adapter] = value
