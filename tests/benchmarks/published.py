"""Published architectures at their published sizes, in float16, with random weights: what ``gpu.py`` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 30_000
"""Token ids are drawn below this; every model here knows more."""


@dataclass(frozen=True)
class Model:
    """A model and the inputs to measure it with.

    Attributes:
        name: The row's name.
        make: Returns the module.
        inputs: Returns the inputs of a batch, on the CPU.
        batches: The batches to measure.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    batches: tuple[int, ...] = (1, 32)


class _Logits(nn.Module):
    """A model of transformers that returns a tensor: the first of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, return_dict=False)[0]  # type: ignore[no-any-return]


class _Gpt2Step(nn.Module):
    """GPT-2's step from one token to the next, with the keys and values of those before as an input.

    ``cache`` is ``(layers, 2, batch, heads, length, width)``; returned are the logits ``(batch, vocabulary)`` and
    the new token's keys and values, ``(layers, 2, batch, heads, 1, width)``.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.transformer, self.head = model.transformer, model.lm_head
        self.heads = model.config.n_head

    def forward(self, ids: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = ids.shape[0], cache.shape[4]
        hidden = self.transformer.wte(ids) + self.transformer.wpe.weight[length]
        new = []
        for layer, block in enumerate(self.transformer.h):
            projected = block.attn.c_attn(block.ln_1(hidden))
            query, key, value = (
                part.view(batch, 1, self.heads, -1).transpose(1, 2)
                for part in projected.chunk(3, -1)
            )
            keys = torch.cat((cache[layer, 0], key), 2)
            values = torch.cat((cache[layer, 1], value), 2)
            seen = F.scaled_dot_product_attention(query, keys, values)
            hidden = hidden + block.attn.c_proj(seen.transpose(1, 2).reshape(batch, 1, -1))
            hidden = hidden + block.mlp(block.ln_2(hidden))
            new.append(torch.stack((key, value)))
        return self.head(self.transformer.ln_f(hidden))[:, 0], torch.stack(new)


class _UnetBlock(nn.Module):
    """A block of a latent diffusion model's U-Net: residual convolutions, then self- and cross-attention.

    The sizes are those of Stable Diffusion's outermost level: 320 channels over 64 x 64 places, 77 words.
    """

    def __init__(self, channels: int = 320, heads: int = 8, words: int = 768) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)
        )
        self.time = nn.Linear(1280, channels)
        self.layer_norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.queries = nn.ModuleList(nn.Linear(channels, channels, bias=False) for _ in range(2))
        self.keys = nn.ModuleList(
            nn.Linear(width, 2 * channels, bias=False) for width in (channels, words)
        )
        self.outputs = nn.ModuleList(nn.Linear(channels, channels) for _ in range(2))
        self.gate, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor, time: Tensor, words: Tensor) -> Tensor:
        hidden = self.convolutions[0](F.silu(self.norms[0](x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        x = x + self.convolutions[1](F.silu(self.norms[1](hidden)))
        batch, channels, height, width = x.shape
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        for place, source in enumerate((None, words)):
            normed = self.layer_norms[place](tokens)
            source = normed if source is None else source
            key, value = self.keys[place](source).chunk(2, -1)
            query, key, value = (
                part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for part in (self.queries[place](normed), key, value)
            )
            seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            tokens = tokens + self.outputs[place](seen)
        gate, up = self.gate(self.layer_norms[2](tokens)).chunk(2, -1)
        tokens = tokens + self.down(up * F.gelu(gate))
        return x + tokens.transpose(1, 2).reshape(batch, channels, height, width)


def _vision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)  # type: ignore[no-any-return]

    return make


def _text(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))  # type: ignore[no-any-return]

    return make


def _whisper() -> nn.Module:
    import transformers

    model = transformers.WhisperModel(transformers.WhisperConfig())  # tiny
    return model.get_encoder()  # type: ignore[no-any-return]


def _image(batch: int) -> tuple[Tensor, ...]:
    return (torch.rand(batch, 3, 224, 224),)


def _tokens(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(VOCABULARY, (batch, 128)),)


MODELS = {
    model.name: model
    for model in (
        Model("ResNet-50", _vision("resnet50"), _image),
        Model("ViT-B/16", _vision("vit_b_16"), _image),
        Model("Swin-T", _vision("swin_t"), _image),
        Model("ConvNeXt-T", _vision("convnext_tiny"), _image),
        Model(
            "BERT-base 128 tokens",
            lambda: _Logits(_text("BertModel", "BertConfig", vocab_size=30_522)()),
            _tokens,
        ),
        Model(
            "GPT-2 128 tokens",
            lambda: _Logits(_text("GPT2LMHeadModel", "GPT2Config", use_cache=False)()),
            _tokens,
        ),
        Model(
            "GPT-2 step, 512 in cache",
            lambda: _Gpt2Step(_text("GPT2LMHeadModel", "GPT2Config")()),
            lambda batch: (
                torch.randint(VOCABULARY, (batch, 1)),
                torch.randn(12, 2, batch, 12, 512, 64),
            ),
        ),
        Model(
            "Whisper-tiny encoder",
            lambda: _Logits(_whisper()),
            lambda batch: (torch.randn(batch, 80, 3000),),
        ),
        Model(
            "U-Net block",
            _UnetBlock,
            lambda batch: (
                torch.randn(batch, 320, 64, 64),
                torch.randn(batch, 1280),
                torch.randn(batch, 77, 768),
            ),
            (2, 16),
        ),
    )
}
