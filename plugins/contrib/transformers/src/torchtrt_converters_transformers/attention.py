"""Attention over the cache of a step: what layers give it, and what they read of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, Cache, PreTrainedModel

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_transformers.cache_formats import UNSCALED, Scales, read, rounded
from torchtrt_converters_transformers.decompositions import (
    attention as attention,  # whose op is called here
)
from torchtrt_converters_transformers.refusals import Refusal

ATTENTION = "torchtrt_cached"
"""The name of our attention among those of transformers."""

NOT_THROUGH_THE_INTERFACE = "its attention does not go through transformers' AttentionInterface"
"""Why most models that cannot be compiled cannot."""

_UNKNOWN = ("head_mask", "sinks")
"""Further arguments of attention, which ours does not compute."""


class SourceCache(Cache):
    """The keys and values of what an encoder read, while a decoder reads them, or computes them.

    Args:
        mask: Booleans ``(batch, source)``: which places count.
        states: Keys and values in turn, layer by layer, each ``(batch, heads, source, width)``; none while the decoder
            computes them.

    Attributes:
        states: These.
        asked: Whether a layer has asked for its keys and values, and attention has not read them yet.
    """

    def __init__(self, mask: Tensor, states: Sequence[Tensor] = ()) -> None:
        super().__init__(layers=[])
        self.mask, self.states = mask, list(states)
        self.asked = False
        self.layers = _SourceLayers(self)  # type: ignore[assignment]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keeps the keys and values of a layer."""
        if 2 * layer_idx != len(self.states):
            raise Refusal("its layers do not read the source in turn, each once")
        self.states += [key_states, value_states]
        self.asked = True
        return key_states, value_states

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Returns the places of the source, and 0 while nothing is computed."""
        return self.mask.shape[1] if self.states else 0


class _SourceLayers:
    """Gives a layer its keys and values as the layers of transformers' caches do."""

    def __init__(self, cache: SourceCache) -> None:
        self._cache = cache

    def __len__(self) -> int:
        return len(self._cache.states) // 2

    def __getitem__(self, layer: int) -> SimpleNamespace:
        self._cache.asked = True
        keys, values = self._cache.states[2 * layer : 2 * layer + 2]
        return SimpleNamespace(keys=keys, values=values)


