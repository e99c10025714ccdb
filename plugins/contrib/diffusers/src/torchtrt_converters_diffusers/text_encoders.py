"""The sizes of text encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import (
    CLIPTextModel,
    CLIPTextModelWithProjection,
    T5EncoderModel,
    UMT5EncoderModel,
)

from torchtrt_converters_diffusers.sizes import AxesOfArguments, PipelineSizes


def clip(_: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of CLIP's text encoder. Tokenizers fill all texts up to one length."""
    prompts = {0: sizes.prompts()}
    return {"input_ids": prompts, "attention_mask": prompts}


def t5(_: Any, sizes: PipelineSizes) -> AxesOfArguments:
    """Returns the sizes of T5's encoder, whose texts have as many tokens as the pipeline's call gives."""
    tokens = sizes.tokens()
    texts = {0: sizes.prompts(), **({1: tokens} if tokens else {})}
    return {"input_ids": texts, "attention_mask": texts}


RULES: Mapping[type, Any] = {
    CLIPTextModel: clip,
    CLIPTextModelWithProjection: clip,
    T5EncoderModel: t5,
    UMT5EncoderModel: t5,
}
