"""Numbers of a model that can change like weights: the scales of PEFT's adapters.

A program exported with them as tensors takes other scales by a refit.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch


def numbers_of(module: torch.nn.Module) -> dict[str, Any] | None:
    """Returns the scale of each adapter of a module, by the adapter's name; None for any other module.

    PEFT's layers multiply with ``scaling[adapter]``, a float.
    """
    layers = sys.modules.get("peft.tuners.tuners_utils")
    if layers is None or not isinstance(module, layers.BaseTunerLayer):
        return None
    scales = vars(module).get("scaling")
    if type(scales) is not dict or not all(type(each) in (int, float) for each in scales.values()):
        return None
    return scales


def named_numbers(model: torch.nn.Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields each number that can change: the name of its tensor, and where it is."""
    for path, module in model.named_modules(remove_duplicate=False):
        scales = numbers_of(module)
        for adapter in scales or ():
            name = _buffer_name(adapter)
            yield (f"{path}.{name}" if path else name), scales, adapter  # type: ignore[misc]


def merged_adapters(model: torch.nn.Module) -> list[tuple[str, ...]]:
    """Returns the adapters that are merged into each layer that has any. PEFT merges them through ``.data``."""
    layers = sys.modules.get("peft.tuners.tuners_utils")
    if layers is None:
        return []
    merged = (
        tuple(vars(module).get("merged_adapters", ()))
        for module in model.modules()
        if isinstance(module, layers.BaseTunerLayer)
    )
    return [each for each in merged if each]


_hotswaps = 0


def hotswaps() -> int:
    """Returns how often PEFT has written other weights into a loaded adapter, which it does through ``.data``.

    PEFT keeps no record of it. From the first call of this function on, PEFT's function counts its calls.
    """
    swapping: Any = sys.modules.get("peft.utils.hotswap")
    if swapping is not None and not hasattr(swapping.hotswap_adapter_from_state_dict, _COUNTED):
        swap = swapping.hotswap_adapter_from_state_dict

        @functools.wraps(swap)
        def counted(*args: Any, **kwargs: Any) -> Any:
            global _hotswaps
            try:
                return swap(*args, **kwargs)
            finally:
                _hotswaps += 1

        setattr(counted, _COUNTED, True)
        swapping.hotswap_adapter_from_state_dict = counted
    return _hotswaps


_COUNTED = "torchtrt_counts"


def as_tensor(number: float) -> torch.Tensor:
    """Returns the tensor that stands for a number."""
    return torch.tensor(float(number))


def replace_numbers(model: torch.nn.Module) -> None:
    """Makes numbers that can change buffers, in a model that is only exported."""
    for module in list(model.modules()):
        scales = numbers_of(module)
        if scales:
            for adapter, number in scales.items():
                name = _buffer_name(adapter)
                module.register_buffer(name, as_tensor(number), persistent=False)
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
