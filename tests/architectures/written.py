"""The architectures that are written here: small, but with every kind of op that the real ones have."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm


def _convolutions(channels_in: int, channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (channels_in, channels):
        layers += [
            nn.Conv2d(width, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger et al., "U-Net" (2015): a contracting and an expanding path, joined level by level."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(_convolutions, (3, *widths[:-1]), widths))
        self.rise = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, stride=2)
            for above, below in itertools.pairwise(widths)
        )
        self.up = nn.ModuleList(_convolutions(2 * width, width) for width in widths[:-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Maps ``(N, 3, H, W)`` to ``(N, 2, H, W)``; H and W are divisible by 4."""
        kept = []
        x = images
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([kept[level], self.rise[level](x)], dim=1))
        return self.head(x)


class FeaturePyramid(nn.Module):
    """The backbone of Mask R-CNN: a CNN with a feature pyramid (Lin et al., 2017) and a proposal head."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32), width: int = 16) -> None:
        super().__init__()
        self.stages = nn.ModuleList(map(_convolutions, (3, *widths[:-1]), widths))
        self.lateral = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in widths)
        self.objectness = nn.Conv2d(width, 3, 1)
        self.deltas = nn.Conv2d(width, 12, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Maps ``(N, 3, H, W)`` to objectness ``(N, A)`` and box deltas ``(N, A, 4)`` of all anchors."""
        features = []
        x = images
        for stage in self.stages:
            x = functional.max_pool2d(stage(x), 3, stride=2, padding=1)
            features.append(x)
        above = self.lateral[-1](features[-1])
        levels = [above]
        for feature, lateral in zip(features[-2::-1], list(self.lateral)[-2::-1], strict=True):
            size = feature.shape[-2:]
            above = lateral(feature) + functional.interpolate(above, size=size, mode="nearest")
            levels.append(above)
        smoothed = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]
        scores = [self.objectness(level).flatten(1).sigmoid() for level in smoothed]
        boxes = [
            self.deltas(level).permute(0, 2, 3, 1).reshape(level.shape[0], -1, 4)
            for level in smoothed
        ]
        return torch.cat(scores, dim=1), torch.cat(boxes, dim=1)


class DeepLab(nn.Module):
    """Chen et al., "Rethinking Atrous Convolution" (2017): dilated convolutions in parallel, and image pooling."""

    def __init__(self, width: int = 16, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.SiLU())
        self.branches = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)
        )
        self.pooled = nn.Conv2d(width, width, 1)
        self.project = nn.Conv2d(4 * width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Maps ``(N, 3, H, W)`` to ``(N, classes, H, W)``."""
        x = self.stem(images)
        pooled = functional.adaptive_avg_pool2d(x, 1)
        pooled = functional.interpolate(self.pooled(pooled), size=x.shape[-2:], mode="bilinear")
        x = torch.cat([pooled, *(branch(x) for branch in self.branches)], dim=1)
        size = images.shape[-2:]
        return functional.interpolate(
            self.project(x), size=size, mode="bilinear", align_corners=False
        )


class DiffusionBlock(nn.Module):
    """One level of a denoising U-Net (Ho et al., 2020): group norms, a time embedding, self-attention."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm3 = nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.up = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, latents: Tensor, timesteps: Tensor) -> Tensor:
        """Maps latents ``(N, 4, H, W)`` at int64 timesteps ``(N,)`` to noise of the latents' shape."""
        half = self.width // 2
        rates = torch.exp(torch.arange(half) * (-math.log(10000.0) / half)).to(latents.device)
        angles = timesteps[:, None].float() * rates[None]
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        embedded = self.time(waves.to(latents.dtype))
        x = self.enter(latents)
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + embedded[:, :, None, None]
        x = x + self.conv2(functional.silu(self.norm2(y)))
        batch, channels, height, width = x.shape
        tokens = self.norm3(x).flatten(2).transpose(1, 2)
        q, k, v = (
            part.reshape(batch, -1, 2, channels // 2).transpose(1, 2)
            for part in self.qkv(tokens).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        y = self.out(y.transpose(1, 2).reshape(batch, height * width, channels))
        x = x + y.transpose(1, 2).reshape(batch, channels, height, width)
        x = functional.interpolate(self.down(x), scale_factor=2.0, mode="nearest")
        return self.up(x)


class SpeechConvolutions(nn.Module):
    """One-dimensional convolutions with weight norm, as in wav2vec and neural vocoders."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 10, stride=5, bias=False),
            nn.GroupNorm(width, width),
            nn.GELU(),
            nn.Conv1d(width, width, 3, stride=2, bias=False),
            nn.GELU(),
        )
        self.position = weight_norm(
            nn.Conv1d(width, width, 8, padding=4, groups=4), name="weight", dim=2
        )
        self.rise = weight_norm(nn.ConvTranspose1d(width, 4, 4, stride=2, padding=1))

    def forward(self, samples: Tensor) -> Tensor:
        """Maps samples ``(N, L)`` to ``(N, 4, T)``, T about L / 5."""
        x = self.features(samples[:, None])
        x = x + functional.gelu(self.position(x)[:, :, :-1])
        return torch.tanh(self.rise(functional.leaky_relu(x, 0.1)))


class Tagger(nn.Module):
    """A bidirectional LSTM tagger (Huang et al., 2015)."""

    def __init__(self, words: int = 50, width: int = 16, tags: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, words: Tensor) -> Tensor:
        """Maps int64 words ``(N, L)`` to log-probabilities ``(N, L, tags)``."""
        hidden, _ = self.lstm(self.embedding(words))
        return functional.log_softmax(self.head(hidden), dim=-1)


class GraphNetwork(nn.Module):
    """Message passing over an edge list (Gilmer et al., 2017): gather, an edge network, scatter-add, a readout."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Linear(4, width)
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.update = nn.GRUCell(width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Maps node features ``(V, 4)`` and int64 edges ``(2, E)`` to ``(V, 3)``."""
        x = torch.tanh(self.enter(nodes))
        sources, targets = edges[0], edges[1]
        for _ in range(2):
            messages = self.message(torch.cat([x[sources], x[targets]], dim=-1))
            received = torch.zeros_like(x).index_add(0, targets, messages)
            degree = torch.zeros_like(x[:, 0]).scatter_add(
                0, targets, torch.ones_like(messages[:, 0])
            )
            x = self.update(received / degree.clamp(min=1.0)[:, None], x)
        return self.head(x)


class MixtureOfExperts(nn.Module):
    """A sparse mixture of experts, computed densely: top-2 gates weigh the outputs of all experts."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.enter = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.leave = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps ``(N, L, width)`` to the same shape."""
        scores = self.gate(tokens).softmax(dim=-1)
        best, experts = torch.topk(scores, 2, dim=-1)
        best = best / best.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(scores).scatter(-1, experts, best)
        hidden = functional.silu(torch.einsum("nlw,ewh->nleh", tokens, self.enter))
        outputs = torch.einsum("nleh,ehw->nlew", hidden, self.leave)
        return tokens + (outputs * gates.unsqueeze(-1)).sum(dim=2)
