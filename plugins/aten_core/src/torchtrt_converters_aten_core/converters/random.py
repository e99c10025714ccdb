"""Random numbers, and what training does with them. They are drawn anew in every run of an engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import (
    creation,
    elementwise,
    ranking,
    shape,
    sizes,
    types,
    unary,
)
from torchtrt_converters_aten_core.impl import random as impl
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    converts_elementwise,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

DRAWN = {
    aten.rand.default: impl.uniform,
    aten.rand_like.default: impl.uniform,
    aten.randn.default: impl.normal,
    aten.randn_like.default: impl.normal,
}


def _extents(ctx: Any, op: Any, name: str) -> Any:
    if hasattr(op, "size"):
        return list(op.size)
    return sizes.sizes_of(ctx, op.self, name + "/size")


@converts(*DRAWN)
def drawn(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts numbers of the uniform distribution from 0 to 1, or of the standard normal one."""
    op = arguments(target, args, kwargs)
    return DRAWN[target](ctx, _extents(ctx, op, name), types.output_dtype(ctx), name)


INTEGERS = (
    aten.randint.default,
    aten.randint.low,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
)


def _wide_range(node: Node) -> str | None:
    op = node_arguments(node)
    low, high = getattr(op, "low", 0), op.high
    if isinstance(low, int) and isinstance(high, int) and 0 < high - low <= 1 << 24:
        if max(abs(low), abs(high)) < 1 << 31:
            return None
        return "TensorRT draws whole numbers of 32 bits"
    return "TensorRT draws from at most 2**24 whole numbers, whose bounds must be fixed"


