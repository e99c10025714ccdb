"""Ops that change a tensor's shape and not its elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt_converters_aten_core.impl import shape as impl
from torchtrt_converters_aten_core.impl import sizes, types
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


@converts(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.view_copy.default,
    aten._reshape_copy.default,
)
def reshape(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a reshape to the sizes in the second argument."""
    return impl.reshape(ctx, args[0], args[1], name, types.output_value(ctx).shape)


@converts(aten.flatten.using_ints, aten.unflatten.int)
def merge_or_part(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``flatten`` (dimensions become one) and ``unflatten`` (one becomes several)."""
    op = arguments(target, args, kwargs)
    tensor, rank = op.self, len(op.self.shape)
    if target is aten.unflatten.int:
        first = last = op.dim % rank
        middle = list(op.sizes)
    elif rank == 0:
        return impl.flatten(ctx, tensor, name)
    else:
        first, last = op.start_dim % rank, op.end_dim % rank
        middle = [-1]
    extents = sizes.outline(ctx, tensor)
    wanted = [*extents[:first], *middle, *extents[last + 1 :]]
    return impl.reshape(ctx, tensor, wanted, name, types.output_value(ctx).shape)


@converts(aten.permute.default)
def permute(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a new order of the dimensions."""
    return impl.permute(ctx, args[0], args[1], name)


@converts(
    aten.transpose.int,
    aten.swapaxes.default,
    aten.swapdims.default,
)
def transpose(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts an exchange of two dimensions."""
    return impl.swap(ctx, args[0], args[1], args[2], name)


@converts(
    aten.t.default,
    aten.numpy_T.default,
    aten.mT.default,
    aten.adjoint.default,
)
def matrix_transpose(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts an exchange of rows and columns (``numpy_T`` reverses all dimensions)."""
    rank = len(args[0].shape)
    if rank < 2:
        return args[0]
    if target is aten.numpy_T.default:
        return impl.permute(ctx, args[0], range(rank)[::-1], name)
    return impl.swap(ctx, args[0], -2, -1, name)


@converts(
    aten.movedim.intlist,
    aten.moveaxis.intlist,
    aten.movedim.int,
    aten.moveaxis.int,
)
def move(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts dimensions moved to other places; the others keep their order."""
    op = arguments(target, args, kwargs)
    rank = len(op.self.shape)
    sources = [dim % rank for dim in _as_list(op.source)]
    places = [dim % rank for dim in _as_list(op.destination)]
    others = iter(dim for dim in range(rank) if dim not in sources)
    order = [
        sources[places.index(place)] if place in places else next(others) for place in range(rank)
    ]
    return impl.permute(ctx, op.self, order, name)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@converts(aten.unsqueeze.default)
def unsqueeze(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a new dimension of size 1."""
    return impl.unsqueeze(ctx, args[0], [args[1]], name)


@converts(aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default)
def squeeze(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the removal of dimensions of size 1: those named, or all."""
    tensor = args[0]
    rank = len(tensor.shape)
    named = _as_list(args[1]) if len(args) > 1 else range(rank)
    ones = [dim % rank for dim in named if rank and tensor.shape[dim % rank] == 1]
    return impl.squeeze(ctx, tensor, ones, name)


@converts(aten.expand.default, aten.broadcast_to.default, aten.expand_copy.default)
def expand(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a broadcast to the sizes in the second argument."""
    return impl.expand(ctx, args[0], args[1], name)


@converts(aten.expand_as.default)
def expand_as(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a broadcast to the shape of another tensor."""
    tensor, like = args
    rank = len(like.shape)
    shape = [1] * (rank - len(tensor.shape)) + list(ctx.symbolic_shape(tensor))
    wanted = [
        sizes.size_of(ctx, like, dim, f"{name}/size{dim}") if shape[dim] == 1 else -1
        for dim in range(rank)
    ]
    return impl.expand(ctx, tensor, wanted, name)


@converts(aten.copy.default)
def copy(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts the second argument in the dtype of the first, broadcast to its shape."""
    like, source = args[0], types.cast(ctx, args[1], types.output_dtype(ctx), name + "/input")
    return expand_as(ctx, target, (source, like), {}, name)


@converts(aten.view_as.default, aten.reshape_as.default)
def reshape_as(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts a reshape to the shape of another tensor."""
    wanted = sizes.sizes_of(ctx, args[1], name + "/like")
    return impl.reshape(ctx, args[0], wanted, name, types.output_value(ctx).shape)


@converts(aten.repeat.default, aten.tile.default)
def repeat(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts copies side by side: each repeated dimension is broadcast next to a new one and merged with it."""
    tensor, counts = args[0], list(args[1])
    rank = max(len(counts), len(tensor.shape))
    counts = [1] * (rank - len(counts)) + counts
    tensor = impl.to_rank(ctx, tensor, rank, name + "/rank")
    symbols = ctx.symbolic_shape(tensor)
    repeated = [dim for dim in range(rank) if not isinstance(counts[dim], int) or counts[dim] != 1]
    split = [dim for dim in repeated if symbols[dim] != 1]
    wide = impl.unsqueeze(
        ctx, tensor, [dim + place for place, dim in enumerate(split)], name + "/wide"
    )
    copies: list[Any] = []
    for dim in range(rank):
        if dim in split:
            copies += [counts[dim], -1]
        else:
            copies.append(counts[dim] if dim in repeated else -1)
    spread = impl.expand(ctx, wide, copies, name + "/spread")
    if not split:
        return spread
    outline = sizes.outline(ctx, tensor)
    merged = list(outline)
    for dim in repeated:
        extent = sizes.size_of(ctx, tensor, dim, f"{name}/size{dim}")
        merged[dim] = sizes.combine(ctx, "PROD", extent, counts[dim], f"{name}/merged{dim}")
    source = [
        sizes.symbol_of(ctx, size)
        for dim, extent in enumerate(outline)
        for size in ((counts[dim], extent) if dim in split else (merged[dim],))
    ]
    return impl.reshape(ctx, spread, merged, name, types.output_value(ctx).shape, source)


def _unknown_repeats(node: Node) -> str | None:
    op = node_arguments(node)
    if isinstance(op.repeats, int) and value_of(op.self).dim() < 8:
        return None
    return "the number of repeats must be fixed"


@converts(aten.repeat_interleave.self_int, unless=_unknown_repeats)
def repeat_interleave(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts elements repeated in place: broadcast along a new dimension after theirs, and merged with it."""
    op = arguments(target, args, kwargs)
    tensor = impl.flatten(ctx, op.self, name + "/flat") if op.dim is None else op.self
    dim = 0 if op.dim is None else op.dim % max(len(tensor.shape), 1)
    extents = sizes.outline(ctx, tensor)
    wide = impl.unsqueeze(ctx, tensor, [dim + 1], name + "/wide")
    kept = [-1] * len(extents)
    spread = impl.expand(
        ctx, wide, [*kept[: dim + 1], op.repeats, *kept[dim + 1 :]], name + "/spread"
    )
    extents[dim] = sizes.size_of(ctx, tensor, dim, name + "/size")
    source = [sizes.symbol_of(ctx, extent) for extent in extents]
    source.insert(dim + 1, op.repeats)
    extents[dim] = sizes.combine(ctx, "PROD", extents[dim], op.repeats, name + "/merged")
    return impl.reshape(ctx, spread, extents, name, types.output_value(ctx).shape, source)
