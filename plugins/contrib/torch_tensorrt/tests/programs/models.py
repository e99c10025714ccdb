"""Models that the tests with the real Torch-TensorRT compile, with batches that vary, and lengths where they can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCHES = (1, 2, 4)
LENGTHS = (3, 5, 8)


class Residual(nn.Module):
    """A residual block of a ResNet."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.shortcut = nn.Conv2d(inside, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(N, inside, H, W)`` to ``(N, width, H/stride, W/stride)``."""
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def resnet() -> nn.Module:
    """Returns a small ResNet."""
    stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()
    blocks = Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


class Encoder(nn.Module):
    """A transformer encoder block."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(N, L, width)`` to the same shape."""
        x = self.norms[0](x + self.attention(x, x, x, need_weights=False)[0])
        return self.norms[1](x + self.outer(F.gelu(self.inner(x))))


class Decoder(nn.Module):
    """A language model of one causal block, as GPT-2."""

    def __init__(self, words: int = 40, width: int = 16) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(LENGTHS[-1], width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.projections, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps ``(N, L)`` to the logits ``(N, L, words)``."""
        batch, length = tokens.shape
        x = self.words(tokens) + self.positions(torch.arange(length, device=tokens.device))
        parts = self.projections(self.norms[0](x)).view(batch, length, 3, 4, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(batch, length, -1))
        x = x + self.outer(F.gelu(self.inner(self.norms[1](x)), approximate="tanh"))
        return self.norms[2](x) @ self.words.weight.T


def images(batch: int, length: int) -> Tensor:
    """Returns images."""
    return torch.randn(batch, 3, 32, 32)


def vectors(batch: int, length: int) -> Tensor:
    """Returns a sequence of vectors."""
    return torch.randn(batch, length, 16)


def tokens(batch: int, length: int) -> Tensor:
    """Returns a sequence of tokens."""
    return torch.randint(0, 40, (batch, length))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Tensor]]] = {
    "resnet": (resnet, images),
    "encoder": (Encoder, vectors),
    "decoder": (Decoder, tokens),
}


def programs() -> Iterator[tuple[str, nn.Module, Any, list[Tensor]]]:
    """Yields each model, as a program whose sizes vary, and inputs of the minimum, usual and maximum sizes."""
    for name, (build, make) in MODELS.items():
        torch.manual_seed(0)
        model = build().eval()
        inputs = [make(*sizes) for sizes in zip(BATCHES, LENGTHS, strict=True)]
        dims = {0: torch.export.Dim("batch", min=BATCHES[0], max=BATCHES[-1])}
        if inputs[0].shape[1] != inputs[1].shape[1]:
            dims[1] = torch.export.Dim("length", min=LENGTHS[0], max=LENGTHS[-1])
        yield name, model, torch.export.export(model, (inputs[1],), dynamic_shapes=(dims,)), inputs
