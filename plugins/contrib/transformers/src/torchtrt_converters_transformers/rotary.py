"""Rotary embeddings whose frequencies change with the length of the text, up to where they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from torchtrt_converters_transformers.refusals import Refusal

_CHANGING = ("dynamic", "longrope")
"""The types whose frequencies change with the length."""


def changing_rotary(config: Any) -> Iterator[tuple[str, int]]:
    """Yields the types of rotary embeddings that change with the length, and up to how many tokens they do not.

    Args:
        config: The configuration of a language model.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    positions: int = getattr(config, "max_position_embeddings", None) or 0
    for rope in (parameters, *parameters.values()):  # layers of different types may have one each
        kind = rope.get("rope_type") if isinstance(rope, Mapping) else None
        if kind == "longrope":
            yield kind, rope.get("original_max_position_embeddings") or positions
        elif kind == "dynamic":
            yield kind, positions


def fix_rotary(model: nn.Module) -> None:
    """Gives the rotary embeddings of a model the frequencies of short texts, whatever the length.

    Their code reads the length in each call, and keeps the frequencies of the last one.

    Args:
        model: A copy, whose buffers belong to the original too: they are replaced.

    Raises:
        Refusal: A rotary embedding does not have these frequencies.
    """
    for part in model.modules():
        module: Any = part
        types = getattr(module, "rope_type", None)
        by_layer = types if isinstance(types, Mapping) else {"": types}
        changing = [layer for layer, kind in by_layer.items() if kind in _CHANGING]
        for layer in changing:
            name = f"{layer}_inv_freq" if layer else "inv_freq"
            short = getattr(
                module, f"{layer}_original_inv_freq" if layer else "original_inv_freq", None
            )
            current = getattr(module, name, None)
            if current is None or short is None:
                raise Refusal(f"its {by_layer[layer]} rotary embedding changes with the length")
            module.register_buffer(name, torch.empty_like(current).copy_(short), persistent=False)
        if changing:
            fixed = {**by_layer, **dict.fromkeys(changing, "default")}
            module.rope_type = fixed if isinstance(types, Mapping) else fixed[""]
