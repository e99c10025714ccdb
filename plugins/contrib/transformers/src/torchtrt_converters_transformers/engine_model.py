"""Compiled language models share a device, a dtype, refused options, and a cache that they lend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from torchtrt.callers import skip_callers
from torchtrt.errors import EngineError, InputError
from torchtrt_converters_transformers.cache import CacheLayout, EngineCache
from torchtrt_converters_transformers.cache_memory import CacheMemory

skip_callers("transformers")  # whose loops call the engines

REFUSED_OPTIONS = {
    "cache_implementation": "the engines have a cache of their own",
    "prefill_chunk_size": "the prompt is read at once",
    "return_token_timestamps": "times of tokens follow from attention, which the engines do not return",
    "assistant_early_exit": "engines run all layers",
    "use_mtp": "candidates follow from hidden states, which the engines do not return",
    "speculation_type": "candidates follow from hidden states, which the engines do not return",
    "custom_generate": "other loops are not known to keep to the cache of the engines",
}
"""Options of ``generate`` that cannot work, and why."""

_COMPILE_FOR_CANDIDATES = (
    "the logits behind several tokens are needed, and the engines return the last. Give compile_for_generation the "
    "maximum number of candidates of a step: max_candidate_tokens=20"
)
_ASSISTED = dict.fromkeys(("assistant_model", "prompt_lookup_num_tokens"), _COMPILE_FOR_CANDIDATES)
"""Options of assisted generation."""


class EngineModel:
    """Adds to a model of transformers what its engines have compiled in, and one cache for call after call.

    Attributes:
        layout: What the cache has room for.
        max_candidate_tokens: The maximum number of candidates of assisted generation that engines verify at once; 0 for
            none.
    """

    layout: CacheLayout
    max_candidate_tokens = 0
    _engine_device: torch.device
    _engine_dtype: torch.dtype
    _cache_advice = "Leave it out."

    @property
    def device(self) -> torch.device:
        """Where the model was when it was compiled, and its engines are."""
        return self._engine_device

    @property
    def dtype(self) -> torch.dtype:
        """The model's dtype."""
        return self._engine_dtype

    def attach_cache(
        self,
        layout: CacheLayout,
        dtype: torch.dtype,
        device: torch.device,
        max_candidate_tokens: int,
    ) -> None:
        """Allocates the memory of the cache that calls are lent."""
        self.layout, self.max_candidate_tokens = layout, max_candidate_tokens
        self._engine_dtype, self._engine_device = dtype, device
        self.cache_memory = CacheMemory(layout, self._allocate())
        self._position_range = torch.arange(layout.max_length, device=device)

    def lend_cache(self, *, takes: bool = True) -> EngineCache:
        """Returns an empty cache over the model's memory, or with memory of its own while the model's is in use.

        Args:
            takes: Whether to take the memory from the cache of an earlier call, which loses it.
        """
        cache = self.cache_memory.lend(takes=takes)
        return self.new_cache() if cache is None else cache

    def new_cache(self) -> EngineCache:
        """Returns a cache with memory of its own, for a conversation that goes on while others are generated.

        Given to ``generate`` as ``past_key_values`` again and again, it keeps what was read and generated.
        """
        return EngineCache(self.layout, self._allocate())

    def cache_for(self, cache: Any) -> EngineCache:
        """Returns the cache that a call reads: the given one, or an empty one for None.

        An empty one has memory of its own while another cache has that of the model.

        Raises:
            EngineError: The given one is not this model's.
        """
        if cache is None:
            return self.lend_cache(takes=False)
        if not isinstance(cache, EngineCache) or cache.layout != self.layout:
            raise EngineError(
                f"past_key_values is a {type(cache).__name__} that this model did not make. {self._cache_advice}"
            )
        return cache

    def check_options(self, options: Mapping[str, Any], config: Any) -> None:
        """Raises an ``InputError`` for an option of ``generate`` that cannot work, given or in a configuration."""
        for name, reason in self.refused_options().items():
            if set_options({"option": options.get(name), "default": getattr(config, name, None)}):
                raise InputError(f"generate({name}=...) is not possible here: {reason}.")

    def refused_options(self) -> Mapping[str, str]:
        """Returns the options of ``generate`` that cannot work with these engines, and why."""
        return REFUSED_OPTIONS if self.max_candidate_tokens else {**_ASSISTED, **REFUSED_OPTIONS}

    def count_kept(self, logits_to_keep: Any, new: int) -> int:
        """Returns behind how many of the new tokens the logits are asked for.

        Raises:
            InputError: Engines do not return as many.
        """
        if not isinstance(logits_to_keep, int) or not 0 <= logits_to_keep <= new:
            raise InputError(
                f"logits_to_keep={logits_to_keep!r} is not an integer from 0 to {new}, the new tokens."
            )
        if logits_to_keep == 1:
            return 1
        if not self.max_candidate_tokens:
            raise InputError(f"logits_to_keep={logits_to_keep}: {_COMPILE_FOR_CANDIDATES}.")
        return logits_to_keep or new

    def calls(self, new: int, kept: int) -> list[tuple[slice, dict[str, Tensor]]]:
        """Returns in which calls an engine reads new tokens, for the logits behind the last of them.

        Args:
            new: How many tokens are read.
            kept: Behind how many of them logits are asked for.

        Returns:
            For each call its tokens, and its arguments by name.
        """
        most = self.max_candidate_tokens + 1
        ends = [*range(new - kept + min(kept, most), new, most), new]
        result = []
        for start, end in zip([0, *ends], ends, strict=False):
            first = max(new - kept, start)
            keep = {"keep": self._position_range[first - start : end - start]}
            result.append((slice(start, end), keep if self.max_candidate_tokens else {}))
        return result

    def check_total(self, tokens: int, looked_up: int | None = None) -> None:
        """Raises an ``InputError`` where more tokens are asked for than there is room for.

        Args:
            tokens: The tokens of a sequence.
            looked_up: ``prompt_lookup_num_tokens``: the last step reads as many behind the last token but one.
        """
        further = max(0, (looked_up or 0) - 1)
        if tokens + further <= self.layout.max_length:
            return
        also = f", and prompt_lookup_num_tokens={looked_up} reads up to {further} behind them"
        raise InputError(
            f"Up to {tokens} tokens are asked for, prompts included{also if further else ''}, but the model was "
            f"compiled for max_length={self.layout.max_length}. Ask for fewer with max_new_tokens, or compile it again "
            "for more."
        )

    def _allocate(self) -> Tensor:
        elements = self.layout.elements()
        dtype = self.layout.dtype or self._engine_dtype
        return torch.zeros(elements, dtype=dtype, device=self._engine_device)

    def _apply(self, *_: Any, **__: Any) -> NoReturn:
        raise EngineError(
            f"Device and dtype of a compiled model are compiled in ({self.device}, {self.dtype}). Move the model, and "
            "compile it again."
        )


