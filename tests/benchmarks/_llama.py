"""A Llama that several GPUs divide among them: its layers, its plan, and its random weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F


@dataclass(frozen=True)
class Sizes:
    """The sizes of a Llama, and of what it reads."""

    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 32000
    layers: int = 4
    prompt: int = 2048
    positions: int = 2176

    @property
    def width(self) -> int:
        """The size of a head."""
        return self.hidden // self.heads


SMALL = Sizes(64, 128, 4, 2, 128, 2, 16, 48)


class Norm(nn.Module):
    """The root-mean-square normalization of Llama."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the normalized input."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return wide.to(x.dtype) * self.weight


class Layer(nn.Module):
    """A layer of Llama over a cache of fixed size."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.width = sizes.width
        keys = sizes.kv_heads * sizes.width
        self.norm, self.second_norm = Norm(sizes.hidden), Norm(sizes.hidden)
        self.query = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.key = nn.Linear(sizes.hidden, keys, bias=False)
        self.value = nn.Linear(sizes.hidden, keys, bias=False)
        self.out = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.gate = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.up = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the hidden states, and the new keys and values. Without a mask, attention is causal."""
        normed = self.norm(x)
        query, key, value = (
            module(normed).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for module in (self.query, self.key, self.value)
        )
        query, key = (_rotated(module, *rotation) for module in (query, key))
        if past is None:
            read = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )
        else:
            keys, values = (torch.cat(pair, 2) for pair in ((past[0], key), (past[1], value)))
            read = _attend(query, keys, values, mask)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        normed = self.second_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed)), key, value


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Returns what the query reads: the heads that share one of the cache become the rows of one product."""
    batch, heads, new, width = query.shape
    size, positions = batch * keys.shape[1], keys.shape[2]
    keys, values = (tensor.reshape(size, positions, width) for tensor in (keys, values))
    products = torch.bmm(query.reshape(size, -1, width), keys.transpose(1, 2))
    scores = products.reshape(batch, heads, new, positions) * width**-0.5
    weights = torch.softmax((scores + mask).float(), -1).to(query.dtype)
    read = torch.bmm(weights.reshape(size, -1, positions), values)
    return read.reshape(batch, heads, new, width)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class Llama(nn.Module):
    """Token ids to the logits behind the last one, and the new keys and values of each layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = Norm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        angles = torch.outer(
            torch.arange(sizes.positions).float(),
            1 / 500000 ** (torch.arange(0, sizes.width, 2).float() / sizes.width),
        ).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None = None, *past: Tensor
    ) -> tuple[Tensor, ...]:
        """Returns logits ``(batch, vocabulary)``, then new keys and values, ``(batch, heads, new, width)``, in turn.

        Args:
            ids: ``(batch, new)`` integers.
            positions: ``(new,)`` integers.
            mask: ``(new, cached + new)``: zero where a place may be read, and a large negative number elsewhere. None
                for a prompt.
            past: Keys and values in turn, ``(batch, heads, cached, width)``.
        """
        x = self.embedding(ids)
        rotation = self.cosine[positions], self.sine[positions]
        states: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            x, key, value = layer(
                x, rotation, mask, (past[2 * index], past[2 * index + 1]) if past else None
            )
            states += [key, value]
        return self.head(self.norm(x[:, -1])), *states


PLAN = {
    **{f"layers.*.{name}": ColwiseParallel for name in ("query", "key", "value", "gate", "up")},
    **{f"layers.*.{name}": RowwiseParallel for name in ("out", "down")},
}


def llama(sizes: Sizes, device: torch.device, dtype: torch.dtype, mesh: Any = None) -> Llama:
    """Returns a model of random weights, the same in all processes; tensor-parallel on a mesh."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Llama(sizes).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02 if "embedding" not in name else 1.0)
    model = model.to(dtype)
    if mesh is not None:
        model = parallelize_module(model, mesh, {name: style() for name, style in PLAN.items()})
    return model
