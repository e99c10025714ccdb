"""Ops that change a tensor's shape and not its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, NetworkTensor, Size, arguments_of, value_of
from torchtrt_blocks import shape as blocks
from torchtrt_blocks import sizes, types
from torchtrt_blocks.checks import RANK_LIMIT, is_backed
from torchtrt_blocks.sizes import Deferred
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


def _mistaken_rank(node: Node) -> str | None:
    """Rejects a tensor of no dimensions that PyTorch takes for a vector of one element, if that size is from data."""
    op = arguments_of(node)
    sizes: Any = getattr(op, "size", None) or getattr(op, "shape", ())
    return (
        None if len(sizes) == node.meta["val"].dim() else "PyTorch mistakes the rank of the result"
    )


@pack.converter(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.view_copy.default,
    aten._reshape_copy.default,
    reject_if=_mistaken_rank,
)
def reshape(
    ctx: ConversionContext,
    self: NetworkTensor,
    size: Sequence[Size] = (),
    shape: Sequence[Size] = (),
    **_: Any,
) -> NetworkTensor:
    """Converts a reshape."""
    return blocks.reshape(ctx, self, size or shape, types.output_value(ctx).shape)


@pack.converter(aten.flatten.using_ints)
def flatten(
    ctx: ConversionContext, self: NetworkTensor, start_dim: int, end_dim: int
) -> NetworkTensor:
    """Converts dimensions that become one."""
    if not len(self.shape):
        return blocks.flatten(ctx, self)
    return _reshape_dims(ctx, self, start_dim, end_dim, [-1])


@pack.converter(aten.unflatten.int)
def unflatten(
    ctx: ConversionContext, self: NetworkTensor, dim: int, sizes: Sequence[Size]
) -> NetworkTensor:
    """Converts a dimension that becomes several."""
    return _reshape_dims(ctx, self, dim, dim, sizes)


def _reshape_dims(
    ctx: ConversionContext, tensor: NetworkTensor, first: int, last: int, wanted: Sequence[Any]
) -> NetworkTensor:
    """Returns the tensor with its dimensions from ``first`` to ``last`` reshaped to ``wanted``."""
    rank, extents = len(tensor.shape), sizes.lazy_shape(ctx, tensor)
    wanted = [*extents[: first % rank], *wanted, *extents[last % rank + 1 :]]
    return blocks.reshape(ctx, tensor, wanted, types.output_value(ctx).shape)


@pack.converter(aten.permute.default)
def permute(ctx: ConversionContext, self: NetworkTensor, dims: Sequence[int]) -> NetworkTensor:
    """Converts a new order of the dimensions."""
    return blocks.permute(ctx, self, dims)


@pack.converter(aten.transpose.int, aten.swapdims.default, aten.swapaxes.default)
def transpose(ctx: ConversionContext, self: NetworkTensor, **dims: int) -> NetworkTensor:
    """Converts an exchange of two dimensions, which have names of their own in each op."""
    return blocks.swap(ctx, self, *dims.values())


@pack.converter(
    aten.t.default,
    aten.mT.default,
    aten.adjoint.default,
)
def matrix_transpose(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts an exchange of rows and columns."""
    return self if len(self.shape) < 2 else blocks.swap(ctx, self, -2, -1)


