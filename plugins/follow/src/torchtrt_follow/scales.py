"""Scales of adapters, which can change like weights.

A program exported with them as tensors takes other scales by a refit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torchtrt_follow.libraries import scales_of


class Scale(NamedTuple):
    """A scale at one moment.

    Attributes:
        name: The name of its tensor.
        holder: The dictionary that has it.
        key: Its key.
        value: Its value.
    """

    name: str
    holder: dict[str, Any]
    key: str
    value: float

    def has_changed(self) -> bool:
        """Returns whether it has another value now."""
        return bool(self.holder.get(self.key) != self.value)


def named_scales(model: torch.nn.Module) -> Iterator[Scale]:
    """Yields the scales of a model's adapters."""
    for path, module in model.named_modules(remove_duplicate=False):
        scales = scales_of(module) or {}
        for adapter, value in scales.items():
            yield Scale(f"{path}.{_buffer_name(adapter)}".lstrip("."), scales, adapter, value)


def as_tensor(scale: float) -> torch.Tensor:
    """Returns the tensor that stands for a scale."""
    return torch.tensor(float(scale))


def replace_scales(model: torch.nn.Module) -> None:
    """Makes scales buffers, in a model that is only exported."""
    for module in list(model.modules()):
        scales = scales_of(module)
        if scales:
            for adapter, value in scales.items():
                name = _buffer_name(adapter)
                module.register_buffer(name, as_tensor(value), persistent=False)
            vars(module)["scaling"] = Scales(module, scales)


class Scales(dict[str, Any]):
    """The scales of a layer's adapters, as copies of its buffers.

    Args:
        module: The layer.
        scales: What they were as numbers.
    """

    def __init__(self, module: torch.nn.Module, scales: dict[str, Any]) -> None:
        super().__init__(scales)
        self._module = module
        self._assigned: dict[str, Any] = {}

    def __getitem__(self, adapter: str) -> Any:
        if adapter in self._assigned:
            return self._assigned[adapter]
        # Code may multiply what it gets in place.
        return getattr(self._module, _buffer_name(adapter)).clone()

    def __setitem__(self, adapter: str, value: Any) -> None:
        self._assigned[adapter] = value


def _buffer_name(adapter: str) -> str:
    return "torchtrt_scale_" + re.sub(r"\W", lambda match: f"_{ord(match[0])}_", adapter)
