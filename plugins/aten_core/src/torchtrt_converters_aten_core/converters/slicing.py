"""Pieces of tensors, and tensors put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import get_trt_tensor
from torchtrt_converters_aten_core.impl import shape, sizes, types
from torchtrt_converters_aten_core.impl import slicing as impl
from torchtrt_converters_aten_core.impl.layers import add
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    is_empty,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def _outside(node: Node) -> str | None:
    op = node_arguments(node)
    tensor = value_of(op.self)
    if not all(isinstance(number, int) for number in (*tensor.shape, *op.size, *op.stride)):
        return "sizes and strides must be fixed"
    if not tensor.is_contiguous():
        return "the strides are those of a tensor that is not contiguous"
    offset = tensor.storage_offset() if op.storage_offset is None else op.storage_offset
    first, last = impl.reach(op.size, op.stride, offset - tensor.storage_offset())
    if first < 0 or last >= tensor.numel():
        return "the strides reach memory outside the tensor"
    return None


@converts(aten.as_strided.default, aten.as_strided_copy.default, unless=_outside)
def as_strided(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts elements picked by their places in memory."""
    op = arguments(target, args, kwargs)
    places = impl.places(op.size, op.stride, op.storage_offset or 0)
    flat = shape.flatten(ctx, op.self, name + "/flat")
    return add(ctx, name, "gather", flat, get_trt_tensor(ctx, places, name + "/places"), 0)


def _known_step(node: Node) -> str | None:
    step = node_arguments(node).step
    return None if isinstance(step, int) else "the step of a slice must be fixed"


@converts(
    aten.slice.Tensor,
    aten.slice_copy.Tensor,
    unless=_known_step,
    empty=True,
)
def slice_(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``self[start:end:step]`` along one dimension."""
    op = arguments(target, args, kwargs)
    count = types.output_value(ctx).shape[op.dim]
    return impl.take(ctx, op.self, op.dim, op.start, op.end, op.step, name, count)


@converts(aten.narrow.default)
def narrow(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts ``length`` elements from ``start`` on."""
    op = arguments(target, args, kwargs)
    rank = len(op.self.shape)
    dim = op.dim % rank
    start = op.start
    if isinstance(start, int) and start < 0:
        length = sizes.size_of(ctx, op.self, dim, name + "/length")
        start = impl.wrap(ctx, start, length, name + "/start")
    starts = [start if place == dim else 0 for place in range(rank)]
    extents = sizes.sizes_of(ctx, op.self, name + "/size")
    extents[dim] = op.length
    return shape.slice_by(ctx, op.self, starts, extents, [1] * rank, name)


@converts(aten.select.int, aten.select_copy.int)
def select(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts one index of a dimension, which is dropped."""
    op = arguments(target, args, kwargs)
    return impl.pick(ctx, op.self, op.dim, op.index, name)


@converts(aten.unbind.int)
def unbind(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts every index of a dimension, as separate tensors."""
    op = arguments(target, args, kwargs)
    count = len(types.output_value(ctx))
    return tuple(
        impl.pick(ctx, op.self, op.dim, place, f"{name}/{place}") for place in range(count)
    )


def _unknown_pieces(node: Node) -> str | None:
    op = node_arguments(node)
    given = getattr(op, "split_size", getattr(op, "split_sizes", None))
    pieces = [piece.shape[op.dim] for piece in node.meta["val"]]
    wanted = given if isinstance(given, (list, tuple)) else [given] * len(pieces)
    unknown = [
        place
        for place, (piece, size) in enumerate(zip(pieces, wanted, strict=True))
        if not isinstance(piece, int) and not sizes.same(value_of(size), piece)
    ]
    if unknown in ([], [len(pieces) - 1]):
        return None
    return "the pieces' sizes depend on a size that is known only at run time"


@converts(
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.split_copy.Tensor,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.chunk.default,
    aten.unsafe_chunk.default,
    aten.tensor_split.sections,
    unless=_unknown_pieces,
)
def split(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts consecutive pieces along a dimension; PyTorch's own result tells how many and how large."""
    op = arguments(target, args, kwargs)
    given = getattr(op, "split_size", getattr(op, "split_sizes", None))
    pieces = types.output_value(ctx)
    extents: list[Any] = []
    for place, piece in enumerate(pieces):
        extent = piece.shape[op.dim]
        wanted = given[place] if isinstance(given, (list, tuple)) else given
        if isinstance(extent, int):
            extents.append(extent)
        elif wanted is not None and sizes.same(sizes.symbol_of(ctx, wanted), extent):
            extents.append(wanted)
        else:
            extents.append(_rest(ctx, op.self, op.dim, extents, f"{name}/rest{place}"))
    return impl.split(ctx, op.self, op.dim, extents, name)


def _rest(ctx: Any, tensor: Any, dim: int, before: list[Any], name: str) -> Any:
    rest = sizes.size_of(ctx, tensor, dim, name + "/length")
    for place, extent in enumerate(before):
        rest = sizes.combine(ctx, "SUB", rest, extent, f"{name}/{place}")
    return rest


@converts(
    aten.cat.default,
    aten.concat.default,
    aten.concatenate.default,
    keep_constants=True,
    empty=True,
)
def concatenate(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts tensors joined along a dimension, in the dtype PyTorch promotes to; empty ones add nothing."""
    op = arguments(target, args, kwargs)
    result = types.output_value(ctx)
    tensors = [
        types.operand(ctx, tensor, result.dtype, result.dim(), f"{name}/{place}")
        for place, tensor in enumerate(op.tensors)
        if not is_empty(tensor) or is_empty(result)
    ]
    return impl.concatenate(ctx, tensors, op.dim, name)


@converts(aten.stack.default, keep_constants=True)
def stack(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts tensors joined along a new dimension."""
    op = arguments(target, args, kwargs)
    result = types.output_value(ctx)
    pieces = []
    for place, tensor in enumerate(op.tensors):
        piece = types.operand(ctx, tensor, result.dtype, result.dim() - 1, f"{name}/{place}")
        pieces.append(shape.unsqueeze(ctx, piece, [op.dim % result.dim()], f"{name}/{place}/wide"))
    return impl.concatenate(ctx, pieces, op.dim, name)
