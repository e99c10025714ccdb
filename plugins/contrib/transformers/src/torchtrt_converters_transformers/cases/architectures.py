"""Architectures of transformers in small random configurations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from torchtrt_testing.architectures import (
    BATCH,
    SEQUENCE,
    Architecture,
    Axes,
    Inputs,
    images,
    signals,
    tokens,
)


def _last(model: nn.Module, *inputs: Tensor) -> Any:
    return model(*inputs, return_dict=False)[0]


def _uncached(model: Callable[..., Any], *inputs: Tensor) -> Any:
    return model(*inputs, use_cache=False, return_dict=False)[0]


def _decoder(model: nn.Module, tokens: Tensor, states: Tensor) -> Any:
    return _uncached(partial(model, encoder_hidden_states=states), tokens)


def _clip(model: nn.Module, tokens: Tensor, images: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    out = model(input_ids=tokens, pixel_values=images, attention_mask=mask)
    return out.text_embeds, out.image_embeds


def _padded_tokens(batch: int, length: int) -> tuple[Tensor, Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, max(1, length // 2) :] = 0
    return torch.randint(1, 60, (batch, length)), mask


def _captions(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.randint(1, 58, (batch, length))
    tokens[:, -1] = 59
    return tokens, torch.randn(batch, 3, 32, 32), torch.ones_like(tokens)


def _transformer(
    name: str,
    model: type[nn.Module],
    config: Any,
    inputs: Inputs,
    axes: Axes,
    lengths: tuple[int, int, int] = (1, 1, 1),
    call: Callable[..., Any] = _last,
    part: str = "",
) -> Architecture:
    """Returns the architecture of a model's class, or of a part of the model, with a configuration."""
    return Architecture(
        name, lambda: model(config).get_submodule(part), inputs, axes, lengths, call
    )


LENGTHS = (3, 8, 12)
SIGNALS = (100, 160, 240)
SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
T5 = transformers.T5Config(
    vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False
)

ARCHITECTURES = (
    _transformer(
        "convnext",
        transformers.ConvNextModel,
        transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
        images(64),
        BATCH,
    ),
    _transformer(
        "efficientnet",
        transformers.EfficientNetModel,
        transformers.EfficientNetConfig(
            image_size=32, width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320
        ),
        images(32),
        BATCH,
    ),
    _transformer("vit", transformers.ViTModel, transformers.ViTConfig(**VISION), images(32), BATCH),
    _transformer(
        "swin",
        transformers.SwinModel,
        transformers.SwinConfig(
            image_size=32,
            patch_size=2,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
        ),
        images(32),
        BATCH,
    ),
    _transformer(
        "bert",
        transformers.BertModel,
        transformers.BertConfig(**SMALL),
        _padded_tokens,
        SEQUENCE * 2,
        LENGTHS,
    ),
    _transformer(
        "gpt2",
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=60, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
        ),
        tokens(60),
        SEQUENCE,
        LENGTHS,
        _uncached,
    ),
    _transformer(
        "llama",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**SMALL, num_key_value_heads=2),
        tokens(60),
        SEQUENCE,
        LENGTHS,
        _uncached,
    ),
    _transformer(
        "t5-encoder",
        transformers.T5EncoderModel,
        T5,
        _padded_tokens,
        SEQUENCE * 2,
        LENGTHS,
    ),
    _transformer(
        "t5-decoder",
        transformers.T5Model,
        T5,
        lambda batch, length: (torch.randint(1, 60, (batch, length)), torch.randn(batch, 7, 32)),
        SEQUENCE + BATCH,
        LENGTHS,
        _decoder,
        part="decoder",
    ),
    _transformer(
        "whisper-encoder",
        transformers.WhisperModel,
        transformers.WhisperConfig(
            d_model=32,
            encoder_layers=2,
            encoder_attention_heads=4,
            encoder_ffn_dim=48,
            num_mel_bins=8,
            max_source_positions=16,
            decoder_layers=1,
            decoder_attention_heads=4,
            decoder_ffn_dim=48,
            vocab_size=60,
            pad_token_id=0,
            bos_token_id=0,
            eos_token_id=0,
            decoder_start_token_id=0,
        ),
        lambda batch, length: (torch.randn(batch, 8, 32),),
        BATCH,
        part="encoder",
    ),
    _transformer(
        "clip",
        transformers.CLIPModel,
        transformers.CLIPConfig(
            text_config={
                **SMALL,
                "max_position_embeddings": 16,
                "eos_token_id": 59,
                "bos_token_id": 0,
            },
            vision_config=VISION,
            projection_dim=16,
        ),
        _captions,
        SEQUENCE + BATCH + SEQUENCE,
        LENGTHS,
        _clip,
    ),
    _transformer(
        "mamba",
        transformers.MambaModel,
        transformers.MambaConfig(
            vocab_size=60, hidden_size=16, state_size=4, num_hidden_layers=2, use_cache=False
        ),
        tokens(60),
        BATCH,
        (6, 6, 6),
        _uncached,
    ),
    _transformer(
        "wav2vec2",
        transformers.Wav2Vec2Model,
        transformers.Wav2Vec2Config(
            **SMALL,
            conv_dim=[16, 16],
            conv_stride=[5, 2],
            conv_kernel=[10, 3],
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4,
        ),
        signals,
        SEQUENCE,
        SIGNALS,
    ),
)
"""All of them; they become engines alone."""
