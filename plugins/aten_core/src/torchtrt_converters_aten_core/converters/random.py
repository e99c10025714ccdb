"""Random numbers, and what training does with them. They are drawn anew in every run of an engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    arguments_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import trt
from torchtrt_blocks import creation, ranking, shape, sizes, types
from torchtrt_blocks.creation import add_fill
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


_BELOW_ONE = {torch.float32: 1 - 2.0**-24, torch.float16: 1 - 2.0**-11, torch.bfloat16: 1 - 2.0**-8}
"""The maximum number below 1 of a dtype: TensorRT's uniform numbers may reach their upper bound."""


def _uniform(
    ctx: ConversionContext, extents: Sequence[Size], dtype: torch.dtype = torch.float32
) -> Formula:
    """Returns numbers from 0 to below 1, all equally likely.

    Args:
        ctx: The conversion context.
        extents: The sizes: numbers or 0-d int32 network tensors.
        dtype: The floating-point dtype of the result; they are drawn in float32.
    """
    return _draw(ctx, "RANDOM_UNIFORM", extents, 0.0, _BELOW_ONE[dtype]).cast(dtype)


def _normal(
    ctx: ConversionContext, extents: Sequence[Size], dtype: torch.dtype = torch.float32
) -> Formula:
    """Returns numbers of the standard normal distribution; the arguments are ``_uniform``'s."""
    return _draw(ctx, "RANDOM_NORMAL", extents, 0.0, 1.0).cast(dtype)


def _draw(
    ctx: ConversionContext, kind: str, extents: Sequence[Size], alpha: float, beta: float
) -> Formula:
    """Returns random numbers of a kind of ``FillOperation``, in float32.

    Args:
        ctx: The conversion context.
        kind: The operation: ``RANDOM_UNIFORM`` or ``RANDOM_NORMAL``.
        extents: The sizes of the result. Without any it has one element and no dimension.
        alpha: The minimum, or the mean.
        beta: The maximum, or the standard deviation.
    """
    operation = getattr(trt.FillOperation, kind)
    if not extents:
        single = add_fill(ctx.net, (1,), operation, torch.float32, alpha, beta)
        drawn = shape.squeeze(ctx, single, [0])
    elif sizes.is_static(extents):
        drawn = add_fill(ctx.net, tuple(extents), operation, torch.float32, alpha, beta)
    else:
        outline = sizes.to_tensor(ctx, extents)
        bounds = (types.operand(ctx, bound, torch.float32, 0) for bound in (alpha, beta))
        drawn = add_fill(ctx.net, outline, operation, torch.float32, *bounds)
    return Formula(ctx, drawn)


def _chance(
    ctx: ConversionContext, extents: Sequence[Size], probability: NetworkTensor | float
) -> Formula:
    """Returns booleans, true with a probability, which is a number or a tensor that broadcasts to the sizes."""
    return _uniform(ctx, extents) < probability


