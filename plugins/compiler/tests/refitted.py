"""Models whose weights are replaced."""

from __future__ import annotations

import copy

import torch
from torch import nn

import torchtrt


class Folded(nn.Module):
    """Weights transposed, cast, expanded, multiplied with each other, and read twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.rand(4, 4))
        self.second = nn.Parameter(torch.rand(4, 4))
        self.scale = nn.Buffer(torch.rand(4))
        self.ids = nn.Buffer(torch.randint(0, 4, (4,)))
        self.frequencies = nn.Buffer(torch.rand(4), persistent=False)

    def forward(self, x):
        combined = (self.first.t() @ self.second).half().float() + self.scale[:, None].expand(4, 4)
        gathered = self.first[self.ids]
        again = self.frequencies.cos()
        x = x * again[None] + again.unsqueeze(0)
        y = x @ combined + x @ self.first + nn.functional.linear(x, self.first) * self.scale.exp()
        return y + gathered + self.frequencies + self.scale.flip(0) * torch.ones(4) + self.ids


class Tied(nn.Module):
    """An embedding that is also the head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding((x * 6).long()) + x[..., None])


class Half(nn.Module):
    """Weights in float16."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4).half()

    def forward(self, x):
        return self.linear(x.half())


X = torch.rand(4, 4)


def made(kind, seed):
    """Returns a model with weights of its own, statistics included."""
    torch.manual_seed(seed)
    model = kind().eval()
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and "running" in name:
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model


def compiled(model, **options):
    """Returns a model compiled for other weights."""
    options = {"min_block_size": 1, "immutable_weights": False, **options}
    return torchtrt.compile(model, [X], **options)


def agree(model, *others, tolerance=2e-3):
    """Compares what models return, on values with both outcomes of branches."""
    for x in (X, X / 2) if isinstance(model, Tied) else (X, X * 3, X - 1):
        state = [copy.deepcopy(module) for module in (model, *others)]
        expected, *results = (module(x) for module in state)
        for result in results:
            torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
