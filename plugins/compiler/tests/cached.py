"""Models compiled with a cache of engines."""

from __future__ import annotations

import torch
from torch import nn

import torchtrt

INPUTS = (torch.linspace(-1, 2, 16).reshape(4, 4), torch.linspace(3, -1, 16).reshape(4, 4).cos())


def compiled(model, folder, inputs=INPUTS, **options):
    """Returns a model compiled with a cache."""
    options = {"min_block_size": 1, "engine_cache": folder, **options}
    return torchtrt.compile(model.eval(), inputs, **options)


def hits(model):
    """Returns for each engine whether it came from the cache."""
    return [block.cached for block in model.report.blocks]


BASE = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
VARYING = torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(8, 4))
