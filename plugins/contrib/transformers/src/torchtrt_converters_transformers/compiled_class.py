"""Generation with the methods of a class of transformers, over engines: what all compiled classes share."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from typing import Any, NoReturn

import torch
from transformers import PreTrainedModel

from torchtrt.errors import EngineError, InputError
from torchtrt_converters_transformers.cache import CacheLayout, EngineCache
from torchtrt_converters_transformers.generation import REFUSED_OPTIONS


class CompiledClass:
    """Adds engines to a class of transformers; its ``generate`` is the class's own.

    Attributes:
        layout: What the cache has room for.
    """

    layout: CacheLayout
    _engine_device: torch.device
    _engine_dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the model was when it was compiled."""
        return self._engine_device

    @property
    def dtype(self) -> torch.dtype:
        """The model's dtype."""
        return self._engine_dtype

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """Generates as the model's class does, with its options.

        Raises:
            InputError: An option cannot work with engines, or there is no room for so many sequences or tokens.
        """
        config = options.get("generation_config")
        for name, reason in REFUSED_OPTIONS.items():
            if options.get(name) is not None or getattr(config, name, None) is not None:
                raise InputError(f"generate({name}=...) is not possible here: {reason}.")
        return super().generate(*arguments, **options)  # type: ignore[misc]

    def _prepare_cache_for_generation(
        self,
        _config: Any,
        model_kwargs: dict[str, Any],
        _mode: Any,
        _batch_size: int,
        max_cache_length: int,
        *_: Any,
    ) -> None:
        # Transformers asks here for the cache of one run; a run of Whisper is a part of a recording.
        if max_cache_length > self.layout.max_length:
            raise InputError(
                f"Up to {max_cache_length} tokens are asked for, but the model was compiled for "
                f"max_length={self.layout.max_length}. Ask for fewer with max_new_tokens, or compile it again for more."
            )
        if model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = self._lend_cache()

    def _lend_cache(self) -> EngineCache:
        raise NotImplementedError

    def save_pretrained(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an ``InputError``: keep engines with ``engine_cache``."""
        raise InputError(
            f"A {type(self).__name__} has several engines, and is not saved as one. Compile it with engine_cache=True, "
            "which keeps them."
        )

    def _apply(self, *_: Any, **__: Any) -> NoReturn:
        raise EngineError(
            f"Device and dtype of a compiled model are compiled in ({self.device}, {self.dtype}). Move the model, and "
            "compile it again."
        )


@functools.cache
def _subclass(mixin: type[CompiledClass], kind: type[Any]) -> type[Any]:
    return type(f"Compiled{kind.__name__}", (mixin, kind), {"_is_stateful": False})


def hollow_copy(
    model: PreTrainedModel, mixin: type[CompiledClass], kept: Collection[torch.Tensor] = ()
) -> Any:
    """Returns a copy of a model's modules and configurations without its weights, of the class that runs engines.

    Args:
        model: The model.
        mixin: What the class adds to the model's own.
        kept: Parameters and buffers that the copy shares with the model.
    """
    shared = {id(tensor): tensor for tensor in kept}
    hollow = {
        id(tensor): tensor.detach().to("meta") for tensor in (*model.parameters(), *model.buffers())
    }
    copied = copy.deepcopy(model, {**hollow, **shared})
    copied.__class__ = _subclass(mixin, type(model))  # type: ignore[arg-type]
    copied.eval()
    return copied
