"""Requirements of compiled generation that a model's class and configuration show."""

from __future__ import annotations

import inspect
from typing import Any

from transformers import DynamicCache, PreTrainedModel

from torchtrt_converters_transformers.embedding_step import why_not
from torchtrt_converters_transformers.refusals import Refusal, other_modalities
from torchtrt_converters_transformers.rotary import changing_rotary


def check_model(model: PreTrainedModel, max_length: int) -> None:
    """Raises a ``Refusal`` for a model that cannot be compiled for so many tokens."""
    _check_length(model.config.get_text_config(), max_length)
    if len({parameter.device for parameter in model.parameters()}) > 1:
        raise Refusal("it is spread over several devices", "Load it on one device")
    if model.config.is_encoder_decoder:
        _check_encoder_decoder(model)
    else:
        _check_modalities(model)
        _check_layers(model)


def _check_length(config: Any, max_length: int) -> None:
    """Checks that nothing of a language model changes up to a length."""
    for kind, tokens in changing_rotary(config):
        if max_length > tokens:
            raise Refusal(
                f"its {kind} rotary embedding changes beyond {tokens} tokens",
                f"Choose a max_length up to {tokens}",
            )
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        chunk = getattr(config, "attention_chunk_size", None)
        if chunk is None or max_length > chunk:
            advice = None if chunk is None else f"Choose a max_length up to {chunk}"
            raise Refusal(f"max_length is beyond its chunks of {chunk} tokens", advice)


def _check_encoder_decoder(model: Any) -> None:
    """Checks that an encoder and a decoder are parts of one model, which reads one kind of input."""
    others = other_modalities(model)
    if others and "text" in model.input_modalities:
        raise Refusal(f"its encoder reads {_named(others)} besides text")
    if not hasattr(model.config, "vocab_size"):
        raise Refusal("its encoder and its decoder are two models with a configuration each")


def _check_modalities(model: Any) -> None:
    """Checks that a model reads text, or images besides text in a way that engines have."""
    others = other_modalities(model)
    reason = None if not others else why_not(model)
    if set(others) - {"image", "video"}:
        reason = "only images have engines here"
    if reason is not None:
        raise Refusal(f"it takes {_named(others)} besides text, and {reason}")


def _named(modalities: list[str]) -> str:
    return " and ".join(
        {"image": "images", "video": "videos"}.get(modality, modality) for modality in modalities
    )


def _check_layers(model: Any) -> None:
    """Checks that layers cache keys and values, one of each for a token."""
    is_stateful = getattr(model, "_is_stateful", False)
    layers = [] if is_stateful else DynamicCache(config=model.config).layers
    if is_stateful or any(hasattr(layer, "recurrent_states") for layer in layers):
        raise Refusal(
            "some of its layers keep one state of all tokens (a state space, a convolution, or linear attention) in "
            "place of keys and values, or besides them, which our engines do not update"
        )
    if any(hasattr(layer, "update_indexer") for layer in layers):
        raise Refusal(
            "some of its layers choose the tokens that they read by further keys, which our engines do not cache"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise Refusal("its forward takes no position_ids, which padding in front needs")
