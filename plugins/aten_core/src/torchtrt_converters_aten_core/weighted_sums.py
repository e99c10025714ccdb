"""Sums of a few elements along a dimension, each element of the result with weights of its own.

A product with a matrix would give the same sums of numbers. But it reads all elements for each result, and 0 times NaN
or infinity is NaN: so an element must not be read where it is not in the window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor, Size
from torchtrt_blocks import elementwise, indexing, reduction, shape, sizes, types


class Taps(NamedTuple):
    """The elements along a dimension that each new element is the sum of.

    Attributes:
        positions: Where they are, ``(count, new size)``, int32. One beyond the last element stands for the last.
        weights: Their weights, ``(count, new size)``, float32.
    """

    positions: torch.Tensor
    weights: torch.Tensor


def taps_in(windows: torch.Tensor, weights: torch.Tensor) -> Taps:
    """Returns the elements of windows. A window that is narrower than others has one element in several equal parts.

    Args:
        windows: Which elements are in which window, at least one in each: bool, ``(old size, new size)``.
        weights: Their weights in it, float32, likewise.
    """
    width = int(windows.sum(0).max())
    positions = windows.to(torch.int32).argsort(stable=True, dim=0, descending=True)[:width]
    is_outside = ~windows.gather(0, positions)
    positions = torch.where(is_outside, positions[0], positions)
    is_shared = is_outside.clone()
    is_shared[0] = True
    parts = torch.where(is_shared, is_shared.sum(0), 1)
    return Taps(positions.to(torch.int32), weights.gather(0, positions) / parts)


_MOST_LAYERED = 4
"""Sums of more elements than cubic interpolation has are three layers that gather all elements at once."""


def sum_of_taps(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    taps: Taps,
    dim: int,
    lengths: tuple[Size, Size] | None = None,
) -> NetworkTensor:
    """Returns sums of elements along a dimension, computed in float32; one element is taken as it is.

    Sums of ``n`` elements, up to four, are ``3 * n - 1`` layers beside constants; those of more elements are three.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        taps: The elements, at most four where the sizes vary.
        dim: The dimension.
        lengths: Its old and its new size where they vary; the new one is at most that of the taps.
    """
    dtype = ctx.dtype_of(tensor)
    is_sum = not bool((taps.weights == 1).all())
    inner = types.accumulation_dtype(dtype) if is_sum else dtype
    wide = types.cast(ctx, tensor, inner)
    beside = len(tensor.shape) - dim - 1
    if len(taps.positions) > _MOST_LAYERED:
        return types.cast(ctx, _at_once(ctx, wide, taps, dim, inner), dtype)
    last: Any = None if lengths is None else sizes.combine(ctx, "SUB", lengths[0], 1)
    total: NetworkTensor | None = None
    for positions, weights in zip(taps.positions, taps.weights, strict=True):
        indices, column = ctx.tensor(positions), weights.reshape(-1, *[1] * beside)
        factors: Any = column
        if lengths is not None:
            _, extent = lengths
            taken = shape.slice_by(ctx, indices, [0], [extent], [1])
            indices = elementwise.arithmetic(ctx, "MIN", taken, last, torch.int32)
            if is_sum:
                start, step = [0] * column.dim(), [1] * column.dim()
                extents = [extent, *[1] * beside]
                factors = shape.slice_by(ctx, ctx.tensor(column), start, extents, step)
        element = indexing.gather(ctx, wide, indices, dim)
        if is_sum:
            element = elementwise.arithmetic(ctx, "PROD", element, factors, inner)
        total = (
            element if total is None else elementwise.arithmetic(ctx, "SUM", total, element, inner)
        )
    assert total is not None
    return types.cast(ctx, total, dtype)


def _at_once(
    ctx: ConversionContext, tensor: NetworkTensor, taps: Taps, dim: int, dtype: torch.dtype
) -> NetworkTensor:
    """Returns the sums of elements that are gathered along a new dimension before ``dim``."""
    elements = indexing.gather(ctx, tensor, ctx.tensor(taps.positions), dim)
    factors = taps.weights.reshape(*taps.weights.shape, *[1] * (len(tensor.shape) - dim - 1))
    weighted = elementwise.arithmetic(ctx, "PROD", elements, factors, dtype)
    return reduction.reduce(ctx, "SUM", weighted, [dim], False)
