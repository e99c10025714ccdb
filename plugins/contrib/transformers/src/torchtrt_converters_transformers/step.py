"""A model as a function of new tokens and of what is cached: what engines are built from."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, Cache, PreTrainedModel

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_transformers.decompositions import (
    attention as attention,  # whose op is called here
)

ATTENTION = "torchtrt_cached"
"""The name of our attention among those of transformers."""

NOT_THROUGH_THE_INTERFACE = "its attention does not go through transformers' AttentionInterface"
"""Why most models that cannot be compiled cannot."""

_UNKNOWN = ("head_mask", "position_bias", "s_aux", "sinks")
"""Further arguments of attention, which ours does not compute."""


class StepCache(Cache):
    """The cache of a model's layers while a step is traced, and the keys and values that they gave it.

    Args:
        mask: Booleans ``(batch, new)``: which new tokens count.
        past: Keys and values in turn, layer by layer; none where nothing is cached.
        past_mask: Booleans ``(batch, cached)``: which places of the cache may be read.
        start: How many places of the cache are in use, ``(1,)``.
        max_length: The most tokens of a sequence: windows of as many are none.

    Attributes:
        states: The new keys and values in turn, layer by layer.
        windows: For each layer the number of last tokens that it reads, or None.
    """

    def __init__(
        self,
        mask: Tensor,
        past: Sequence[Tensor] = (),
        past_mask: Tensor | None = None,
        start: Tensor | None = None,
        max_length: int | None = None,
    ) -> None:
        super().__init__(layers=[])
        self.mask, self.past, self.past_mask, self.start_place = mask, past, past_mask, start
        self._max_length = max_length
        self.states: list[Tensor] = []
        self.windows: list[int | None] = []
        self._masks: dict[int | None, tuple[Tensor, Tensor | None]] = {}
        self._layer: int | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keeps the new keys and values, and returns no more than these."""
        if self._layer is not None:
            raise UnsupportedProgramError(NOT_THROUGH_THE_INTERFACE)
        if 2 * layer_idx != len(self.states):
            raise UnsupportedProgramError("its layers do not fill the cache in turn, each once")
        if key_states.shape != value_states.shape:
            raise UnsupportedProgramError("its keys and values have different widths")
        self.states += [key_states, value_states]
        self._layer = layer_idx
        return key_states, value_states

    def is_complete(self) -> bool:
        """Returns whether there were layers, and attention read what each cached."""
        return bool(self.states) and self._layer is None

    def take_layer(self) -> int:
        """Returns the layer that has filled the cache and not read it yet."""
        if self._layer is None:
            raise UnsupportedProgramError("a layer reads what another one has cached")
        layer, self._layer = self._layer, None
        return layer

    def masks(self, window: int | None) -> tuple[Tensor, Tensor | None]:
        """Returns what new tokens may read of each other and of the cache, for a window of so many tokens."""
        self.windows.append(window)
        if window is not None and self._max_length is not None and window >= self._max_length:
            window = None
        if window not in self._masks:
            self._masks[window] = self._make_masks(window)
        return self._masks[window]

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Returns 0: positions are given."""
        return 0

    @property
    def is_compileable(self) -> bool:
        """False."""
        return False

    def _make_masks(self, window: int | None) -> tuple[Tensor, Tensor | None]:
        place = torch.arange(self.mask.shape[1], device=self.mask.device)
        row, column = place[:, None], place[None, :]
        allowed = column <= row
        if window is not None:
            allowed = allowed & (column > row - window)
        # A token that does not count reads itself, so that what comes of it is finite.
        own = ((allowed & self.mask[:, None, :]) | (column == row))[:, None]
        if self.past_mask is None:
            return own, None
        past = self.past_mask[:, None, None, :]
        if window is not None:
            assert self.start_place is not None
            cached = torch.arange(self.past_mask.shape[1], device=self.mask.device)
            past = past & (cached[None, :] > self.start_place + row - window)
        return own, past


_current: ContextVar[StepCache | None] = ContextVar("step", default=None)


@contextlib.contextmanager
def _reading(cache: StepCache) -> Iterator[None]:
    token = _current.set(cache)
    try:
        yield
    finally:
        _current.reset(token)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: over the cache of the step that runs, and the new tokens."""
    cache = _current.get()
    if cache is None:
        raise UnsupportedProgramError(f"The attention {ATTENTION!r} is for compiled generation.")
    unknown = [name for name in _UNKNOWN if others.get(name) is not None]
    if unknown or dropout or is_causal is False or not getattr(module, "is_causal", True):
        what = ", ".join(unknown) or "dropout, or looks ahead"
        raise UnsupportedProgramError(f"its attention has {what}")
    layer = cache.take_layer()
    mask, past_mask = cache.masks(sliding_window)
    past_key, past_value = cache.past[2 * layer : 2 * layer + 2] if cache.past else (None, None)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if past_key is None and softcap is None:  # what TensorRT may have one layer for
        grouped = query.shape[1] != key.shape[1]
        result = F.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=grouped
        )
    else:
        result = torch.ops.torchtrt_transformers.cached_attention(
            query, key, value, mask, past_key, past_value, past_mask, scale, softcap
        )
    return result.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attention)


def sharing_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Returns a copy of a model in eval mode: its modules and configurations, with the same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied: PreTrainedModel = copy.deepcopy(model, shared)
    copied.eval()
    return copied


class Step(torch.nn.Module):
    """Reads new tokens.

    Args:
        model: A causal language model of transformers. It is left as it is: the step has a copy of its modules, with
            the same parameters and buffers.
        max_length: The most tokens of a sequence.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.model = sharing_copy(model)
        self.model.set_attn_implementation(ATTENTION)
        takes = inspect.signature(model.forward).parameters
        self.options = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: Tensor,
        past: Sequence[Tensor] = (),
        past_mask: Tensor | None = None,
        start: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the logits behind the last token, ``(batch, vocabulary)``, and the new keys and values.

        These are ``(2 * layers, batch, heads, new, width)``: keys and values in turn.

        Args:
            input_ids: ``(batch, new)`` integers.
            position_ids: Their positions, likewise.
            mask: Booleans ``(batch, new)``: which of them count.
            past: Keys and values in turn, layer by layer, each ``(batch, heads, cached, width)``; none at first.
            past_mask: Booleans ``(batch, cached)``: which places of the cache may be read.
            start: How many places of the cache are in use, ``(1,)``; only windows need it.
        """
        cache = StepCache(mask, past, past_mask, start, self.max_length)
        logits = self.read(input_ids, position_ids, cache)
        return logits, torch.stack(cache.states)

    def read(self, input_ids: Tensor, position_ids: Tensor, cache: StepCache) -> Tensor:
        """Returns the logits behind the last token; the cache then has the new keys and values."""
        with _reading(cache):
            output = self.model(
                input_ids=input_ids,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
                return_dict=True,
                **self.options,
            )
        logits: Tensor = output.logits[:, -1]
        return logits
