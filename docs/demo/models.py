"""The demo's models with random weights: a CNN of ResNet-18's shape and a small GPT-style decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al., "Deep Residual Learning for Image Recognition", figure 2)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(N, C_in, H, W)`` to ``(N, C, H / stride, W / stride)``."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18: images of shape ``(N, 3, H, W)`` to logits of shape ``(N, classes)``."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks = []
        channels_in = 64
        for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [
                ResidualBlock(channels_in, channels, stride),
                ResidualBlock(channels, channels, 1),
            ]
            channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits."""
        logits: Tensor = self.head(self.blocks(self.stem(images)))
        return logits


class DecoderLayer(nn.Module):
    """Causal self-attention and a feed-forward layer, each after a layer norm (Radford et al., GPT-2)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(N, length, width)`` to the same shape."""
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        z: Tensor = x + self.down(
            functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        )
        return z


class Decoder(nn.Module):
    """A GPT-style decoder: token ids of shape ``(N, length)`` to logits of the next token, ``(N, vocabulary)``."""

    def __init__(
        self,
        vocabulary: int = 5000,
        width: int = 256,
        heads: int = 8,
        layers: int = 4,
        context: int = 256,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.Sequential(
            *(DecoderLayer(width, heads) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the logits, by the token embeddings again."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.layers(self.tokens(ids) + self.positions(positions)))
        return functional.linear(x[:, -1], self.tokens.weight)