@converts(*INTEGERS, unless=_wide_range)
def integers(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts whole numbers of a range, all equally likely."""
    op = arguments(target, args, kwargs)
    extents = _extents(ctx, op, name)
    low, dtype = getattr(op, "low", 0), types.output_dtype(ctx)
    return impl.integers(ctx, extents, low, op.high, dtype, name)


@converts(aten.bernoulli.default, aten.bernoulli.p)
def bernoulli(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ones with a probability, the elements themselves or a number, and zeros otherwise."""
    op = arguments(target, args, kwargs)
    probability = op.self if target is aten.bernoulli.default else op.p
    chosen = impl.chance(ctx, _extents(ctx, op, name), probability, name)
    return types.cast(ctx, chosen, types.output_dtype(ctx), name)


@converts(aten.uniform.default)
def uniform(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts numbers from ``from`` to below ``to``, all equally likely."""
    op = arguments(target, args, kwargs)
    low, high = getattr(op, "from"), op.to
    number = impl.uniform(ctx, _extents(ctx, op, name), torch.float32, name + "/drawn")
    wide = torch.float32
    scaled = elementwise.arithmetic(ctx, "PROD", number, high - low, wide, name + "/scaled")
    moved = elementwise.arithmetic(ctx, "SUM", scaled, low, wide, name)
    return types.cast(ctx, moved, types.output_dtype(ctx), name)


NORMAL = (
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.normal.Tensor_Tensor,
    aten.normal_functional.default,
)


@converts(*NORMAL)
def normal(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts numbers of a normal distribution; its mean and deviation may differ from element to element."""
    op = arguments(target, args, kwargs)
    dtype, outline = types.output_dtype(ctx), types.output_value(ctx).shape
    known = sizes.is_static(outline)
    extents = list(outline) if known else _broadcast_sizes(ctx, op, len(outline), name)
    number = impl.normal(ctx, extents, dtype, name + "/drawn")
    scaled = elementwise.arithmetic(ctx, "PROD", number, op.std, dtype, name + "/scaled")
    return elementwise.arithmetic(ctx, "SUM", scaled, op.mean, dtype, name)


def _broadcast_sizes(ctx: Any, op: Any, rank: int, name: str) -> list[Any]:
    """Returns the sizes of the tensor that has all dimensions at full size."""
    tensors = [value for value in (getattr(op, "self", None), op.mean, op.std) if _has_sizes(value)]
    (full, *_) = sorted(tensors, key=lambda tensor: -len(tensor.shape))
    return sizes.sizes_of(ctx, full, name + "/size")


def _has_sizes(value: Any) -> bool:
    return hasattr(value, "shape")


DROPOUTS = {
    aten.dropout.default: impl.dropout,
    aten.feature_dropout.default: impl.dropout,
    aten.alpha_dropout.default: impl.alpha_dropout,
    aten.feature_alpha_dropout.default: impl.alpha_dropout,
}
BY_CHANNEL = (aten.feature_dropout.default, aten.feature_alpha_dropout.default)


@converts_elementwise(*DROPOUTS)
def dropout(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts dropout of elements or of whole channels; in evaluation mode it does nothing."""
    op = arguments(target, args, kwargs)
    if not op.train or op.p == 0:
        return op.input
    extents = sizes.sizes_of(ctx, op.input, name + "/size")
    if target in BY_CHANNEL:
        extents[2:] = [1] * len(extents[2:])
    return DROPOUTS[target](ctx, op.input, extents, op.p, types.output_dtype(ctx), name)


@converts_elementwise(aten.native_dropout.default)
def native_dropout(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts dropout that also tells which elements it kept."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx, 0)
    extents = sizes.sizes_of(ctx, op.input, name + "/size")
    if op.train is False or op.p == 0:
        return op.input, creation.full(ctx, True, extents, torch.bool, name + "/kept")
    kept = impl.chance(ctx, extents, 1.0 - op.p, name + "/kept")
    scale = 1 / (1.0 - op.p) if op.p < 1 else 0.0
    factor = elementwise.select(ctx, kept, scale, 0.0, dtype, name + "/factor")
    return elementwise.arithmetic(ctx, "PROD", op.input, factor, dtype, name), kept


@converts_elementwise(aten.rrelu.default)
def random_leaky_relu(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a slope for negative numbers that is drawn for each element in training, and fixed otherwise."""
    op = arguments(target, args, kwargs)
    dtype = types.output_dtype(ctx)
    slope: Any = (op.lower + op.upper) / 2
    if op.training:
        extents = sizes.sizes_of(ctx, op.self, name + "/size")
        number = impl.uniform(ctx, extents, torch.float32, name + "/drawn")
        span = op.upper - op.lower
        slope = elementwise.arithmetic(ctx, "PROD", number, span, torch.float32, name + "/span")
        slope = elementwise.arithmetic(ctx, "SUM", slope, op.lower, torch.float32, name + "/slope")
        slope = types.cast(ctx, slope, dtype, name + "/slope")
    bent = elementwise.arithmetic(ctx, "PROD", op.self, slope, dtype, name + "/bent")
    below = elementwise.compare(ctx, "le", op.self, 0, name + "/below")
    return elementwise.select(ctx, below, bent, op.self, dtype, name)


def _exponential(ctx: Any, op: Any, extents: Any, name: str) -> Any:
    """Returns ``-log(1 - u) / lambda``."""
    logarithm = _log_of_rest(ctx, extents, name)
    return elementwise.arithmetic(ctx, "PROD", logarithm, -1 / op.lambd, _WIDE, name)


def _geometric(ctx: Any, op: Any, extents: Any, name: str) -> Any:
    """Returns ``floor(log(1 - u) / log(1 - p)) + 1``."""
    logarithm = _log_of_rest(ctx, extents, name)
    scale = 1 / math.log1p(-op.p)
    scaled = elementwise.arithmetic(ctx, "PROD", logarithm, scale, _WIDE, name + "/scaled")
    whole = unary.floor(ctx, scaled, name + "/whole")
    return elementwise.arithmetic(ctx, "SUM", whole, 1.0, _WIDE, name)


def _cauchy(ctx: Any, op: Any, extents: Any, name: str) -> Any:
    """Returns ``median + sigma * tan(pi * (u - 1/2))``."""
    number = impl.uniform(ctx, extents, _WIDE, name + "/drawn")
    angle = elementwise.arithmetic(ctx, "PROD", number, math.pi, _WIDE, name + "/angle")
    angle = elementwise.arithmetic(ctx, "SUB", angle, math.pi / 2, _WIDE, name + "/centred")
    slope = unary.apply(ctx, "TAN", angle, name + "/slope")
    scaled = elementwise.arithmetic(ctx, "PROD", slope, op.sigma, _WIDE, name + "/scaled")
    return elementwise.arithmetic(ctx, "SUM", scaled, op.median, _WIDE, name)


def _log_normal(ctx: Any, op: Any, extents: Any, name: str) -> Any:
    """Returns ``exp(mean + std * z)`` for a standard normal ``z``."""
    number = impl.normal(ctx, extents, _WIDE, name + "/drawn")
    scaled = elementwise.arithmetic(ctx, "PROD", number, op.std, _WIDE, name + "/scaled")
    moved = elementwise.arithmetic(ctx, "SUM", scaled, op.mean, _WIDE, name + "/moved")
    return unary.apply(ctx, "EXP", moved, name)


def _log_of_rest(ctx: Any, extents: Any, name: str) -> Any:
    number = impl.uniform(ctx, extents, _WIDE, name + "/drawn")
    return unary.log1p(ctx, unary.negative(ctx, number, name + "/negative"), name + "/log")


_WIDE = torch.float32
DISTRIBUTIONS = {
    aten.exponential.default: _exponential,
    aten.geometric.default: _geometric,
    aten.cauchy.default: _cauchy,
    aten.log_normal.default: _log_normal,
}
"""Distributions made of a uniform ``u`` or a standard normal number, in float32."""


@converts(*DISTRIBUTIONS)
def distribution(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts numbers of a distribution that is a function of a simpler one."""
    op = arguments(target, args, kwargs)
    number = DISTRIBUTIONS[target](ctx, op, _extents(ctx, op, name), name)
    return types.cast(ctx, number, types.output_dtype(ctx), name)


def _too_long(node: Node) -> str | None:
    size = node_arguments(node).n
    if isinstance(size, int) and 1 <= size <= ranking.LIMIT:
        return None
    return f"random numbers are put in order for 1 to {ranking.LIMIT} elements"


@converts(aten.randperm.default, unless=_too_long)
def permutation(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts whole numbers in random order: the order of random numbers."""
    size = args[0]
    drawn = impl.uniform(ctx, [size], torch.float32, name + "/drawn")
    _, order = ranking.top_k(ctx, drawn, size, 0, True, name)
    return types.cast(ctx, order, types.output_dtype(ctx), name + "/order")


def _too_many(node: Node) -> str | None:
    count = sizes.greatest(value_of(node_arguments(node).self).shape[-1])
    if count is None or count > ranking.LIMIT:
        return f"TensorRT chooses from at most {ranking.LIMIT} elements"
    return None


@converts(aten.multinomial.default, unless=_too_many)
def multinomial(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts indices drawn with probabilities in proportion to the elements.

    They are the places of the largest ``p / e`` for an exponential ``e``, drawn anew for each sample
    with replacement (Efraimidis and Spirakis, 2006), as PyTorch does it.
    """
    op = arguments(target, args, kwargs)
    weights = types.cast(ctx, op.self, _WIDE, name + "/weights")
    again = op.replacement and op.num_samples > 1
    if again:
        weights = shape.unsqueeze(ctx, weights, [-2], name + "/wide")
    extents = sizes.sizes_of(ctx, weights, name + "/size")
    if again:
        extents[-2] = op.num_samples
    logarithm = _log_of_rest(ctx, extents, name)
    noise = elementwise.arithmetic(ctx, "MIN", logarithm, -1e-20, _WIDE, name + "/noise")
    keys = elementwise.arithmetic(ctx, "DIV", weights, noise, _WIDE, name + "/keys")
    if again:
        chosen = ranking.first_extreme(ctx, "MIN", keys, -1, name)
        chosen = shape.squeeze(ctx, chosen, [-1], name + "/narrow")
    else:
        _, chosen = ranking.top_k(ctx, keys, op.num_samples, -1, False, name)
    return types.cast(ctx, chosen, types.output_dtype(ctx), name + "/indices")
