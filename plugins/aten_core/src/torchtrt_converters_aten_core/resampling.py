"""How PyTorch resamples images, which converters and decompositions have to know."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt_blocks import sizes
from torchtrt_converters_aten_core.weighted_sums import Taps

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Kind:
    """How an op resamples: TensorRT's names, without ``align_corners``."""

    mode: str
    coordinates: str
    rounding: str = "FLOOR"


NEAREST = Kind("NEAREST", "ASYMMETRIC")
EXACT = Kind("NEAREST", "HALF_PIXEL", "HALF_UP")
LINEAR = Kind("LINEAR", "HALF_PIXEL")
CUBIC = Kind("CUBIC", "HALF_PIXEL")
KINDS = {
    getattr(getattr(aten, packet), overload): kind
    for packet, kind in (
        ("upsample_nearest1d", NEAREST),
        ("upsample_nearest2d", NEAREST),
        ("upsample_nearest3d", NEAREST),
        ("_upsample_nearest_exact1d", EXACT),
        ("_upsample_nearest_exact2d", EXACT),
        ("_upsample_nearest_exact3d", EXACT),
        ("upsample_linear1d", LINEAR),
        ("upsample_bilinear2d", LINEAR),
        ("upsample_trilinear3d", LINEAR),
        ("upsample_bicubic2d", CUBIC),
    )
    for overload in ("default", "vec")
}
"""The ops that resample, and how."""


def unlike_formula(kind: Kind, count: int, size: int | torch.SymInt, factor: float) -> str | None:
    """Returns why eager PyTorch does not resample a size by a factor alone, or ``None``.

    Some of its functions copy a dimension that keeps its size, whatever the factor is. Some repeat each element of one
    that doubles it. The functions for the CPU and for CUDA differ: see ``nearest_idx`` in PyTorch's
    ``aten/src/ATen/native/UpSample.h``, and ``cuda/UpSample*.cu`` beside it.

    Args:
        kind: How the op resamples.
        count: The number of spatial dimensions.
        size: The size, with the least one that it can be. A single element is copied either way.
        factor: The factor.
    """
    if kind.mode == "NEAREST" and count != 2:
        return None
    least = max(sizes.minimum(size) or 0, 2)
    if factor > 1 and int(least * factor) == least:
        return (
            f"PyTorch copies what keeps its size, and the factor {factor} keeps a size of {least}"
        )
    if kind is NEAREST and factor > 2 and int(least * factor) == 2 * least:
        return f"PyTorch repeats what doubles its size, and the factor {factor} doubles a size of {least}"
    return None


def nearest(
    kind: Kind, size: int, extent: int, factor: float | None, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Returns the nearest old element of each new one, ``(extent,)``, int32, by positions in a floating-point dtype.

    See ``compute_scales_value`` and ``nearest_idx`` in PyTorch's ``aten/src/ATen/native/UpSample.h``.

    Args:
        kind: How the op resamples.
        size: The old size.
        extent: The new size.
        factor: The factor, or ``None`` for the ratio of the sizes.
        dtype: float32, as in PyTorch, or float64.
    """
    ratio = torch.tensor(size, dtype=dtype) / extent
    step = ratio if factor is None else torch.tensor(1 / factor, dtype=dtype)
    index = torch.arange(extent, dtype=dtype) + (0.5 if kind is EXACT else 0.0)
    return (index * step).to(torch.int32).clamp(max=size - 1)


_MOST_PAIRS = 1 << 12
"""For how many pairs of sizes the nearest elements are compared."""


def rounds_otherwise(
    kind: Kind, size: int | torch.SymInt, extent: int | torch.SymInt, factor: float | None
) -> bool:
    """Returns whether float32, in which PyTorch computes positions, may round to another element than the exact ratio.

    Args:
        kind: How the op resamples, by the nearest element.
        size: The old size, which may vary.
        extent: The new size, likewise.
        factor: The factor, or ``None``.
    """
    from torchtrt.graphs import symbol_bounds  # slow to import

    bounds: dict[Any, tuple[int | None, int | None]] = {}
    for number in (size, extent):
        if isinstance(number, torch.SymInt):
            bounds.update(symbol_bounds(number))
    ranges = []
    for symbol in sorted(bounds, key=str):
        least, most = bounds[symbol]
        if least is None or most is None:
            return True
        ranges.append((symbol, range(least, most + 1)))
    if math.prod(len(values) for _, values in ranges) > _MOST_PAIRS:
        return True
    expressions = (
        number.node.expr if isinstance(number, torch.SymInt) else number
        for number in (size, extent)
    )
    return _rounds_otherwise(kind, *expressions, tuple(ranges), factor)


@functools.lru_cache(maxsize=256)  # the compiler asks for each op several times
def _rounds_otherwise(
    kind: Kind,
    size: Any,
    extent: Any,
    ranges: tuple[tuple[Any, range], ...],
    factor: float | None,
) -> bool:
    """Returns what ``rounds_otherwise`` does for expressions of sizes, and the values of each of their symbols."""
    from torchtrt.graphs import size_at  # slow to import

    symbols = [symbol for symbol, _ in ranges]
    pairs: set[tuple[int, int]] = set()
    for combination in itertools.product(*(values for _, values in ranges)):
        of_symbols = dict(zip(symbols, combination, strict=True))
        pairs.add((size_at(size, of_symbols), size_at(extent, of_symbols)))
    return any(
        not torch.equal(nearest(kind, *pair, factor), nearest(kind, *pair, None, torch.float64))
        for pair in pairs
        if min(pair) > 0
    )


CUBIC_COEFFICIENT = -0.75
"""The parameter of cubic convolution, in PyTorch."""
_ANY_SIZE = 1 << 24
"""A size beyond all positions, where the size itself is not known."""


def taps_of(kind: Kind, factor: float, extent: int) -> Taps:
    """Returns the elements of each of so many new ones, as PyTorch resamples by a factor, in float32.

    See ``area_pixel_compute_source_index`` and ``get_cubic_upsample_coefficients`` in PyTorch's
    ``aten/src/ATen/native/UpSample.h``.
    """
    if kind.mode == "NEAREST":
        return Taps(nearest(kind, _ANY_SIZE, extent, factor)[None], torch.ones(1, extent))
    step = torch.tensor(1 / factor, dtype=torch.float32)
    index = torch.arange(extent, dtype=torch.float32)
    source = (index + 0.5) * step - 0.5
    if kind is LINEAR:
        source = source.clamp(min=0)
    first = source.floor()
    rest = source - first
    offsets = torch.tensor([0.0, 1.0] if kind is LINEAR else [-1.0, 0.0, 1.0, 2.0])[:, None]
    positions = (first + offsets).clamp(min=0).to(torch.int32)
    distances = (rest - offsets).abs()
    return Taps(positions, 1 - distances if kind is LINEAR else _cubic_weights(distances))


def _cubic_weights(distances: torch.Tensor) -> torch.Tensor:
    """Returns the weights of elements at distances from 0 to 2: Keys' cubic convolution."""
    a, x = CUBIC_COEFFICIENT, distances
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return torch.where(x <= 1, near, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)