def _dropout(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    extents: Sequence[Size],
    probability: float,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns ``tensor`` with elements set to zero with a probability, the others scaled to keep the mean.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        extents: The sizes of what is drawn: the tensor's, or such that it broadcasts to the tensor.
        probability: From 0 to 1.
        dtype: The dtype of the result.
    """
    kept = 1.0 - probability
    x = Formula(ctx, tensor, dtype)
    if kept == 0:
        return (x * 0.0).tensor
    return (x * _chance(ctx, extents, kept).where(1 / kept, 0.0, dtype)).tensor


_ALPHA = 1.7580993408473766
"""``-alpha * scale`` of SELU: what alpha dropout puts in place of an element (Klambauer et al., 2017)."""


def _alpha_dropout(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    extents: Sequence[Size],
    probability: float,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Returns ``tensor`` with elements set to SELU's minimum value, then scaled and shifted to keep mean and variance.

    The arguments are ``_dropout``'s.
    """
    x = Formula(ctx, tensor, dtype)
    if probability == 1:
        return (x * 0.0).tensor
    scale = ((_ALPHA**2 * probability + 1) * (1 - probability)) ** -0.5
    stays = _chance(ctx, extents, 1.0 - probability)
    factor = stays.where(scale, 0.0, dtype)
    put = _ALPHA * scale * probability
    shift = stays.where(put, put - _ALPHA * scale, dtype)
    return (x * factor + shift).tensor


DRAWN = {
    aten.rand.default: _uniform,
    aten.rand_like.default: _uniform,
    aten.randn.default: _normal,
    aten.randn_like.default: _normal,
}


def _extents(
    ctx: ConversionContext, tensor: NetworkTensor | None, size: Sequence[Size] | None
) -> list[Size]:
    """Returns the sizes that are given, or those of a tensor."""
    if size is not None:
        return list(size)
    assert tensor is not None  # the op has one of the two
    return sizes.sizes_of(ctx, tensor)


@pack.converter(table={"draw": DRAWN})
def drawn(
    ctx: ConversionContext,
    self: NetworkTensor | None = None,
    size: Sequence[Size] | None = None,
    *,
    draw: Callable[..., Formula],
    **_: Any,
) -> NetworkTensor:
    """Converts numbers of the uniform distribution from 0 to 1, or of the standard normal one."""
    return draw(ctx, _extents(ctx, self, size), types.output_dtype(ctx)).tensor


INTEGERS = (
    aten.randint.default,
    aten.randint.low,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
)


def _wide_range(node: Node) -> str | None:
    op = arguments_of(node)
    low, high = getattr(op, "low", 0), op.high
    if isinstance(low, int) and isinstance(high, int) and 0 < high - low <= 1 << 24:
        if max(abs(low), abs(high)) < 1 << 31:
            return None
        return "TensorRT draws integers of 32 bits"
    return "TensorRT draws from at most 2**24 integers, whose bounds must be fixed"


@pack.converter(*INTEGERS, reject_if=_wide_range)
def integers(
    ctx: ConversionContext,
    high: int,
    low: int = 0,
    self: NetworkTensor | None = None,
    size: Sequence[Size] | None = None,
    **_: Any,
) -> NetworkTensor:
    """Converts integers of a range, all equally likely."""
    dtype = types.output_dtype(ctx)
    scaled = _uniform(ctx, _extents(ctx, self, size)) * float(high - low)
    inner = dtype if types.is_integer(dtype) else torch.int32
    return (scaled.cast(inner) + low).cast(dtype).tensor  # casts cut toward zero


@pack.converter(aten.bernoulli.default, aten.bernoulli.p)
def bernoulli(
    ctx: ConversionContext, self: NetworkTensor, p: float | None = None, **_: Any
) -> NetworkTensor:
    """Converts ones with a probability, the elements themselves or a number, and zeros otherwise."""
    probability = self if p is None else p
    chosen = _chance(ctx, sizes.sizes_of(ctx, self), probability)
    return chosen.cast(types.output_dtype(ctx)).tensor


@pack.converter(aten.uniform.default)
def uniform(
    ctx: ConversionContext, self: NetworkTensor, from_: float, to: float, **_: Any
) -> NetworkTensor:
    """Converts numbers from ``from`` to below ``to``, all equally likely."""
    number = _uniform(ctx, sizes.sizes_of(ctx, self)) * (to - from_) + from_
    return number.cast(types.output_dtype(ctx)).tensor


NORMAL = (
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.normal.Tensor_Tensor,
    aten.normal_functional.default,
)


@pack.converter(*NORMAL)
def normal(
    ctx: ConversionContext,
    mean: NetworkTensor | float,
    std: float | NetworkTensor,
    self: NetworkTensor | None = None,
    **_: Any,
) -> NetworkTensor:
    """Converts numbers of a normal distribution; its mean and deviation may differ from element to element."""
    dtype, outline = types.output_dtype(ctx), types.output_value(ctx).shape
    is_static = sizes.is_static(outline)
    extents = list(outline) if is_static else _broadcast_sizes(ctx, self, mean, std)
    return (_normal(ctx, extents, dtype) * std + mean).tensor


def _broadcast_sizes(ctx: ConversionContext, *values: NetworkTensor | float | None) -> list[Size]:
    """Returns the sizes of the first tensor of the highest rank, whose dimensions are at full size."""
    tensors = [value for value in values if is_network_tensor(value)]
    return sizes.sizes_of(ctx, max(tensors, key=lambda tensor: len(tensor.shape)))


DROPOUTS = {
    aten.dropout.default: (_dropout, False),
    aten.feature_dropout.default: (_dropout, True),
    aten.alpha_dropout.default: (_alpha_dropout, False),
    aten.feature_alpha_dropout.default: (_alpha_dropout, True),
}
"""For each op its function, and whether it drops whole channels."""


@pack.converter(table={"kind": DROPOUTS}, supports_empty=True)
def dropout(
    ctx: ConversionContext,
    input: NetworkTensor,
    p: float,
    train: bool,
    *,
    kind: tuple[Callable[..., NetworkTensor], bool],
) -> NetworkTensor:
    """Converts dropout of elements or of whole channels; in evaluation mode it does nothing."""
    if not train or p == 0:
        return input
    extents = sizes.sizes_of(ctx, input)
    drop, by_channel = kind
    if by_channel:
        extents[2:] = [1] * len(extents[2:])
    return drop(ctx, input, extents, p, types.output_dtype(ctx))


@pack.converter(aten.native_dropout.default, supports_empty=True)
def native_dropout(
    ctx: ConversionContext, input: NetworkTensor, p: float, train: bool | None
) -> tuple[NetworkTensor, NetworkTensor]:
    """Converts dropout that also returns which elements it kept."""
    dtype = types.output_dtype(ctx, 0)
    extents = sizes.sizes_of(ctx, input)
    if train is False or p == 0:
        return input, creation.full(ctx, True, extents, torch.bool)
    kept = _chance(ctx, extents, 1.0 - p)
    scale = 1 / (1.0 - p) if p < 1 else 0.0
    return (Formula(ctx, input, dtype) * kept.where(scale, 0.0, dtype)).tensor, kept.tensor


@pack.converter(aten.rrelu.default, supports_empty=True)
def random_leaky_relu(
    ctx: ConversionContext,
    self: NetworkTensor,
    lower: float,
    upper: float,
    training: bool,
    **_: Any,
) -> NetworkTensor:
    """Converts a slope for negative numbers that is drawn for each element in training, and fixed otherwise."""
    x = Formula(ctx, self, types.output_dtype(ctx))
    slope: Formula | float = (lower + upper) / 2
    if training:
        drawn = _uniform(ctx, sizes.sizes_of(ctx, self))
        slope = (drawn * (upper - lower) + lower).cast(x.dtype)
    return (x <= 0).where(x * slope, x).tensor


def _exponential(ctx: ConversionContext, extents: Sequence[Size], lambd: float) -> Formula:
    """Returns ``-log(1 - u) / lambda``."""
    return _log_of_rest(ctx, extents) * (-1 / lambd)


def _geometric(ctx: ConversionContext, extents: Sequence[Size], p: float) -> Formula:
    """Returns ``floor(log(1 - u) / log(1 - p)) + 1``."""
    return (_log_of_rest(ctx, extents) * (1 / math.log1p(-p))).floor() + 1.0


def _cauchy(
    ctx: ConversionContext, extents: Sequence[Size], median: float, sigma: float
) -> Formula:
    """Returns ``median + sigma * tan(pi * (u - 1/2))``."""
    angle = _uniform(ctx, extents) * math.pi - math.pi / 2
    return angle.tan() * sigma + median


def _log_normal(
    ctx: ConversionContext, extents: Sequence[Size], mean: float, std: float
) -> Formula:
    """Returns ``exp(mean + std * z)`` for a standard normal ``z``."""
    return (_normal(ctx, extents) * std + mean).exp()


def _log_of_rest(ctx: ConversionContext, extents: Sequence[Size]) -> Formula:
    return (-_uniform(ctx, extents)).log1p()


DISTRIBUTIONS = {
    aten.exponential.default: _exponential,
    aten.geometric.default: _geometric,
    aten.cauchy.default: _cauchy,
    aten.log_normal.default: _log_normal,
}
"""Distributions made of a uniform ``u`` or a standard normal number, in float32."""


@pack.converter(table={"draw": DISTRIBUTIONS})
def distribution(
    ctx: ConversionContext,
    self: NetworkTensor,
    generator: torch.Generator | None = None,
    *,
    draw: Callable[..., Formula],
    **parameters: Any,
) -> NetworkTensor:
    """Converts numbers of a distribution that is a function of a simpler one."""
    number = draw(ctx, sizes.sizes_of(ctx, self), **parameters)
    return number.cast(types.output_dtype(ctx)).tensor


def _too_long(node: Node) -> str | None:
    size = arguments_of(node).n
    if isinstance(size, int) and 1 <= size <= ranking.LIMIT:
        return None
    return f"random numbers are put in order for 1 to {ranking.LIMIT} elements"


@pack.converter(aten.randperm.default, reject_if=_too_long)
def permutation(ctx: ConversionContext, n: int, **_: Any) -> NetworkTensor:
    """Converts integers in random order: the order of random numbers."""
    order = ranking.top_k(ctx, _uniform(ctx, [n]).tensor, n, 0, True)[1]
    return types.cast(ctx, order, types.output_dtype(ctx))


def _too_many(node: Node) -> str | None:
    op = arguments_of(node)
    count = sizes.maximum(value_of(op.self).shape[-1])
    if count is None or count > ranking.LIMIT:
        return f"TensorRT chooses from at most {ranking.LIMIT} elements"
    if not (op.replacement or isinstance(op.num_samples, int)):
        return "TensorRT ranks a number of elements that is fixed"
    return None


@pack.converter(aten.multinomial.default, reject_if=_too_many)
def multinomial(
    ctx: ConversionContext, self: NetworkTensor, num_samples: Size, replacement: bool, **_: Any
) -> NetworkTensor:
    """Converts indices drawn with probabilities in proportion to the elements.

    They are the places of the largest ``p / e`` for exponential ``e``, as in PyTorch (Efraimidis and Spirakis, 2006).
    With replacement, ``e`` is drawn anew for each sample.
    """
    weights = types.cast(ctx, self, torch.float32)
    if isinstance(num_samples, int) and (num_samples == 1 or not replacement):
        keys = _keys(ctx, weights, sizes.sizes_of(ctx, weights))
        chosen = ranking.top_k(ctx, keys, num_samples, -1, False)[1]
    else:
        weights = shape.unsqueeze(ctx, weights, [-2])
        extents = sizes.sizes_of(ctx, weights)
        extents[-2] = num_samples
        chosen = ranking.first_extreme(ctx, "MIN", _keys(ctx, weights, extents), -1)
        chosen = shape.squeeze(ctx, chosen, [-1])
    return types.cast(ctx, chosen, types.output_dtype(ctx))


def _keys(ctx: ConversionContext, weights: NetworkTensor, extents: Sequence[Size]) -> NetworkTensor:
    """Returns random numbers of the given sizes. The place of the smallest one is drawn by the weights."""
    noise = _log_of_rest(ctx, extents).minimum(-1e-20)
    return (Formula(ctx, weights) / noise).tensor
