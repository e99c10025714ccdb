"""A grid of attention: each kind of mask, few and many queries and keys, widths, dtypes, alone and between layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchtrt
from torchtrt.tensorrt import is_real

BATCH, HEADS = 4, 8
MASKS = (
    "none",
    "causal",
    "added",
    "added-heads",
    "added-keys",
    "added-hides-rows",
    "bool",
    "bool-keys",
    "bool-hides-rows",
    "constant",
    "constant-bool",
    "causal-and-bool",
    "computed",
)
"""Masks are inputs unless they are constant; ``keys`` broadcast over queries, ``heads`` do not over heads."""


def between(least: Sequence[torch.Tensor], most: Sequence[torch.Tensor]) -> list[torchtrt.Input]:
    """Returns inputs whose sizes are from those of some tensors to those of others, and optimized for the latter."""
    return [
        torchtrt.Input(
            min_shape=low.shape, opt_shape=high.shape, max_shape=high.shape, dtype=high.dtype
        )
        for low, high in zip(least, most, strict=True)
    ]


@dataclass(frozen=True)
class Attention:
    """One configuration of attention.

    Attributes:
        mask: One of ``MASKS``.
        queries: How many queries there are.
        keys: How many keys there are.
        width: The width of a head.
        dtype: The dtype.
        groups: How many heads of queries share one of keys and values.
        varies: Whether the number of queries and keys may be from 1 to these.
        form: ``"alone"``, ``"between"`` (behind a linear layer and in front of one) or ``"written"`` as a formula.
    """

    mask: str
    queries: int
    keys: int
    width: int = 64
    dtype: torch.dtype = torch.float16
    groups: int = 1
    varies: bool = False
    form: str = "alone"

    @property
    def label(self) -> str:
        """The name that distinguishes it from the others."""
        kind = str(self.dtype).removeprefix("torch.")
        size = f"{self.queries}x{self.keys}x{self.width}"
        grouped = f"-groups{self.groups}" if self.groups > 1 else ""
        varying = "-varying" if self.varies else ""
        return f"{self.mask}-{size}-{kind}{grouped}{varying}-{self.form}"

    def inputs(self, queries: int, keys: int) -> list[torch.Tensor]:
        """Returns query, key, value and the mask, if it is an input, on the GPU if there is one."""
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        key_heads = HEADS // self.groups
        tensors = [
            normal(BATCH, HEADS, queries, self.width),
            normal(BATCH, key_heads, keys, self.width),
            normal(BATCH, key_heads, keys, self.width),
        ]
        device = "cuda" if is_real() else "cpu"
        inputs = [tensor.to(device, self.dtype) for tensor in tensors]
        if (mask := self._mask(normal, queries, keys)) is not None:
            inputs.append(mask.to(device, None if mask.dtype is torch.bool else self.dtype))
        return inputs

    def _mask(self, normal: Any, queries: int, keys: int) -> torch.Tensor | None:
        """Returns a mask of the kind that the label names, or ``None`` if it is not an input.

        A function of a shape, ``normal``, returns the random scores it is made of.
        """
        heads = HEADS if self.mask == "added-heads" else 1
        rows = 1 if self.mask.endswith("keys") else queries
        scores = normal(BATCH, heads, rows, keys)
        if self.mask.endswith("hides-rows"):
            scores[::2, :, :1] = -math.inf
        if self.mask.startswith(("bool", "causal-and-bool")):
            return (
                scores > -0.5
                if self.mask.endswith("hides-rows")
                else (scores > -0.5).index_fill(3, torch.tensor([0]), True)
            )
        return scores if self.mask.startswith(("added", "computed")) else None

    def check(self, settings: Mapping[str, Any]) -> None:
        """Compiles the configuration for the TensorRT in use and compares it with eager PyTorch in float32.

        Raises:
            AssertionError: The results differ.
        """
        torch.manual_seed(0)
        inputs = self.inputs(self.queries, self.keys)
        model = _Model(self).eval().to(inputs[0].device, self.dtype)
        compile_inputs: list[Any] = list(inputs)
        if self.varies:
            smallest = self.inputs(1, 1)
            compile_inputs = between(smallest, inputs)
        compiled = torchtrt.compile(
            model, compile_inputs, require_full_compilation=True, **settings
        )
        sizes = {(self.queries, self.keys)}
        if self.varies:
            sizes |= {(1, 1), (1, self.keys), (min(2, self.queries), min(3, self.keys))}
        for queries, keys in sorted(sizes):
            tensors = self.inputs(queries, keys)
            # PyTorch's kernels disagree about queries that see no key. This one returns 0 for them, as we do.
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                expected = model(*tensors).float()
                actual = compiled(*tensors).float()
            tolerance = 2e-2 if self.dtype is torch.float16 else 1e-4
            torch.testing.assert_close(
                actual,
                expected,
                rtol=tolerance,
                atol=tolerance,
                msg=lambda m: f"{queries}x{keys}: {m}",  # noqa: B023
            )


class _Model(nn.Module):
    """Attention as a model calls it."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.before = nn.Linear(attention.width, attention.width)
        self.behind = nn.Linear(attention.width, attention.width)
        scores = torch.randn(attention.queries, attention.keys)
        self.register_buffer("added", scores)
        self.register_buffer("kept", (scores > -0.5).index_fill(1, torch.tensor([0]), True))

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the attention of the configuration."""
        kind = self.attention.mask
        if self.attention.form == "between":
            query = self.before(query)
        if kind == "constant":
            mask = self.added
        elif kind == "constant-bool":
            mask = self.kept
        elif kind == "causal-and-bool":
            rows, columns = query.shape[2], key.shape[2]
            mask = mask & torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril()
        elif kind == "computed":
            mask = mask.clamp(-1.0, 1.0) * 2
        if self.attention.form == "written":
            result = _written(query, key, value, mask)
        else:
            result = F.scaled_dot_product_attention(
                query,
                key,
                value,
                mask,
                is_causal=kind == "causal",
                enable_gqa=self.attention.groups > 1,
            )
        return self.behind(result) if self.attention.form == "between" else result


def _written(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Returns attention as models write it that do not call PyTorch's."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None and mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value


def _grid() -> Iterator[Attention]:
    """Yields the cases: each kind of mask with lengths, widths, dtypes and groups that pick different kernels."""
    half, single = torch.float16, torch.float32
    for mask, queries, dtype in itertools.product(MASKS, (1, 2, 17), (half, single)):
        yield Attention(mask, queries, 17, dtype=dtype)
    for mask, keys, dtype in itertools.product(MASKS, (1, 2, 128, 2048), (half, single)):
        yield Attention(mask, 1, keys, dtype=dtype)
    for mask, width in itertools.product(("none", "added", "bool", "computed"), (16, 20, 72, 256)):
        for queries in (1, 5):
            yield Attention(mask, queries, 64, width)
    for mask, queries, dtype in itertools.product(MASKS, (1, 64), (half, single)):
        if not mask.startswith("constant"):
            yield Attention(mask, queries, 128, dtype=dtype, varies=True)
    for mask, queries in itertools.product(("none", "causal", "added", "bool"), (1, 4)):
        yield Attention(mask, queries, 33, groups=4)
    for mask, queries, form in itertools.product(MASKS, (1, 3), ("between", "written")):
        if not (form == "written" and mask == "causal") and not mask.endswith("hides-rows"):
            yield Attention(mask, queries, 40, form=form)


GRID = tuple(dict.fromkeys(_grid()))