@pack.converter(aten.numpy_T.default)
def reverse_dimensions(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """Converts a reversal of all dimensions."""
    return blocks.permute(ctx, self, range(len(self.shape))[::-1])


@pack.converter(
    aten.movedim.intlist,
    aten.moveaxis.intlist,
    aten.movedim.int,
    aten.moveaxis.int,
)
def move(
    ctx: ConversionContext,
    self: NetworkTensor,
    source: Sequence[int] | int,
    destination: Sequence[int] | int,
) -> NetworkTensor:
    """Converts dimensions moved to other places; the others keep their order."""
    rank = len(self.shape)
    if not rank:
        return self
    sources = [dim % rank for dim in _as_list(source)]
    destinations = [dim % rank for dim in _as_list(destination)]
    others = iter(dim for dim in range(rank) if dim not in sources)
    order = [
        sources[destinations.index(index)] if index in destinations else next(others)
        for index in range(rank)
    ]
    return blocks.permute(ctx, self, order)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@pack.converter(aten.unsqueeze.default)
def unsqueeze(ctx: ConversionContext, self: NetworkTensor, dim: int) -> NetworkTensor:
    """Converts a new dimension of size 1."""
    return blocks.unsqueeze(ctx, self, [dim])


def _ones_from_data(node: Node) -> str | None:
    """Rejects sizes that depend on data: those that are 1 in a call would have to go in that call."""
    op = arguments_of(node)
    shape = value_of(op.self).shape
    dim = getattr(op, "dim", None)
    named = range(len(shape)) if dim is None else _as_list(dim)
    if all(isinstance(shape[axis], int) or is_backed(shape[axis]) for axis in named if shape):
        return None
    return "whether a size is 1 depends on the data, and with it the number of dimensions"


@pack.converter(
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    reject_if=_ones_from_data,
)
def squeeze(
    ctx: ConversionContext, self: NetworkTensor, dim: int | Sequence[int] | None = None
) -> NetworkTensor:
    """Converts the removal of dimensions of size 1: those named, or all."""
    shape = ctx.symbolic_shape(self)  # where a condition fixes a size, the network's is still open
    named = range(len(shape)) if dim is None else _as_list(dim)
    ones = [axis for axis in named if shape and isinstance(shape[axis], int) and shape[axis] == 1]
    return blocks.squeeze(ctx, self, ones)


@pack.converter(
    aten.expand.default, aten.broadcast_to.default, aten.expand_copy.default, supports_empty=True
)
def expand(
    ctx: ConversionContext, self: NetworkTensor, size: Sequence[Size], **_: Any
) -> NetworkTensor:
    """Converts a broadcast."""
    return blocks.expand(ctx, self, size)


@pack.converter(aten.expand_as.default, supports_empty=True)
def expand_as(ctx: ConversionContext, self: NetworkTensor, other: NetworkTensor) -> NetworkTensor:
    """Converts a broadcast to the shape of another tensor."""
    return blocks.expand(ctx, self, sizes.lazy_shape(ctx, other))


@pack.converter(aten.copy.default)
def copy(
    ctx: ConversionContext, self: NetworkTensor, src: NetworkTensor, **_: Any
) -> NetworkTensor:
    """Converts ``src`` in the dtype of ``self``, broadcast to its shape."""
    return expand_as(ctx, types.cast(ctx, src, types.output_dtype(ctx)), self)


@pack.converter(aten.view_as.default, aten.reshape_as.default)
def reshape_as(ctx: ConversionContext, self: NetworkTensor, other: NetworkTensor) -> NetworkTensor:
    """Converts a reshape to the shape of another tensor."""
    wanted = sizes.sizes_of(ctx, other)
    return blocks.reshape(ctx, self, wanted, types.output_value(ctx).shape)


def _too_many_dims(node: Node) -> str | None:
    op = arguments_of(node)
    counts = getattr(op, "repeats", getattr(op, "dims", ()))
    several = sum(not isinstance(count, int) or count != 1 for count in counts)
    if node.meta["val"].dim() + several > RANK_LIMIT:
        return f"next to the repeated dimensions there is no room for others below {RANK_LIMIT}"
    return None


@pack.converter(aten.repeat.default, aten.tile.default, reject_if=_too_many_dims)
def repeat(
    ctx: ConversionContext,
    self: NetworkTensor,
    repeats: Sequence[Size] = (),
    dims: Sequence[Size] = (),
) -> NetworkTensor:
    """Converts copies side by side: each repeated dimension is broadcast next to a new one and merged with it."""
    factors = repeats or dims
    rank = max(len(factors), len(self.shape))
    counts: list[Size] = [*[1] * (rank - len(factors)), *factors]
    tensor = blocks.to_rank(ctx, self, rank)
    symbols = ctx.symbolic_shape(tensor)
    repeated = [dim for dim in range(rank) if not sizes.same(sizes.symbol_of(ctx, counts[dim]), 1)]
    split = [dim for dim in repeated if not sizes.same(symbols[dim], 1)]
    wide = blocks.unsqueeze(ctx, tensor, [dim + index for index, dim in enumerate(split)])
    copies: list[Size] = []
    for dim in range(rank):
        if dim in split:
            copies += [counts[dim], -1]
        else:
            copies.append(counts[dim] if dim in repeated else -1)
    spread = blocks.expand(ctx, wide, copies)
    if not split:
        return spread
    outline = sizes.lazy_shape(ctx, tensor)
    merged: list[Size | Deferred] = list(outline)
    for dim in repeated:
        extent = sizes.size_of(ctx, tensor, dim)
        merged[dim] = sizes.combine(ctx, "PROD", extent, counts[dim])
    source = [
        sizes.symbol_of(ctx, size)
        for dim, extent in enumerate(outline)
        for size in ((counts[dim], extent) if dim in split else (merged[dim],))
    ]
    return blocks.reshape(ctx, spread, merged, types.output_value(ctx).shape, source)


def _unknown_repeats(node: Node) -> str | None:
    op = arguments_of(node)
    if isinstance(op.repeats, int) and value_of(op.self).dim() < 8:
        return None
    return "the number of repeats must be fixed"


@pack.converter(aten.repeat_interleave.self_int, reject_if=_unknown_repeats)
def repeat_interleave(
    ctx: ConversionContext, self: NetworkTensor, repeats: int, dim: int | None, **_: Any
) -> NetworkTensor:
    """Converts elements repeated in place: broadcast along a new dimension after theirs, and merged with it."""
    tensor = blocks.flatten(ctx, self) if dim is None else self
    dim = 0 if dim is None else dim % max(len(tensor.shape), 1)
    extents: list[Size | Deferred] = list(sizes.lazy_shape(ctx, tensor))
    wide = blocks.unsqueeze(ctx, tensor, [dim + 1])
    kept = [-1] * len(extents)
    spread = blocks.expand(ctx, wide, [*kept[: dim + 1], repeats, *kept[dim + 1 :]])
    extent = extents[dim] = sizes.size_of(ctx, tensor, dim)
    source = [sizes.symbol_of(ctx, extent) for extent in extents]
    source.insert(dim + 1, repeats)
    extents[dim] = sizes.combine(ctx, "PROD", extent, repeats)
    return blocks.reshape(ctx, spread, extents, types.output_value(ctx).shape, source)
