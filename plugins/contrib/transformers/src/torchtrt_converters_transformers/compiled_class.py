"""Generation with the methods of a class of transformers, over engines: what all compiled classes share."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Collection
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel

from torchtrt_converters_transformers.engine_model import EngineModel
from torchtrt_converters_transformers.saving import empty_model, read_description
from torchtrt_runtime.modules.supplying import Weights
from torchtrt_runtime.serialization.folders import SavedFolder


class CompiledClass(EngineModel):
    """Adds engines to a class of transformers; its ``generate`` is the class's own.

    Attributes:
        saved_kind: The kind of model that ``save_pretrained`` writes into a folder's description.
    """

    saved_kind: ClassVar[str]

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], *, weights: Weights | None = None, **others: Any
    ) -> Any:
        """Returns a model that ``save_pretrained`` saved; nothing is compiled.

        Args:
            folder: The folder.
            weights: The weights of a model that was compiled with ``strip_engine_weights``, as of
                ``CompiledForCausalLM.from_pretrained``.
            **others: None.

        Raises:
            InputError: The folder has no such model, or other options are given.
            UnreadableFileError, EngineMismatchError, RefitError: As of ``torchtrt.load``.
        """
        saved = read_description(folder, cls.saved_kind, others)
        return cls.with_saved_engines(empty_model(saved), saved, weights)

    @classmethod
    def with_saved_engines(cls, model: Any, saved: SavedFolder, weights: Weights | None) -> Any:
        """Returns a copy of a model without weights, with the engines of a folder."""
        raise NotImplementedError

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """Generates as the model's class does, with its options.

        Raises:
            InputError: An option cannot work with engines, or there is no room for so many sequences or tokens.
        """
        self.check_options(options, options.get("generation_config"))
        with self.cache_memory.in_call():
            return super().generate(*arguments, **options)  # type: ignore[misc]

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Returns a pickle by the two classes that this one is made of, because no module has it."""
        return _without_state, type(self)._made_of, self.__getstate__()  # type: ignore[attr-defined]

    def _prepare_cache_for_generation(
        self,
        config: Any,
        model_kwargs: dict[str, Any],
        _mode: Any,
        _batch_size: int,
        max_cache_length: int,
        *_: Any,
    ) -> None:
        """Lends the cache of the engines to a run, unless the run has one already, and checks that its tokens fit."""
        # Transformers asks here for the cache of one run; a run of Whisper is a part of a recording.
        looked_up = config.prompt_lookup_num_tokens
        self.check_total(max_cache_length + 1 if looked_up else max_cache_length, looked_up)
        if model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = self.lend_cache()


@functools.cache
def _subclass(mixin: type[CompiledClass], kind: type[Any]) -> type[Any]:
    members = {"_is_stateful": False, "_made_of": (mixin, kind)}
    return type(f"Compiled{kind.__name__}", (mixin, kind), members)


def _without_state(mixin: Any, kind: Any) -> Any:
    """Returns an object that gets its state from a pickle."""
    made: Any = _subclass(mixin, kind)
    return object.__new__(made)


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
