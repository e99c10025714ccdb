"""The compiled encoder and decoder: the ``generate`` of the model's own class over engines."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from torchtrt.errors import InputError
from torchtrt_converters_transformers.cache import CacheLayout, EngineCache
from torchtrt_converters_transformers.compiled_class import CompiledClass, hollow_copy
from torchtrt_converters_transformers.engine_model import mask_of_new_tokens, set_options
from torchtrt_converters_transformers.saving import (
    check_saved_whole,
    class_of,
    load_engines,
    prefix_of,
    read_layout,
    renamed,
    write_folder,
)
from torchtrt_runtime.modules.supplying import Weights
from torchtrt_runtime.serialization.folders import SavedFolder


@dataclasses.dataclass
class EncodedOutput(BaseModelOutput):
    """The output of an encoder.

    Attributes:
        cached: ``(batch, 2 * layers, heads, source, width)``: what the decoder's layers read of it.
    """

    cached: Tensor | None = None


class CompiledEncoder(torch.nn.Module):
    """The encoder of a compiled model, as ``generate`` calls it.

    Args:
        engine: The compiled module.
        name: The name of what it reads.
        dtype: The model's dtype.
        max_batch_size: The maximum number of sources at once.
        max_source_length: The maximum number of tokens of a source, or the size of its features.
    """

    def __init__(
        self,
        engine: torch.nn.Module,
        name: str,
        dtype: torch.dtype,
        max_batch_size: int,
        max_source_length: int,
    ) -> None:
        super().__init__()
        self.engine, self.main_input_name, self.dtype = engine, name, dtype
        self.max_batch_size, self.max_source_length = max_batch_size, max_source_length

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        input_features: Tensor | None = None,
        **others: Any,
    ) -> EncodedOutput:
        """Reads a source: token ids, or features.

        Raises:
            InputError: Other options are given, or there is no room for the source.
        """
        source = input_ids if self.main_input_name == "input_ids" else input_features
        asked = [name for name in set_options(others) if name != "return_dict"]
        if source is None or asked:
            raise InputError(
                f"The encoder takes {self.main_input_name} and returns its last state. It was called "
                f"{'with ' + ', '.join(asked) if asked else 'without that input'}."
            )
        self._check_room(source)
        if source.is_floating_point():
            result = self.engine(source.to(self.dtype))
        else:
            mask = torch.ones_like(source) if attention_mask is None else attention_mask
            result = self.engine(source, mask.to(torch.int64))
        state, cached = result
        return EncodedOutput(last_hidden_state=state, cached=cached)

    def _check_room(self, sources: Tensor) -> None:
        """Checks that the engines have room for sources: token ids, or features of a recording.

        Raises:
            InputError: There are too many sources, or they are too long or of another length.
        """
        if len(sources) > self.max_batch_size:
            raise InputError(
                f"There are {len(sources)} sources, but the model was compiled for "
                f"max_batch_size={self.max_batch_size}. Compile it again with a larger one."
            )
        length = sources.shape[-1]
        if sources.is_floating_point() and length != self.max_source_length:
            raise InputError(
                f"The features have {length} frames, but the encoder reads {self.max_source_length}. The processor of "
                "the model fills or divides recordings, and so does generate."
            )
        if length > self.max_source_length:
            raise InputError(
                f"A source has {length} tokens, but the model was compiled for "
                f"max_source_length={self.max_source_length}. Compile it again with a larger one."
            )


class CompiledEncoderDecoder(CompiledClass):
    """Adds engines to a class of transformers with an encoder and a decoder.

    Attributes:
        encoder_engine: The compiled module that reads a source.
        step: The compiled module that reads new tokens behind a cache.
    """

    saved_kind = "CompiledEncoderDecoder"
    main_input_name: str
    step: torch.nn.Module
    takes_positions: bool

    @property
    def encoder_engine(self) -> torch.nn.Module:
        """The compiled module that reads a source."""
        engine: torch.nn.Module = self.compiled_encoder.engine
        return engine

    def attach(
        self,
        layout: CacheLayout,
        encoder: torch.nn.Module,
        step: torch.nn.Module,
        takes_positions: bool,
        source_places: int,
        max_candidate_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Gives the model its engines."""
        self.attach_cache(layout, dtype, device, max_candidate_tokens)
        self.takes_positions = takes_positions
        self.compiled_encoder = CompiledEncoder(
            encoder, self.main_input_name, dtype, layout.max_batch_size, source_places
        )
        self.step = step

    def save_pretrained(self, save_directory: str | os.PathLike[str], **others: Any) -> None:
        """Saves engines and configurations into a folder; ``CompiledEncoderDecoder.from_pretrained`` reads it.

        Raises:
            InputError: Other options are given, or the model's class is not one of transformers.
        """
        check_saved_whole(others)
        name = class_of(self)
        write_folder(
            save_directory,
            self,
            self.saved_kind,
            {"encoder": self.encoder_engine, "step": self.step},
            {
                "class": name,
                "takes_positions": self.takes_positions,
                "source_places": self.compiled_encoder.max_source_length,
                "max_candidate_tokens": self.max_candidate_tokens,
            },
        )

    @classmethod
    def with_saved_engines(cls, model: Any, saved: SavedFolder, weights: Weights | None) -> Any:
        """Returns a copy of a model without weights, with the engines of a folder."""
        description = saved.content
        layout, dtype, device = read_layout(description)
        engine_weights: dict[str, Any] = {"encoder": None, "step": None}
        if weights is not None:
            inside = {"": "decoder.", prefix_of(model, model.get_encoder()): "encoder."}
            engine_weights = {
                "encoder": renamed(weights, inside),
                "step": renamed(weights, {"": "model."}),
            }
        engine = load_engines(saved, engine_weights)
        compiled = hollow_copy(model, CompiledEncoderDecoder)
        compiled.attach(
            layout,
            engine("encoder"),
            engine("step"),
            takes_positions=description["takes_positions"],
            source_places=description["source_places"],
            max_candidate_tokens=description["max_candidate_tokens"],
            dtype=dtype,
            device=device,
        )
        return compiled

    def get_encoder(self, *_: Any, **__: Any) -> CompiledEncoder:
        """Returns the compiled encoder."""
        return self.compiled_encoder

    def check_options(self, options: Mapping[str, Any], config: Any) -> None:
        """Raises an ``InputError`` for an option of ``generate`` that cannot work, given or in a configuration."""
        super().check_options(options, config)
        scales = options.get("guidance_scale"), getattr(config, "guidance_scale", None)
        if any(scale not in (None, 1) for scale in scales):
            raise InputError(
                "generate(guidance_scale=...) is not possible here: transformers gives the tokens of the decoder to "
                "the encoder for it."
            )

    def forward(
        self,
        source: Tensor | None = None,
        /,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EncodedOutput | None = None,
        past_key_values: EngineCache | None = None,
        decoder_position_ids: Tensor | None = None,
        logits_to_keep: int = 1,
        **others: Any,
    ) -> Seq2SeqLMOutput:
        """Reads tokens of the decoder, behind those that are cached.

        With a cache, the logits are those behind the last tokens, ``(batch, kept, vocabulary)``. Without one, they are
        those behind each token, which are read in groups of ``max_candidate_tokens + 1``.

        Args:
            source: The encoder's input, in place of its output. It may have its name in the model's class, too.
            attention_mask: ``(batch, source)``, zero where the source is padding.
            decoder_input_ids: ``(batch, new)`` integers.
            decoder_attention_mask: ``(batch, cached + new)``, zero where a token is padding.
            encoder_outputs: What the encoder returned; it is computed if omitted.
            past_key_values: A cache of this model; an empty one if omitted.
            decoder_position_ids: ``(batch, new)``, for classes that take them.
            logits_to_keep: Behind how many of the new tokens the logits are returned, the last ones; 0 for all. 1 if
                the model was compiled without ``max_candidate_tokens``.
            **others: ``use_cache`` has no influence.

        Raises:
            InputError: The arguments do not fit the engines, or a sequence becomes too long or ends with padding.
            EngineError: The cache is not this model's, or was given to a later call.
        """
        for name in ("cache_position", "use_cache", "return_dict"):
            others.pop(name, None)
        source = others.pop(self.main_input_name, source)
        unknown = set_options(others)
        if unknown or decoder_input_ids is None:
            raise InputError(
                f"The engines take decoder_input_ids and return logits. They were called "
                f"{'with ' + ', '.join(unknown) + ': leave that out' if unknown else 'without that input'}."
            )
        with torch.no_grad(), self.cache_memory.in_call(past_key_values):
            if encoder_outputs is None:
                encoder_outputs = self.compiled_encoder(
                    **{self.main_input_name: source, "attention_mask": attention_mask}
                )
            cache = self.cache_for(past_key_values)
            batch, new = decoder_input_ids.shape
            if not cache.get_seq_length():
                cache.start(batch)
                cache.source = _source(encoder_outputs, attention_mask, self.main_input_name)
            cache.check_room(batch, new)
            kept = new if past_key_values is None else self.count_kept(logits_to_keep, new)
            logits = self._read(
                decoder_input_ids, decoder_attention_mask, decoder_position_ids, cache, kept
            )
        return Seq2SeqLMOutput(
            logits=logits,
            past_key_values=cache,  # type: ignore[arg-type]
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
        )

    def _read(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        positions: Tensor | None,
        cache: EngineCache,
        kept: int,
    ) -> Tensor:
        """Returns the logits behind the last of some tokens; the cache then has them."""
        read = []
        for part, keep in self.calls(tokens.shape[1], kept):
            start, new_tokens = cache.get_seq_length(), tokens[:, part]
            until = None if mask is None else mask[:, : start + new_tokens.shape[1]]
            logits, states = self.step(
                new_tokens,
                mask_of_new_tokens(until, new_tokens, start, "The decoder's attention mask"),
                cache.source[:-1],
                cache.source[-1],
                cache.tensors,
                cache.mask(mask),
                self._position_range[start : start + 1],
                *self._positions(positions, part, start, new_tokens),
                **keep,
            )
            cache.append(states)
            read.append(logits)
        return torch.cat(read, 1) if len(read) > 1 else read[0]

    def _postprocess_outputs(self, seek_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Divides the result of Whisper's ``generate`` by its sources, without the cache, whose layers engines hold."""
        if not isinstance(seek_outputs, Tensor):
            kept = {key: value for key, value in seek_outputs.items() if key != "past_key_values"}
            seek_outputs = type(seek_outputs)(**kept)
        return super()._postprocess_outputs(seek_outputs, *args, **kwargs)  # type: ignore[misc]

    def _positions(
        self, position_ids: Tensor | None, part: slice, start: int, tokens: Tensor
    ) -> list[Tensor]:
        """Returns the positions of some of the tokens that a call reads, for models that take them."""
        if not self.takes_positions:
            return []
        batch, new = tokens.shape
        positions = (
            self._position_range[None, start : start + new]
            if position_ids is None
            else position_ids[:, part]
        )
        return [positions.expand(batch, -1)]


def _source(encoded: Any, mask: Tensor | None, name: str) -> list[Tensor]:
    """Returns keys and values of a source in turn, each contiguous, and which places count."""
    cached = getattr(encoded, "cached", None)
    if cached is None:
        raise InputError(
            "encoder_outputs were made by another encoder, such as that of the model in PyTorch. The decoder needs "
            "what its own encoder caches: call get_encoder() of the compiled model, or leave them out."
        )
    batch, _, _, length, _ = cached.shape
    if mask is None or name != "input_ids":
        allowed = torch.ones((batch, length), dtype=torch.bool, device=cached.device)
    else:
        allowed = mask.bool().clone()
    return [*cached.transpose(0, 1).contiguous(), allowed]
