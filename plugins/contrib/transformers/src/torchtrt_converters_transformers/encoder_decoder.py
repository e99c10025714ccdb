"""Encoders with decoders, as functions of a source and of new tokens: what engines are built from."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.modeling_outputs import MoEModelOutput

from torchtrt_converters_transformers.attention import (
    NOT_THROUGH_THE_INTERFACE,
    SourceCache,
    StepCache,
    reading,
    use_cached_attention,
)
from torchtrt_converters_transformers.refusals import Refusal
from torchtrt_converters_transformers.step import (
    check_logits,
    selected,
    sharing_copy,
    stacked,
    trying,
)


class EncoderStep(torch.nn.Module):
    """Reads a source once: the encoder, and the keys and values that a decoder reads of it.

    Args:
        model: A model with an encoder and a decoder. It is left as it is.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = sharing_copy(model).get_encoder()
        self.decoder = _decoding_copy(model)
        start = model.generation_config.decoder_start_token_id or 0
        self.start = start[0] if isinstance(start, list) else start

    def forward(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the encoder's last state, and what is cached of it.

        The state is ``(batch, source, width)``. Keys and values are ``(batch, 2 * layers, heads, source, width)``, in
        turn, layer by layer.

        Args:
            source: What the encoder reads: ``(batch, source)`` integers, or features.
            mask: ``(batch, source)`` integers, zero where a token is padding; None for features.
        """
        options = {} if mask is None else {"attention_mask": mask}
        state = self.encoder(source, **options, return_dict=True).last_hidden_state
        batch, length, _ = state.shape
        everything = torch.ones((batch, length), dtype=torch.bool, device=state.device)
        cached = SourceCache(everything)
        token = torch.full((batch, 1), self.start, dtype=torch.int64, device=state.device)
        # Of this only the keys and values are used, which depend on the state alone: the rest is dropped as dead.
        _decode(self.decoder, token, state, StepCache(torch.ones_like(token).bool()), cached)
        return state, torch.stack(cached.states, 1)


class DecoderStep(torch.nn.Module):
    """Reads new tokens of a decoder.

    Args:
        model: A model with an encoder and a decoder. It is left as it is.
        max_length: The maximum number of tokens of a sequence.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.model = _decoding_copy(model)
        self.takes_positions = "decoder_position_ids" in _parameters(model)

    def forward(
        self,
        decoder_input_ids: Tensor,
        mask: Tensor,
        source: Sequence[Tensor],
        source_mask: Tensor,
        past: Sequence[Tensor],
        past_mask: Tensor,
        start: Tensor,
        position_ids: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns logits, ``(batch, kept, vocabulary)``, and the new keys and values.

        Args:
            decoder_input_ids: ``(batch, new)`` integers.
            mask: Booleans ``(batch, new)``: which of them count.
            source: Keys and values of what the encoder read, in turn, each ``(batch, heads, source, width)``.
            source_mask: Booleans ``(batch, source)``.
            past: Keys and values of earlier tokens in turn, each ``(batch, heads, cached, width)``.
            past_mask: Booleans ``(batch, cached)``: which places of the cache may be read.
            start: How many places of the cache are in use, ``(1,)``.
            position_ids: The positions of the new tokens, ``(batch, new)``; None for models that count themselves.
            keep: The new tokens behind which logits are returned: their places, ``(kept,)`` integers; None for the
                last.
        """
        cache = StepCache(mask, past, past_mask, start, self.max_length, whole=True)
        # No layer looks at the encoder's state where its keys and values are there.
        state = source[0].new_zeros((mask.shape[0], 1, 1))
        logits = _decode(
            self.model,
            decoder_input_ids,
            state,
            cache,
            SourceCache(source_mask, source),
            position_ids,
        )
        return selected(logits, keep), stacked(cache.states)


def _decode(
    model: PreTrainedModel,
    tokens: Tensor,
    state: Tensor,
    cache: StepCache,
    source: SourceCache,
    position_ids: Tensor | None = None,
) -> Tensor:
    """Returns the logits behind each token."""
    cache.source = source
    options = {} if position_ids is None else {"decoder_position_ids": position_ids}
    with reading(cache):
        output = model(
            encoder_outputs=MoEModelOutput(last_hidden_state=state),
            decoder_input_ids=tokens,
            decoder_attention_mask=cache.mask,
            past_key_values=EncoderDecoderCache(cache, source),
            use_cache=True,
            return_dict=True,
            **options,
        )
    logits: Tensor = output.logits
    return logits


def _decoding_copy(model: PreTrainedModel) -> PreTrainedModel:
    copied = sharing_copy(model)
    use_cached_attention(copied)
    return copied


def _parameters(model: PreTrainedModel) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(type(model).forward).parameters


def example_source(model: PreTrainedModel) -> Tensor:
    """Returns two sources as the encoder takes them: token ids ``(2, 7)``, or features of the size that it requires.

    Raises:
        Refusal: The encoder takes something else.
    """
    config, name = model.config, model.main_input_name
    if name == "input_ids":
        ids = (torch.arange(14, device=model.device) * 7 + 3).reshape(2, 7)
        return ids.remainder(config.vocab_size)
    features, positions = (
        getattr(config, attribute, None) for attribute in ("num_mel_bins", "max_source_positions")
    )
    if name != "input_features" or features is None or positions is None:
        raise Refusal(f"its encoder takes {name}, whose size its configuration does not give")
    encoder = model.get_encoder()
    strides = [
        child.stride[0] for child in encoder.children() if isinstance(child, torch.nn.Conv1d)
    ]
    size = (2, features, positions * math.prod(strides))
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, generator=generator).to(model.device, model.dtype)


def try_encoder_decoder(
    model: PreTrainedModel,
    encoder: EncoderStep,
    step: DecoderStep,
    source: Tensor,
) -> tuple[list[Tensor], Tensor, list[int | None]]:
    """Runs a source, two tokens and one more through the programs and through the model itself.

    Returns:
        New keys and values of the decoder in turn, what the encoder's program returns for the cache, and each layer's
        window.

    Raises:
        Refusal: The programs do not compute what the model does.
    """
    itself = sharing_copy(model)
    features = source.is_floating_point()
    mask = None if features else torch.ones_like(source)
    if mask is not None:
        mask[0, 4:] = 0
    tokens = torch.tensor([[3, 1, 2], [1, 5, 4]], device=source.device) % model.config.vocab_size
    logits: list[Tensor] = []
    past: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
    with torch.no_grad():
        with trying():
            # A copy: encoders such as BigBird's change their attention for good when they read a short source.
            state, cached = sharing_copy(encoder)(source, mask)
        options = {} if mask is None else {"attention_mask": mask}
        allowed = torch.ones(cached.shape[0], cached.shape[3], device=source.device).bool()
        allowed = allowed if mask is None else mask.bool()
        keys = list(cached.transpose(0, 1))
        encoded = itself.get_encoder()(source, **options, return_dict=True)
        states = _no_states(step, tokens, keys, allowed)
        for first, last in ((0, 2), (2, 3)):
            result, cache = _try_step(step, tokens, (first, last), keys, allowed, states)
            states = [torch.cat(pair, 2) for pair in zip(states, cache.states, strict=True)]
            logits.append(result)
            output = itself(
                encoder_outputs=encoded,
                decoder_input_ids=tokens[:, first:last],
                past_key_values=past,
                use_cache=True,
                **options,
            )
            past, wanted = output.past_key_values, output.logits
            check_logits(result, wanted, state.dtype)
    return states, cached, cache.windows


def _try_step(
    step: DecoderStep,
    tokens: Tensor,
    part: tuple[int, int],
    source: list[Tensor],
    allowed: Tensor,
    past: list[Tensor],
) -> tuple[Tensor, StepCache]:
    """Returns the logits behind a part of some tokens, and the cache that the decoder's layers then have filled."""
    first, last = part
    new, ones = tokens[:, first:last], torch.ones_like(tokens).bool()
    indices = torch.arange(tokens.shape[1], device=tokens.device)
    cache = StepCache(
        ones[:, first:last],
        past,
        ones[:, :first] if past else None,
        indices[first : first + 1],
        step.max_length,
        whole=True,
    )
    positions = indices[first:last].expand(len(tokens), -1) if step.takes_positions else None
    state = source[0].new_zeros((len(tokens), 1, 1))
    with trying():
        logits = _decode(step.model, new, state, cache, SourceCache(allowed, source), positions)
    if not cache.is_complete():
        raise Refusal(NOT_THROUGH_THE_INTERFACE)
    return logits, cache


def _no_states(
    step: DecoderStep, tokens: Tensor, source: list[Tensor], allowed: Tensor
) -> list[Tensor]:
    _, cache = _try_step(step, tokens, (0, 1), source, allowed, [])
    return [state[:, :, :0] for state in cache.states]
