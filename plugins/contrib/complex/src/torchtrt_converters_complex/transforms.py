"""Fourier transforms as products with matrices.

A transform of up to ``DENSE`` elements is one product. A longer one is made of two shorter ones and of factors
between them (Cooley and Tukey, An Algorithm for the Machine Calculation of Complex Fourier Series, 1965).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torchtrt.conversion import arguments_of
from torchtrt_converters_complex.pairs import Pair

aten = torch.ops.aten

TRANSFORMS = frozenset({aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default})
DENSE = 128
"""The length up to which a transform is not split."""
LONGEST = 1024
"""The maximum length that is a single product: 4 MiB for each of its two matrices."""

Parts = tuple[Tensor, "Tensor | None"]
"""The real and the imaginary part; ``None`` for real values."""
Step = Callable[[Parts, Sequence[Tensor]], tuple[Tensor, Tensor]]
"""Transforms the last dimension; receives all tables."""


@dataclass
class Transform:
    """A transform over several dimensions.

    Attributes:
        tables: The matrices and factors that it reads, in float64.
        steps: For each dimension in order, its number and what transforms it when it is the last one.
        scale: The factor of the result.
        inverse_of_real: Whether the result is real, from half of a spectrum.
        length: In that case, how many elements the last dimension has.
        half: Otherwise, how many elements of the first step's result are kept, or None for all.
    """

    tables: list[Tensor] = field(default_factory=list)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    scale: float = 1.0
    inverse_of_real: bool = False
    length: int = 0
    half: int | None = None

    def run(self, value: Any, tables: Sequence[Tensor]) -> Any:
        """Returns the transform of a pair or of a real tensor: a pair, or a real tensor."""
        parts: Parts = (value.real, value.imag) if isinstance(value, Pair) else (value, None)
        for index, (dim, step) in enumerate(self.steps):
            is_last = index + 1 == len(self.steps)
            real, imag = (None if part is None else part.movedim(dim, -1) for part in parts)
            assert real is not None
            if self.inverse_of_real and is_last:
                assert imag is not None
                real, imag = _whole(real, imag, self.length)
            real, imag = step((real, imag), tables)
            if index == 0 and self.half is not None:
                real, imag = real.narrow(-1, 0, self.half), imag.narrow(-1, 0, self.half)
            parts = real.movedim(-1, dim), imag.movedim(-1, dim)
        real, imag = parts
        if self.scale != 1:
            real, imag = real * self.scale, None if imag is None else imag * self.scale
        return real if self.inverse_of_real else Pair(real, imag)


def objection(node: Node) -> str | None:
    """Returns why a transform has no form in products of matrices, or ``None``."""
    for length in _lengths(node):
        if not isinstance(length, int):
            return "the length of a Fourier transform must be fixed"
        if not length:
            return "a Fourier transform has no elements"
        if not _is_possible(length):
            return (
                f"a Fourier transform of {length} elements has a prime factor beyond {LONGEST}, "
                "so that its matrix would be too large"
            )
    return None


def _lengths(node: Node) -> list[Any]:
    op = arguments_of(node)
    shape = op.self.meta["val"].shape
    lengths = [shape[dim] for dim in op.dim]
    if node.target is aten._fft_c2r.default:
        lengths[-1] = op.last_dim_size
    return lengths


def _is_possible(length: int) -> bool:
    first, second = _split(length)
    return length <= LONGEST if first == 1 else _is_possible(first) and _is_possible(second)


def _split(length: int) -> tuple[int, int]:
    """Returns two factors of a length, the first one 1 where it is not split."""
    if length <= DENSE:
        return 1, length
    first = next(index for index in range(math.isqrt(length), 0, -1) if length % index == 0)
    return first, length // first


def transform_of(node: Node) -> Transform:
    """Returns the transform that a node computes, to which ``objection`` has no objection."""
    op, lengths = arguments_of(node), _lengths(node)
    rank = op.self.meta["val"].dim()
    order = [(dim % rank, length) for dim, length in zip(op.dim, lengths, strict=True)]
    scales = (1.0, 1 / math.sqrt(math.prod(lengths)), 1 / math.prod(lengths))
    made = Transform(scale=scales[op.normalization])
    forward = True
    if node.target is aten._fft_r2c.default:
        order.reverse()  # the real dimension first, the others over half of its results
        made.half = order[0][1] // 2 + 1 if op.onesided else None
    elif node.target is aten._fft_c2c.default:
        forward = op.forward
    else:
        forward, made.inverse_of_real, made.length = False, True, order[-1][1]
    for index, (dim, length) in enumerate(order):
        columns = made.half if index == 0 else None
        made.steps.append((dim, _step(length, forward, made.tables, columns)))
    return made


def _turns(rows: int, columns: int, length: int, forward: bool) -> list[Tensor]:
    """Returns cosine and sine of the angles between powers, reduced to one turn before they lose digits."""
    product = torch.arange(rows).unsqueeze(1) * torch.arange(columns)
    angles = (product % length).to(torch.float64) * (2 * math.pi / length)
    return [torch.cos(angles), torch.sin(angles) * (-1 if forward else 1)]


def _step(length: int, forward: bool, tables: list[Tensor], columns: int | None = None) -> Step:
    """Returns what transforms the last dimension of a length, and adds the tables that it reads.

    Args:
        length: The length.
        forward: The direction.
        tables: The tables so far.
        columns: How many elements of the result are needed, all by default; a split transform returns all.
    """
    first, second = _split(length)
    if first == 1:
        offset = len(tables)
        tables += _turns(length, columns or length, length, forward)
        return lambda parts, table_values: _times(
            parts, table_values[offset], table_values[offset + 1]
        )
    inner, outer = _step(first, forward, tables), _step(second, forward, tables)
    offset = len(tables)
    tables += _turns(first, second, length, forward)

    def run(parts: Parts, table_values: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Transforms columns, turns each element, and transforms rows."""
        columns = tuple(
            None if part is None else part.unflatten(-1, (first, second)).mT for part in parts
        )
        real, imag = (part.mT for part in inner(columns, table_values))  # type: ignore[arg-type]
        cosine, sine = table_values[offset], table_values[offset + 1]
        turned = real * cosine - imag * sine, real * sine + imag * cosine
        real, imag = outer(turned, table_values)
        return real.mT.flatten(-2), imag.mT.flatten(-2)

    return run


def _times(parts: Parts, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the product of the last dimension with a complex matrix."""
    real, imag = parts
    if imag is None:
        return real @ cosine, real @ sine
    return real @ cosine - imag @ sine, real @ sine + imag @ cosine


def _whole(real: Tensor, imag: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Returns the spectrum of a real signal from its one half along the last dimension."""
    rows, rest = length // 2 + 1, (length - 1) // 2
    real, imag = real.narrow(-1, 0, rows), imag.narrow(-1, 0, rows)
    if not rest:
        return real, imag
    mirrored = (part.narrow(-1, 1, rest).flip(-1) for part in (real, imag))
    other_real, other_imag = mirrored
    return torch.cat([real, other_real], -1), torch.cat([imag, -other_imag], -1)