def set_options(options: Mapping[str, Any]) -> list[str]:
    """Returns the names of the options that ask for something: they are neither None nor False."""
    return [name for name, value in options.items() if value is not None and value is not False]


def mask_of_new_tokens(
    mask: Tensor | None, like: Tensor, start: int, name: str = "The attention mask"
) -> Tensor:
    """Returns which of the new tokens count: booleans ``(batch, new)``.

    Args:
        mask: ``(batch, cached + new)``, zero where a token is padding; None without padding.
        like: What is read, ``(batch, new, ...)``.
        start: How many tokens are cached.
        name: What errors call the mask.

    Raises:
        InputError: The mask has another size, or a sequence ends with padding.
    """
    batch, new = like.shape[:2]
    if mask is None:
        return torch.ones((batch, new), dtype=torch.bool, device=like.device)
    if mask.shape != (batch, start + new):
        raise InputError(
            f"{name} is {tuple(mask.shape)}, but with what is cached there are {start + new} tokens of {batch} "
            "sequences."
        )
    counted = mask[:, start:].bool()
    if new > 1 and not counted[:, -1].all():  # not of single tokens: it waits for the GPU
        raise InputError(
            "The last token of a sequence is padding, and the engines return the logits behind it. Pad in "
            "front: tokenizer.padding_side = 'left'."
        )
    return counted