class StepCache(Cache):
    """The cache of a model's layers while a step is traced, and the keys and values that they gave it.

    Args:
        mask: Booleans ``(batch, new)``: which new tokens count.
        past: Keys and values in turn, layer by layer; none where nothing is cached.
        past_mask: Booleans ``(batch, cached)``: which places of the cache may be read.
        start: How many places of the cache are in use, ``(1,)``.
        max_length: The maximum number of tokens of a sequence: windows of as many do not limit anything.
        dtype: The dtype of the cache, to which new keys and values are rounded. None stands for the model's.
        scales: The scales of each layer's cache. Without any, all are 1.
        whole: Give layers the places in use, and keys and values of the whole cache. They compute positions or biases
            from their number, or keys from what they cached. Otherwise layers see new tokens alone.

    Attributes:
        states: The new keys and values in turn, layer by layer.
        windows: For each layer the number of last tokens that it reads, or None.
        expands: Whether a layer computes keys or values from what it cached: it needs the whole.
        source: What an encoder read; None without one.
        mutual: Booleans ``(batch, new, new)``: which new tokens read each other in both directions, such as those of an
            image. None where no token does.
        features: What the first layers add to the states of new tokens, ``(layers, batch, new, width)``; None for none.
        told: The places in use that layers get without ``whole``; 0 where they compute nothing from it.
    """

    def __init__(
        self,
        mask: Tensor,
        past: Sequence[Tensor] = (),
        past_mask: Tensor | None = None,
        start: Tensor | None = None,
        max_length: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        scales: Sequence[Scales] = (),
        whole: bool = False,
    ) -> None:
        super().__init__(layers=[])
        self._scales = scales
        self.mask, self.past, self.past_mask, self.start_place = mask, past, past_mask, start
        self._max_length, self._dtype, self.whole = max_length, dtype, whole
        self.states: list[Tensor] = []
        self.windows: list[int | None] = []
        self.expands = False
        self.source: SourceCache | None = None
        self.mutual: Tensor | None = None
        self.features: Tensor | None = None
        self.told = 0
        self._masks: dict[int | None, tuple[Tensor, Tensor | None]] = {}
        self._layer: int | None = None
        self._layer_states: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keeps the new keys and values, and returns them; or with ``whole`` all."""
        if self._layer is not None:
            raise Refusal(NOT_THROUGH_THE_INTERFACE)
        if 2 * layer_idx != len(self.states):
            raise Refusal("its layers do not fill the cache in turn, each once")
        if key_states.shape[:3] != value_states.shape[:3]:
            raise Refusal("its keys and values have different heads")
        key_states, value_states = (
            rounded(states, self._dtype, scale)
            for states, scale in zip(
                (key_states, value_states), self.scales(layer_idx), strict=True
            )
        )
        self.states += [key_states, value_states]
        self._layer = layer_idx
        self._layer_states = (key_states, value_states)
        if self.whole and self.past:
            past = self._past_of(layer_idx, key_states.dtype)
            for states in past:  # without this, they differ for PyTorch
                torch._check(states.shape[2] == self.past_places())
            key, value = (torch.cat(pair, 2) for pair in zip(past, self._layer_states, strict=True))
            self._layer_states = (key, value)
        return self._layer_states

    def _past_of(self, layer: int, dtype: torch.dtype) -> list[Tensor]:
        """Returns the keys and values of a layer that are cached, if there are any, in a dtype."""
        past = self.past[2 * layer : 2 * layer + 2]
        return [
            read(states, dtype, scale)
            for states, scale in zip(past, self.scales(layer), strict=False)  # none at first
        ]

    def scales(self, layer: int) -> Scales:
        """Returns the scales of a layer's cache."""
        if not self._scales:
            return UNSCALED
        if layer >= len(self._scales):
            raise Refusal(
                f"{len(self._scales)} of its layers have scales for their keys and values, and others do not"
            )
        return self._scales[layer]

    def past_places(self) -> int:
        """Returns the places of the cache, used or not."""
        return self.past[0].shape[2] if self.past_mask is None else self.past_mask.shape[1]

    def is_complete(self) -> bool:
        """Returns whether there were layers, and attention read what each cached."""
        return bool(self.states) and self._layer is None

    def take_layer(
        self, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Returns new keys and values, and those of the cache if there are any, of the layer that has just cached.

        Args:
            key: What the layer gives to its attention.
            value: Likewise.
        """
        if self._layer is None or self._layer_states is None:
            raise Refusal("a layer reads what another one has cached")
        layer, layer_states, self._layer = self._layer, self._layer_states, None
        past = self._past_of(layer, key.dtype) or (None, None)
        if layer_states[0] is key and layer_states[1] is value:
            return (self.states[2 * layer], self.states[2 * layer + 1], past[0], past[1])
        self.expands = True
        if not self.past:
            return (key, value, None, None)
        if not self.whole:
            raise Refusal("its attention reads other keys than its cache has")
        past_length = self.past_places()
        new, cached = (slice(past_length, None), slice(None, past_length))
        return (key[:, :, new], value[:, :, new], key[:, :, cached], value[:, :, cached])

    def take_source(self) -> Tensor | None:
        """Returns which places of the source may be read, if a layer has just asked for its keys and values."""
        if self.source is None or not self.source.asked:
            return None
        self.source.asked = False
        return self.source.mask

    def masks(self, window: int | None) -> tuple[Tensor, Tensor | None]:
        """Returns what new tokens may read of each other and of the cache, for a window of so many tokens."""
        self.windows.append(window)
        if window is not None and self._max_length is not None and window >= self._max_length:
            window = None
        if window not in self._masks:
            self._masks[window] = self._make_masks(window)
        return self._masks[window]

    def get_seq_length(self, *_: Any, **__: Any) -> Any:
        """Returns the places in use, ``(1,)``, with ``whole``, and ``told`` where positions are given."""
        return self.start_place if self.whole and self.start_place is not None else self.told

    def split_bias(self, bias: Tensor, new: int) -> Tensor:
        """Returns the bias of all places, and behind it that of the new tokens, from one by distance.

        Args:
            bias: ``(1, heads, new, places + new)``, whose columns are places of a sequence.
            new: How many tokens are new.
        """
        if not self.past:
            return bias
        assert self.start_place is not None
        own = self.start_place + torch.arange(new, device=bias.device)
        return torch.cat([bias[..., : self.past_places()], bias.index_select(3, own)], 3)

    @property
    def is_compileable(self) -> bool:
        """False."""
        return False

    def _make_masks(self, window: int | None) -> tuple[Tensor, Tensor | None]:
        """Returns which tokens each token reads: among the new ones, and among those in the cache, if there is one.

        Both masks are boolean and broadcast to ``(batch, heads, new tokens, tokens)``. A window hides the tokens that
        are further back than it is wide.
        """
        position = torch.arange(self.mask.shape[1], device=self.mask.device)
        row, column = position[:, None], position[None, :]
        allowed = column <= row
        if self.mutual is not None:
            allowed = allowed | self.mutual
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


def add_features(layer: int, output: Tensor) -> Tensor:
    """Returns the states behind a layer, with what the step that runs adds to them."""
    cache = _current.get()
    if cache is None or cache.features is None or layer >= len(cache.features):
        return output
    return output + cache.features[layer]


_current: ContextVar[StepCache | None] = ContextVar("step", default=None)


@contextlib.contextmanager
def reading(cache: StepCache) -> Iterator[None]:
    """Makes attention read a cache."""
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
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: over the cache of the step that runs, and the new tokens."""
    cache = _current.get()
    if cache is None:
        raise UnsupportedProgramError(f"The attention {ATTENTION!r} is for compiled generation.")
    if _quantizes_states(module):
        raise Refusal(
            "its attention quantizes what it multiplies in another way than a cache in FP8 or INT8 with one scale "
            "for the keys and one for the values of a layer",
            "Disable these quantizers, such as ModelOpt's `*_bmm_quantizer`, and pass "
            "cache_dtype=torch.float8_e4m3fn if you like",
        )
    unknown = [name for name in _UNKNOWN if others.get(name) is not None]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    source_mask = cache.take_source()
    if unknown or dropout:
        what = ", ".join(unknown) or f"a dropout of {dropout} in eval mode"
        raise Refusal(f"its attention has {what}")
    if source_mask is not None:
        further = (softcap, s_aux, position_bias)
        return _read_source(query, key, value, source_mask[:, None, None], scale, *further), None
    new_key, new_value, past_key, past_value = cache.take_layer(key, value)
    # A layer may say that it is not causal and get a causal mask: logits show whether it reads what follows.
    mask, past_mask = cache.masks(sliding_window)
    if position_bias is not None:
        position_bias = cache.split_bias(position_bias, query.shape[2])
    further = (softcap, s_aux, position_bias)
    if past_key is None and all(option is None for option in further):
        # TensorRT may have one layer for this.
        result = _read_all(query, new_key, new_value, mask, scale)
    else:
        result = torch.ops.torchtrt_transformers.cached_attention(
            query, new_key, new_value, mask, past_key, past_value, past_mask, scale, *further
        )
    return result.transpose(1, 2).contiguous(), None


def _quantizes_states(module: torch.nn.Module) -> bool:
    """Returns whether ModelOpt or compressed-tensors has an attention quantize what it caches or multiplies."""
    if getattr(module, "quantization_scheme", None) is not None:
        return True
    return any(
        name.endswith("_bmm_quantizer") and getattr(child, "is_enabled", False)
        for name, child in module.named_children()
    )


def _read_source(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Attention over what an encoder read: ``mask`` is ``(batch, 1, 1, source)``."""
    if softcap is None and sinks is None:
        if bias is not None:
            mask = torch.where(mask, bias, torch.finfo(bias.dtype).min)
        result = _read_all(query, key, value, mask, scale)
    else:
        result = torch.ops.torchtrt_transformers.cached_attention(
            query, key, value, mask, None, None, None, scale, softcap, sinks, bias
        )
    return result.transpose(1, 2).contiguous()


def _read_all(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=grouped)


AttentionInterface.register(ATTENTION, _attention)


def use_cached_attention(model: PreTrainedModel) -> None:
    """Has every layer of a model call the attention of this module.

    A part such as T5's decoder has a configuration of its own, which the model leaves out up to transformers 5.17.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation != ATTENTION:
            part.set_attn_implementation(ATTENTION)
