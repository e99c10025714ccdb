"""The compiled model: transformers' own ``generate`` over engines."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from torchtrt.errors import InputError
from torchtrt_converters_transformers.cache import CacheLayout, EngineCache
from torchtrt_converters_transformers.engine_model import (
    EngineModel,
    mask_of_new_tokens,
    set_options,
)
from torchtrt_converters_transformers.saving import (
    check_saved_whole,
    load_engines,
    read_config,
    read_description,
    read_generation_config,
    read_layout,
    renamed,
    write_folder,
)
from torchtrt_converters_transformers.step import NO_IMAGES, ImageInputs
from torchtrt_runtime.modules.supplying import Weights
from torchtrt_runtime.serialization.folders import SavedFolder, folder_of

_DEFAULT_NEW_TOKENS = 20
"""The number of tokens that transformers generates by default."""


class CompiledForCausalLM(EngineModel, PreTrainedModel, GenerationMixin):
    """A causal language model whose steps run in engines, with transformers' ``generate``.

    Made by ``torchtrt_converters_transformers.compile_for_generation``.

    Attributes:
        config: A copy of the model's.
        generation_config: A copy of the model's: the defaults of ``generate``.
        layout: What the cache has room for.
        step: The compiled module that reads new tokens behind a cache.
        prefill: The compiled module that reads a prompt; None where ``step`` does.
        windowed: Whether layers read a window of the last tokens only, or compute something from the number of tokens.
        embeds: Whether engines read embeddings in place of token ids.
        image_inputs: What engines read of images besides their embeddings.
    """

    main_input_name = "input_ids"
    _is_stateful = False
    _cache_advice = "Leave it out, or give model.new_cache()."

    def __init__(
        self,
        config: Any,
        generation_config: GenerationConfig,
        layout: CacheLayout,
        step: torch.nn.Module,
        prefill: torch.nn.Module | None,
        *,
        windowed: bool,
        embeds: bool = False,
        max_candidate_tokens: int = 0,
        image_inputs: ImageInputs = NO_IMAGES,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        config = copy.deepcopy(config)
        # Nothing is left to choose from, and transformers would ask this class for what was chosen.
        config._attn_implementation = config._experts_implementation = "eager"
        super().__init__(config)
        self.generation_config = copy.deepcopy(generation_config)
        self.windowed, self.embeds, self.image_inputs = windowed, embeds, image_inputs
        self.step, self.prefill = step, prefill
        self.attach_cache(layout, dtype, device, max_candidate_tokens)
        # A checkpoint's defaults for other caches do not apply to this one.
        self.generation_config.update(
            use_cache=True, cache_config=None, **dict.fromkeys(self.refused_options())
        )
        self.eval()  # type: ignore[no-untyped-call]

    def generate(  # type: ignore[override]  # the options are what this class takes
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        **options: Any,
    ) -> Any:
        """Generates as ``GenerationMixin.generate`` does, with its options.

        Args:
            inputs: ``(batch, tokens)`` integers: the prompts, those that are shorter padded in front.
            generation_config: Takes the place of this model's.
            **options: As transformers documents them; ``attention_mask``, ``max_new_tokens``, ``do_sample``,
                ``num_beams``, ``streamer``, ``stopping_criteria`` and so on.

        Returns:
            The result of transformers: ``(batch, tokens)``, prompts included, or a ``ModelOutput``.

        Raises:
            InputError: An option cannot work with engines, or there is no room for so many sequences or tokens.
        """
        prompt = options.get("input_ids") if inputs is None else inputs
        self.check_options(options, generation_config)
        if (
            options.get("use_cache") is False
            or getattr(generation_config, "use_cache", None) is False
        ):
            raise InputError(
                "generate(use_cache=False) is not possible here: engines read the cache."
            )
        if prompt is not None:
            self._check_length(prompt.shape[-1], generation_config, options)
        cache = options.get("past_key_values")
        with torch.no_grad(), self.cache_memory.in_call(cache):
            options["past_key_values"] = self.lend_cache() if cache is None else cache
            return super().generate(inputs, generation_config, **options)  # type: ignore[misc]

    def generate_batch(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an ``InputError``: continuous batching has another cache."""
        raise InputError(
            "generate_batch is not possible here: the engines have a cache of their own."
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: EngineCache | None = None,
        use_cache: bool | None = None,
        inputs_embeds: Tensor | None = None,
        logits_to_keep: int = 1,
        return_dict: bool | None = None,
        image_inputs: Mapping[str, Tensor] | None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Reads tokens, and keeps their keys and values.

        Args:
            input_ids: ``(batch, new)`` integers.
            attention_mask: ``(batch, cached + new)``, zero where a token is padding; None without padding.
            position_ids: ``(batch or 1, new)``; behind those that are cached if omitted.
            past_key_values: A cache of this model; an empty one if omitted.
            use_cache: Not False.
            inputs_embeds: ``(batch, new, width)``, in place of ``input_ids``, where engines read embeddings.
            logits_to_keep: Behind how many of the new tokens the logits are returned, the last ones; 0 for all. 1 if
                the model was compiled without ``max_candidate_tokens``.
            return_dict: Not False.
            image_inputs: What engines read of images besides embeddings, as ``ImageInputs`` names it.
            **others: None, each; but for ``cache_position``, which the cache has itself.

        Returns:
            The cache, and the logits: ``(batch, kept, vocabulary)``.

        Raises:
            InputError: The arguments do not fit the engines, a sequence becomes too long, or ends with padding.
            EngineError: The cache is not this model's, or was given to a later call.
        """
        others.pop(
            "cache_position", None
        )  # transformers before 5.17 counts as well as the cache does
        unknown = set_options(others)
        new_tokens, other = (
            (inputs_embeds, input_ids) if self.embeds else (input_ids, inputs_embeds)
        )
        if other is not None:
            unknown.append("input_ids" if self.embeds else "inputs_embeds")
        if new_tokens is None or unknown or use_cache is False or return_dict is False:
            what = (
                f"{', '.join(unknown)}: leave that out"
                if unknown
                else "no input, use_cache=False or return_dict=False"
            )
            raise InputError(
                f"The engines take token ids and return logits. They were called with {what}."
            )
        with torch.no_grad(), self.cache_memory.in_call(past_key_values):
            cache = self.cache_for(past_key_values)
            logits = self._logits(
                new_tokens, attention_mask, position_ids, cache, logits_to_keep, image_inputs or {}
            )
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _logits(
        self,
        new_tokens: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        cache: EngineCache,
        logits_to_keep: int,
        image_inputs: Mapping[str, Tensor],
    ) -> Tensor:
        """Returns the logits of new tokens, ids or embeddings, read in one call of an engine or in several."""
        batch, new = new_tokens.shape[:2]
        kept = self.count_kept(logits_to_keep, new)
        start = cache.get_seq_length()
        if not start:
            cache.start(batch)
        cache.check_room(batch, new)
        mask = mask_of_new_tokens(attention_mask, new_tokens, start)
        if position_ids is None:
            position_ids = self._position_range[None, start : start + new]
        position_ids = position_ids.expand(*position_ids.shape[:-2], batch, -1)
        read = []
        images = self.image_inputs.complete(image_inputs, new_tokens)
        calls = self.calls(new, kept)
        seen = (
            [images]
            if len(calls) == 1
            else [self.image_inputs.part(images, part) for part, _ in calls]
        )
        for (part, keep), own in zip(calls, seen, strict=True):
            tokens = (new_tokens[:, part], position_ids[..., part], mask[:, part])
            read.append(self._read(tokens, attention_mask, cache, {**keep, **own}))
        return read[0] if len(read) == 1 else torch.cat(read, 1)

    def _read(
        self,
        tokens: Sequence[Tensor],
        attention_mask: Tensor | None,
        cache: EngineCache,
        keep: Mapping[str, Tensor],
    ) -> Tensor:
        """Returns the logits of one call of an engine; the cache then has its tokens."""
        start, past = cache.get_seq_length(), []
        engine = self.step if start or self.prefill is None else self.prefill
        if engine is self.step:
            past = [cache.tensors, cache.mask(attention_mask)]
            if self.windowed:
                past.append(self._position_range[start : start + 1])
        logits, states = engine(*tokens, *past, **keep)
        cache.append(states)
        result: Tensor = logits
        return result

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | os.PathLike[str], **others: Any
    ) -> None:
        """Saves engines, configurations and the cache's layout into a folder; ``from_pretrained`` reads it.

        Raises:
            InputError: Other options are given: engines are no state dict.
        """
        check_saved_whole(others)
        self.write(folder_of(save_directory))

    def write(self, folder: Path) -> Mapping[str, Any]:
        """Does what ``save_pretrained`` does, and returns the checksums of the description."""
        engines = {name: getattr(self, name) for name in ("step", "prefill")}
        return write_folder(
            folder,
            self,
            "CompiledForCausalLM",
            {name: engine for name, engine in engines.items() if engine is not None},
            {
                "windowed": self.windowed,
                "embeds": self.embeds,
                "max_candidate_tokens": self.max_candidate_tokens,
                "image_inputs": dataclasses.asdict(self.image_inputs),
            },
        )

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, folder: str | os.PathLike[str], *, weights: Weights | None = None, **others: Any
    ) -> CompiledForCausalLM:
        """Returns a model that ``save_pretrained`` saved; nothing is compiled, and the model's code is not needed.

        Args:
            folder: The folder.
            weights: The weights of a model that was compiled with ``strip_engine_weights``, as ``torchtrt.load`` takes
                them: transformers' model, its state dict, or a safetensors file.
            **others: None.

        Raises:
            InputError: The folder has no compiled model, or other options are given.
            UnreadableFileError, EngineMismatchError, RefitError: As of ``torchtrt.load``.
        """
        renamed_weights = None if weights is None else renamed(weights, {"": "model."})
        return cls.read(read_description(folder, "CompiledForCausalLM", others), renamed_weights)

    @classmethod
    def read(cls, saved: SavedFolder, weights: Mapping[str, Tensor] | None) -> CompiledForCausalLM:
        """Returns the model in a folder, for weights by their names in the modules that are compiled."""
        description = saved.content
        layout, dtype, device = read_layout(description)
        engine = load_engines(saved, dict.fromkeys(("step", "prefill"), weights))
        return cls(
            read_config(saved),
            read_generation_config(saved),
            layout,
            engine("step"),
            engine("prefill"),
            windowed=description["windowed"],
            embeds=description["embeds"],
            max_candidate_tokens=description["max_candidate_tokens"],
            image_inputs=ImageInputs(**description["image_inputs"]),
            dtype=dtype,
            device=device,
        )

    def _check_length(
        self, prompt: int, config: GenerationConfig | None, options: Mapping[str, Any]
    ) -> None:
        """Raises where more tokens are asked for than there is room for, before the first is generated."""
        configs = (config, self.generation_config)

        def asked(name: str) -> Any:
            values = [options.get(name), *(getattr(config, name, None) for config in configs)]
            return next((value for value in values if value is not None), None)

        new, length = asked("max_new_tokens"), asked("max_length")
        if new is None and length is None:
            new = _DEFAULT_NEW_TOKENS
        total = length if new is None else prompt + new
        if total is not None:
            self.check_total(total, asked("prompt_lookup_num_tokens"))
