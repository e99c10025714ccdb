"""A step of a language model over its cache: the forms that attention may have there, as one engine or divided.

A form is a way to write the same numbers. TensorRT may find no kernel for a form as a whole; torchtrt then divides the
block, and the outcome records it. This part therefore finds the forms that a TensorRT takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchtrt
import torchtrt_converters_transformers.decompositions.attention  # noqa: F401  defines the op
from tools.sweep.attention import between
from torchtrt.tensorrt import is_real

HEADS, WIDTH, CACHED, BATCH, NEW = 4, 8, 40, 6, 8


@dataclass(frozen=True)
class Step:
    """One configuration of a step.

    Attributes:
        form: One of ``FORMS``.
        rotates: Whether queries and keys are rotated by their place.
        groups: How many heads of queries share one of keys and values.
        dtype: The dtype.
        varies: Whether there may be from 1 to ``NEW`` new tokens, and not one.
    """

    form: str
    rotates: bool
    groups: int
    dtype: torch.dtype
    varies: bool

    @property
    def label(self) -> str:
        """The name that distinguishes it from the others."""
        kind = str(self.dtype).removeprefix("torch.")
        rotary = "-rotary" if self.rotates else ""
        return f"{self.form}{rotary}-groups{self.groups}-{kind}{'-varying' if self.varies else ''}"

    def inputs(self, batch: int, new: int) -> list[Tensor]:
        """Returns hidden states, cosines, sines, the mask of the cache, and the cache, on the GPU if there is one."""
        generator = torch.Generator().manual_seed(0)
        angles = torch.randn(batch, new, WIDTH, generator=generator)
        past = torch.randn(2, batch, HEADS // self.groups, CACHED, WIDTH, generator=generator)
        hidden = torch.randn(batch, new, HEADS * WIDTH, generator=generator)
        first = 10 + torch.arange(batch)  # so many places of the cache are padding
        allowed = torch.arange(CACHED) >= first[:, None, None, None]
        device = "cuda" if is_real() else "cpu"
        floats = [hidden, angles.cos(), angles.sin()]
        return [
            *(float_.to(device, self.dtype) for float_ in floats),
            allowed.to(device),
            past.to(device, self.dtype),
        ]

    def check(self, settings: Mapping[str, Any]) -> None:
        """Compiles the step for the TensorRT in use, and compares it with eager PyTorch.

        Raises:
            AssertionError: The results differ, or the step has several engines.
        """
        torch.manual_seed(0)
        sizes = ((1, 1), (BATCH, NEW if self.varies else 1))
        low, high = (self.inputs(*size) for size in sizes)
        model = _Model(self).eval().to(high[0].device, self.dtype)
        compiled = torchtrt.compile(
            model, between(low, high), require_full_compilation=True, **settings
        )
        tolerance = 2e-2 if self.dtype is torch.float16 else 1e-4
        for inputs in (low, high):
            with torch.no_grad():
                expected, actual = model(*inputs), compiled(*inputs)
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
        if splits := compiled.report.splits:
            raise AssertionError(f"{len(compiled.report.blocks)} engines: {splits[-1]}")


class _Model(nn.Module):
    """A layer of a language model up to the projection behind its attention."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        width, shared = HEADS * WIDTH, HEADS // step.groups * WIDTH
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, shared), nn.Linear(width, shared)

    def forward(
        self,
        hidden: Tensor,
        cosine: Tensor,
        sine: Tensor,
        past_mask: Tensor,
        past: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Returns the result and the new keys and values."""
        query, key, value = (
            projection(hidden).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        if self.step.rotates:
            query, key = (
                _rotated(tensor, cosine[:, None], sine[:, None]) for tensor in (query, key)
            )
        new = hidden.shape[1]
        mask = torch.ones(new, new, dtype=torch.bool, device=hidden.device).tril()
        mask = mask.expand(hidden.shape[0], 1, -1, -1)
        read = FORMS[self.step.form](query, key, value, mask, past_mask, past)
        return self.out(read.transpose(1, 2).flatten(2)), torch.stack((key, value))


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


def _op(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, past_mask: Tensor, past: Tensor
) -> Tensor:
    """As ``compile_for_generation`` has it."""
    result: Tensor = torch.ops.torchtrt_transformers.cached_attention(
        query, key, value, mask, past[0], past[1], past_mask, WIDTH**-0.5, None
    )
    return result


def _joined(past: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)


def _allowed(past_mask: Tensor, mask: Tensor) -> Tensor:
    return torch.cat((past_mask.expand(-1, -1, mask.shape[2], -1), mask), -1)


def _sliced(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, past_mask: Tensor, past: Tensor
) -> Tensor:
    """One softmax of scores that are joined, and whose weights are taken apart again."""
    batch, heads, new, _ = query.shape
    groups, cached = heads // key.shape[1], past.shape[3]
    rows = query.reshape(batch, key.shape[1], groups * new, WIDTH)

    def scores(keys: Tensor, allowed: Tensor) -> Tensor:
        products = (rows @ keys.transpose(-1, -2)).reshape(batch, heads, new, keys.shape[2])
        return torch.where(allowed, products.float() * WIDTH**-0.5, torch.finfo(torch.float32).min)

    def read(weights: Tensor, values: Tensor) -> Tensor:
        return weights.reshape(batch, key.shape[1], groups * new, values.shape[2]) @ values

    joined = torch.cat((scores(past[0], past_mask), scores(key, mask)), -1)
    weights = joined.softmax(-1).to(value.dtype)
    result = read(weights[..., :cached], past[1]) + read(weights[..., cached:], value)
    return result.reshape(batch, heads, new, WIDTH)


def _repeated(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, past_mask: Tensor, past: Tensor
) -> Tensor:
    """PyTorch's attention over copies: of the cache with the new tokens, for every head of the query."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (tensor.repeat_interleave(groups, 1) for tensor in _joined(past, key, value))
    return F.scaled_dot_product_attention(query, keys, values, _allowed(past_mask, mask))


def _rows(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, past_mask: Tensor, past: Tensor
) -> Tensor:
    """Heads that share a key are rows of one product, and stay rows up to the end."""
    groups = query.shape[1] // key.shape[1]
    keys, values = _joined(past, key, value)
    allowed = _allowed(past_mask, mask).repeat(1, 1, groups, 1)
    rows = query.unflatten(1, (-1, groups)).flatten(2, 3)
    scores = (rows @ keys.transpose(-1, -2)).float() * WIDTH**-0.5
    weights = torch.where(allowed, scores, torch.finfo(torch.float32).min).softmax(-1)
    return (weights.to(value.dtype) @ values).unflatten(2, (groups, -1)).flatten(1, 2)


def _five(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, past_mask: Tensor, past: Tensor
) -> Tensor:
    """Products of five dimensions: keys are broadcast over the heads that share them."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (tensor.unsqueeze(2) for tensor in _joined(past, key, value))
    allowed = _allowed(past_mask, mask).unsqueeze(1)
    rows = query.unflatten(1, (-1, groups))
    scores = (rows @ keys.transpose(-1, -2)).float() * WIDTH**-0.5
    weights = torch.where(allowed, scores, torch.finfo(torch.float32).min).softmax(-1)
    return (weights.to(value.dtype) @ values).flatten(1, 2)


FORMS: dict[str, Callable[..., Tensor]] = {
    "op": _op,
    "sliced": _sliced,
    "repeated": _repeated,
    "rows": _rows,
    "five": _five,
}


def _grid() -> Iterator[Step]:
    choices = itertools.product(
        (torch.float32, torch.float16), FORMS, (True, False), (2, 1), (True, False)
    )
    for dtype, form, rotates, groups, varies in choices:
        yield Step(form, rotates, groups, dtype, varies)


GRID = tuple(_grid())
