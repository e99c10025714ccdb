"""Small models that processes divide among them."""

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

from torchtrt_converters_distributed.rows import division


@contextlib.contextmanager
def small_parts() -> Iterator[None]:
    """Divides any number of rows among processes, in a ``with`` block."""
    least, division.LEAST_ROWS = division.LEAST_ROWS, 1
    try:
        yield
    finally:
        division.LEAST_ROWS = least


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        """Returns ``x``'s shape."""
        heads = self.query(self.norm(x)).unflatten(-1, (-1, 2)).transpose(1, 2)
        read = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(self.up(self.second_norm(x)).relu())


class Perceptron(nn.Module):
    """Two layers behind a normalization."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        """Returns ``x``'s shape."""
        return self.down(self.up(self.norm(x)).relu())


def parallel_perceptron(mesh, seed=2):
    """Returns a parallel model, and the undivided one."""
    torch.manual_seed(seed)
    model = Perceptron().eval()
    whole = copy.deepcopy(model)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan), whole
