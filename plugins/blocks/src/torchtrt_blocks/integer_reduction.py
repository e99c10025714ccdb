"""Exact reductions of integers where TensorRT reduces them in float32.

Over fixed sizes they are combined element by element, which is exact and wraps on overflow as
PyTorch's does. Over sizes known at run time, a 32-bit number is cut into small parts, which are reduced
and put together. No partial result exceeds 2**24, up to which float32 is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt.conversion import ConversionContext, NetworkTensor
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks import elementwise, shape, sizes, slicing
from torchtrt_blocks.formulas import Formula
from torchtrt_blocks.reduction import reduce

EXACT_LIMIT = 1 << 24
"""float32 holds every integer up to here."""
SUM_LIMIT = 1 << 16
"""The maximum number of integers whose sum is exact, in parts of eight bits."""


def total(
    ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns the exact sum of integers; of sizes beyond ``SUM_LIMIT`` only where TensorRT's own is.

    Args:
        ctx: The conversion context.
        tensor: An integer network tensor of any shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    if supports(Capability.INTEGER_REDUCTION):
        return reduce(ctx, "SUM", tensor, dims, keep)
    if has_halves(tensor, dims):
        return by_halves(ctx, "SUM", tensor, dims, keep)
    count = sizes.maximum_product([ctx.symbolic_shape(tensor)[dim] for dim in dims])
    return exact_sum(ctx, tensor, dims, keep, count or SUM_LIMIT)


def exact_sum(
    ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int], keep: bool, count: int
) -> NetworkTensor:
    """Returns the sum of at most ``count`` (no more than ``SUM_LIMIT``) int32 numbers.

    Args:
        ctx: The conversion context.
        tensor: An int32 network tensor of any shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
        count: How many numbers at most become one.
    """
    bits = 16 if count <= EXACT_LIMIT >> 16 else 8
    rest, parts = tensor, []
    for _ in range(32 // bits - 1):
        rest, low = cut(ctx, rest, 1 << bits)
        parts.append(low)
    parts.append(rest)
    sums = [reduce(ctx, "SUM", part, dims, keep) for part in parts]
    total = sums.pop()
    while sums:
        total = _join(ctx, total, sums.pop(), 1 << bits)
    return total


def exact_extreme(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns the ``MAX`` or ``MIN`` of int32 numbers: by their upper halves, then by the lower.

    Args:
        ctx: The conversion context.
        kind: ``"MAX"`` or ``"MIN"``.
        tensor: An int32 network tensor of any shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    high, low = cut(ctx, tensor, 1 << 16)
    best = reduce(ctx, kind, high, dims, True)
    worst = -1 if kind == "MAX" else 1 << 16
    candidates = (Formula(ctx, high) == best).where(low, worst, torch.int32)
    low_best = reduce(ctx, kind, candidates.tensor, dims, keep)
    high_best = best if keep else reduce(ctx, kind, high, dims, False)
    return _join(ctx, high_best, low_best, 1 << 16)


def by_halves(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns the ``SUM``, ``PROD``, ``MAX`` or ``MIN`` of int32 numbers over dimensions of fixed sizes, at least 1.

    Halves are combined element by element, then quarters, and so on: no reduction that TensorRT would
    fuse with what follows and compute in float32.

    Args:
        ctx: The conversion context.
        kind: ``"SUM"``, ``"PROD"``, ``"MAX"`` or ``"MIN"``.
        tensor: An int32 network tensor of any shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    for dim in dims:
        while tensor.shape[dim] > 1:
            size = tensor.shape[dim]
            half = size // 2
            parts = slicing.split(ctx, tensor, dim, [half, half, size % 2][: 2 + size % 2])
            halves = elementwise.combine(ctx, kind, parts[0], parts[1])
            tensor = slicing.concatenate(ctx, [halves, *parts[2:]], dim)
    return tensor if keep else shape.squeeze(ctx, tensor, dims)


def has_halves(tensor: NetworkTensor | torch.Tensor, dims: Sequence[int]) -> bool:
    """Returns whether ``by_halves`` takes a network tensor or a fake one: its sizes along ``dims`` are fixed."""
    extents = [tensor.shape[dim] for dim in dims]
    return all(isinstance(extent, int) and extent >= 1 for extent in extents)


def cut(
    ctx: ConversionContext, tensor: NetworkTensor, base: int
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns ``tensor // base`` and what remains, which is from 0 to below ``base``.

    Args:
        ctx: The conversion context.
        tensor: An int32 network tensor of any shape.
        base: The divisor, a positive ``int``.
    """
    number = Formula(ctx, tensor)
    high = number // base
    return high.tensor, (number - high * base).tensor


def _join(
    ctx: ConversionContext, high: NetworkTensor, low: NetworkTensor, base: int
) -> NetworkTensor:
    return (Formula(ctx, high) * base + low).tensor
