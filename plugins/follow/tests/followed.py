"""Models that are followed."""

from __future__ import annotations

import torch
from torch import nn

import torchtrt


class Block(nn.Module):
    """Weights, a switch, a number, and a result in a dictionary."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)
        self.gain = 2.0
        self.config = {"name": "block"}

    @property
    def width(self):
        """The elements of a row."""
        return self.first.in_features

    def forward(self, x, mask=None, *, as_dict=False):
        """Returns as many rows."""
        y = self.second(self.first(x).relu()) * self.gain
        if mask is not None:
            y = y * mask
        return {"rows": y, "nothing": None} if as_dict else y


def made(kind=Block, seed=0):
    """Returns a model in eval mode."""
    torch.manual_seed(seed)
    return kind().eval()


def followed(model, **options):
    """Returns a model followed, with blocks of any size."""
    return torchtrt.follow(model, min_block_size=1, **options)


def agree(compiled, model, *args, **kwargs):
    """Compares a call with the model's own."""
    with torch.no_grad():
        actual, expected = compiled(*args, **kwargs), model(*args, **kwargs)
    assert type(actual) is type(expected)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


X = torch.rand(3, 4)


def programs(model):
    """Returns the compiled programs of a followed model."""
    return model.torchtrt.programs
