"""Operators whose output size depends on the data."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    arguments_of,
    value_of,
)
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import (
    creation,
    cumulation,
    elementwise,
    indexing,
    ranking,
    scatter,
    shape,
    sizes,
    slicing,
    types,
)
from torchtrt_converters_aten_experimental._pack import pack


def no_dimensions(node: Node) -> str | None:
    """Rejects scalars, for which TensorRT does not document the layer."""
    return None if node.args[0].meta["val"].dim() else "a tensor of no dimensions"


@pack.converter(
    torch.ops.aten.nonzero.default,
    unless=no_dimensions,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def nonzero(ctx, self):
    """The indices of what is not zero: ``(count, rank)``, in row-major order."""
    places = _rows(ctx, _columns(ctx, self))
    return ctx.tensor(places, torch.int64)


def _columns(ctx: ConversionContext, value: Any) -> Any:
    """Returns where a tensor is not zero as TensorRT tells it: int32, ``(rank, count)``."""
    if ctx.dtype_of(value) in (torch.int64, torch.int32, torch.uint8):
        value = ctx.tensor(value, torch.bool)
    elif value.is_network_input and ctx.dtype_of(value) is torch.bool:
        # TensorRT 8.6 builds no gather of the places of a mask that no layer computed.
        value = ctx.tensor(ctx.tensor(value, torch.int32), torch.bool)
    layer = ctx.net.add_non_zero(value)
    return layer.get_output(0)


def _rows(ctx: ConversionContext, columns: Any) -> Any:
    layer = ctx.net.add_shuffle(columns)
    layer.first_transpose = (1, 0)
    return layer.get_output(0)


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def unfit_masks(node: Node) -> str | None:
    """Rejects indices without masks, which aten_core converts, and masks that TensorRT does not have."""
    op = arguments_of(node)
    indices = [value_of(index) for index in op.indices]
    if not any(map(_is_mask, indices)):
        return "no index is a mask"
    if any(_is_mask(index) and index.dim() == 0 for index in indices):
        return "a mask of no dimensions"
    if any(isinstance(index, torch.Tensor) and index.dtype is torch.uint8 for index in indices):
        return "a mask of bytes: use booleans"
    return None


@pack.converter(
    torch.ops.aten.index.Tensor,
    unless=unfit_masks,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def index(ctx, self, indices):
    """``self`` where masks are true, beside indices and whole dimensions as NumPy has it."""
    tensor = ctx.tensor(self)
    if _is_leading_mask(ctx, indices):
        return _select(ctx, tensor, indices[0])
    places: list[Any] = []
    for item in indices:
        if item is None or _dtype(ctx, item) is not torch.bool:
            places.append(item)
            continue
        mask = ctx.tensor(item)
        columns = _columns(ctx, mask)
        places += [slicing.pick(ctx, columns, 0, dim) for dim in range(len(mask.shape))]
    return indexing.index_by(ctx, tensor, places)


def _dtype(ctx: ConversionContext, value: Any) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else ctx.dtype_of(value)


def _is_leading_mask(ctx: ConversionContext, indices: Any) -> bool:
    first, *rest = indices
    return (
        first is not None
        and _dtype(ctx, first) is torch.bool
        and all(index is None for index in rest)
    )


def _select(ctx: ConversionContext, tensor: Any, mask: Any) -> Any:
    """Returns the rows of ``tensor`` where a mask over its first dimensions is true."""
    mask = ctx.tensor(mask)
    places = _rows(ctx, _columns(ctx, mask))
    layer = ctx.net.add_gather_v2(tensor, places, trt.GatherMode.ND)
    return layer.get_output(0)


def no_common_dimensions(node: Node) -> str | None:
    """Rejects two scalars, which have no dimension to choose along."""
    op = arguments_of(node)
    rank = max(value_of(op.self).dim(), value_of(op.mask).dim())
    return None if rank else "a tensor of no dimensions"


@pack.converter(
    torch.ops.aten.masked_select.default,
    unless=no_common_dimensions,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def masked_select(ctx, self, mask):
    """The elements where a mask is true, as a vector; both broadcast."""
    rank = types.common_rank((self, mask))
    tensor = types.operand(ctx, self, _dtype(ctx, self), rank)
    mask = types.operand(ctx, mask, torch.bool, rank)
    both = [ctx.symbolic_shape(each) for each in (tensor, mask)]
    extents = [
        sizes.size_of(ctx, mask if first == 1 else tensor, dim)
        for dim, (first, _) in enumerate(zip(*both, strict=True))
    ]
    tensor = shape.expand(ctx, tensor, extents)
    mask = shape.expand(ctx, mask, extents)
    return _select(ctx, tensor, mask)


def unfit_unique(node: Node) -> str | None:
    """Rejects what cannot be put in order, and slices of a tensor."""
    op = arguments_of(node)
    tensor = value_of(op.self)
    if getattr(op, "dim", None) is not None:
        return "slices of a tensor have no order in TensorRT"
    if tensor.numel() == 0 and isinstance(tensor.numel(), int):
        return "a tensor without elements"
    ordered = node.target is torch.ops.aten.unique_consecutive.default
    if ordered or ranking.sorts(tensor.dtype, (tensor.numel(),), 0):
        return None
    return "there are too many elements to put in order"


@pack.converter(
    torch.ops.aten._unique2.default,
    torch.ops.aten.unique_consecutive.default,
    unless=unfit_unique,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def unique(ctx, self, return_inverse, return_counts, **_):
    """The elements without repetitions, where each element's is, and how often each occurs."""
    tensor = ctx.tensor(self)
    dtype = ctx.dtype_of(tensor)
    flat = shape.flatten(ctx, tensor)
    if dtype is torch.bool:
        flat = types.cast(ctx, flat, torch.int32)
    order = None
    if ctx.node.target is torch.ops.aten._unique2.default:
        flat, order = ranking.sort(ctx, flat, 0, False)
    first = _differs_from_before(ctx, flat)
    values = _select(ctx, flat, first)
    if dtype is torch.bool:
        values = types.cast(ctx, values, dtype)
    inverse = counts = None
    if return_inverse or return_counts:
        number = types.cast(ctx, first, torch.int32)
        total = cumulation.cumulate(ctx, "SUM", number, 0)
        ids = elementwise.arithmetic(ctx, "SUB", total, 1, torch.int32)
        if return_inverse:
            inverse = _as_places(ctx, self, ids, order)
        if return_counts:
            length = sizes.size_of(ctx, flat, 0)
            zeros, ones = (creation.full(ctx, value, [length], torch.int32) for value in (0, 1))
            occurs = scatter.combine_at(ctx, "SUM", zeros, ids, ones, 0)
            occurs = indexing.gather(ctx, occurs, ids, 0)
            counts = _select(ctx, occurs, first)
            counts = types.cast(ctx, counts, torch.int64)
    return values, inverse, counts


def _differs_from_before(ctx: ConversionContext, flat: Any) -> Any:
    """Returns which elements of a vector do not equal the one before; the first does not."""
    length = sizes.size_of(ctx, flat, 0)
    rest = sizes.combine(ctx, "SUB", length, 1)
    before, after = (shape.slice_by(ctx, flat, [start], [rest], [1]) for start in (0, 1))
    changes = elementwise.compare(ctx, "ne", after, before)
    start = ctx.tensor([True])
    return slicing.concatenate(ctx, [start, changes], 0)


def _as_places(ctx: ConversionContext, tensor: Any, ids: Any, order: Any) -> Any:
    """Returns ids in the shape and order that the elements had."""
    if order is not None:
        ids = indexing.scatter_elements(ctx, ids, order, ids, 0)
    extents = sizes.sizes_of(ctx, tensor)
    ids = shape.reshape(ctx, ids, extents)
    return types.cast(ctx, ids, torch.int64)
