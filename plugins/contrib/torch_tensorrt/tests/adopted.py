"""Modules as they are written for Torch-TensorRT."""

from __future__ import annotations

import torch
from torch import nn

library = torch.library.Library("adopted", "DEF")
library.define("blend(Tensor x, Tensor y, float share=0.5) -> Tensor")
library.define("norm_rows(Tensor x, Tensor weight, float eps) -> Tensor")
library.define("positions(Tensor x) -> Tensor")
library.define("pick(Tensor x) -> Tensor")
library.define("lazy(Tensor x) -> Tensor")
library.define("legacy(Tensor x) -> Tensor")


@torch.library.impl(library, "blend", "CompositeExplicitAutograd")
def blend(x, y, share=0.5):
    """A weighted mean."""
    return x * share + y * (1 - share)


@torch.library.impl(library, "norm_rows", "CompositeExplicitAutograd")
def norm_rows(x, weight, eps):
    """Rows divided by their norm."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@torch.library.impl(library, "positions", "CompositeExplicitAutograd")
def positions(x):
    """Where each row stands, behind a causal mask."""
    size = x.shape[0]
    mask = torch.arange(size)[:, None] >= torch.arange(size)[None, :]
    return torch.where(mask, 1.0, 0.0) @ x


@torch.library.impl(library, "pick", "CompositeExplicitAutograd")
def pick(x):
    """The place of the largest."""
    return x.argmax(1)


@torch.library.impl(library, "lazy", "CompositeExplicitAutograd")
def lazy(x):
    """One more."""
    return x + 1


@torch.library.impl(library, "legacy", "CompositeExplicitAutograd")
def legacy(x):
    """An exponential."""
    return x.exp()


torch.library.register_fake("adopted::positions", positions)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("weight", torch.linspace(0.5, 1.5, 6))

    def forward(self, *inputs):
        """Calls the function."""
        return self.function(self, *inputs)


X, Y = torch.randn(4, 6), torch.randn(4, 6)
