"""Operators whose output size depends on the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, TRTTensor, enforce_tensor_types, get_trt_tensor
from torchtrt.registry import Reject
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
from torchtrt_converters_aten_core.registration import arguments, node_arguments, value_of
from torchtrt_converters_aten_experimental._pack import pack

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def has_dimensions(node: Node) -> bool | Reject:
    """Rejects scalars, for which TensorRT does not document the layer."""
    return node.args[0].meta["val"].dim() > 0 or Reject("a tensor of no dimensions")


@pack.converter(
    torch.ops.aten.nonzero.default,
    capability_validator=has_dimensions,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
@enforce_tensor_types({0: (TRTTensor,)})
def nonzero(ctx: ConversionContext, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """The indices of what is not zero: ``(count, rank)``, in row-major order."""
    places = _rows(ctx, _columns(ctx, args[0], name + "/columns"), name + "/transpose")
    return get_trt_tensor(ctx, places, name, torch.int64)


def _columns(ctx: ConversionContext, value: Any, name: str) -> Any:
    """Returns where a tensor is not zero as TensorRT tells it: int32, ``(rank, count)``."""
    if ctx.dtype_of(value) in (torch.int64, torch.int32, torch.uint8):
        value = get_trt_tensor(ctx, value, name + "/input", torch.bool)
    layer = ctx.net.add_non_zero(value)
    layer.name = name
    return layer.get_output(0)


def _rows(ctx: ConversionContext, columns: Any, name: str) -> Any:
    layer = ctx.net.add_shuffle(columns)
    layer.first_transpose = (1, 0)
    layer.name = name
    return layer.get_output(0)


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def fits_masks(node: Node) -> bool | Reject:
    """Accepts indices among which there are masks; without any, aten_core converts."""
    op = node_arguments(node)
    indices = [value_of(index) for index in op.indices]
    if not any(map(_is_mask, indices)):
        return Reject("no index is a mask")
    if any(_is_mask(index) and index.dim() == 0 for index in indices):
        return Reject("a mask of no dimensions")
    if any(isinstance(index, torch.Tensor) and index.dtype is torch.uint8 for index in indices):
        return Reject("a mask of bytes: use booleans")
    return True


@pack.converter(
    torch.ops.aten.index.Tensor,
    capability_validator=fits_masks,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def index(ctx: ConversionContext, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """``self`` where masks are true, beside indices and whole dimensions as NumPy has it."""
    op = arguments(target, args, kwargs)
    tensor = get_trt_tensor(ctx, op.self, name + "/tensor")
    if _is_leading_mask(ctx, op.indices):
        return _select(ctx, tensor, op.indices[0], name)
    indices: list[Any] = []
    for place, item in enumerate(op.indices):
        if item is None or _dtype(ctx, item) is not torch.bool:
            indices.append(item)
            continue
        mask = get_trt_tensor(ctx, item, f"{name}/mask{place}")
        columns = _columns(ctx, mask, f"{name}/places{place}")
        indices += [
            slicing.pick(ctx, columns, 0, dim, f"{name}/places{place}/{dim}")
            for dim in range(len(mask.shape))
        ]
    return indexing.index_by(ctx, tensor, indices, name)


def _dtype(ctx: ConversionContext, value: Any) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else ctx.dtype_of(value)


def _is_leading_mask(ctx: ConversionContext, indices: Any) -> bool:
    first, *rest = indices
    return (
        first is not None
        and _dtype(ctx, first) is torch.bool
        and all(index is None for index in rest)
    )


def _select(ctx: ConversionContext, tensor: Any, mask: Any, name: str) -> Any:
    """Returns the rows of ``tensor`` where a mask over its first dimensions is true."""
    mask = get_trt_tensor(ctx, mask, name + "/mask")
    places = _rows(ctx, _columns(ctx, mask, name + "/columns"), name + "/places")
    layer = ctx.net.add_gather_v2(tensor, places, trt.GatherMode.ND)
    layer.name = name
    return layer.get_output(0)


def has_shape(node: Node) -> bool | Reject:
    """Rejects two scalars, which have no dimension to choose along."""
    op = node_arguments(node)
    rank = max(value_of(op.self).dim(), value_of(op.mask).dim())
    return rank > 0 or Reject("a tensor of no dimensions")


@pack.converter(
    torch.ops.aten.masked_select.default,
    capability_validator=has_shape,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def masked_select(
    ctx: ConversionContext, target: Any, args: Args, kwargs: Kwargs, name: str
) -> Any:
    """The elements where a mask is true, as a vector; both broadcast."""
    op = arguments(target, args, kwargs)
    rank = types.common_rank((op.self, op.mask))
    tensor = types.operand(ctx, op.self, _dtype(ctx, op.self), rank, name + "/tensor")
    mask = types.operand(ctx, op.mask, torch.bool, rank, name + "/mask")
    both = [ctx.symbolic_shape(each) for each in (tensor, mask)]
    extents = [
        sizes.size_of(ctx, mask if first == 1 else tensor, dim, f"{name}/size{dim}")
        for dim, (first, _) in enumerate(zip(*both, strict=True))
    ]
    tensor = shape.expand(ctx, tensor, extents, name + "/wide")
    mask = shape.expand(ctx, mask, extents, name + "/wide_mask")
    return _select(ctx, tensor, mask, name)


def fits_unique(node: Node) -> bool | Reject:
    """Accepts what can be put in order, and the whole tensor rather than slices of it."""
    op = node_arguments(node)
    tensor = value_of(op.self)
    if getattr(op, "dim", None) is not None:
        return Reject("slices of a tensor have no order in TensorRT")
    if tensor.numel() == 0 and isinstance(tensor.numel(), int):
        return Reject("a tensor without elements")
    ordered = node.target is torch.ops.aten.unique_consecutive.default
    if ordered or ranking.sorts(tensor.dtype, (tensor.numel(),), 0):
        return True
    return Reject("there are too many elements to put in order")


@pack.converter(
    torch.ops.aten._unique2.default,
    capability_validator=fits_unique,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
@pack.converter(
    torch.ops.aten.unique_consecutive.default,
    capability_validator=fits_unique,
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def unique(ctx: ConversionContext, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """The elements without repetitions, where each element's is, and how often each occurs."""
    op = arguments(target, args, kwargs)
    tensor = get_trt_tensor(ctx, op.self, name + "/tensor")
    dtype = ctx.dtype_of(tensor)
    flat = shape.flatten(ctx, tensor, name + "/flat")
    if dtype is torch.bool:
        flat = types.cast(ctx, flat, torch.int32, name + "/number")
    order = None
    if target is torch.ops.aten._unique2.default:
        flat, order = ranking.sort(ctx, flat, 0, False, name + "/sorted")
    first = _differs_from_before(ctx, flat, name)
    values = _select(ctx, flat, first, name)
    if dtype is torch.bool:
        values = types.cast(ctx, values, dtype, name + "/bool")
    inverse = counts = None
    if op.return_inverse or op.return_counts:
        number = types.cast(ctx, first, torch.int32, name + "/first_number")
        total = cumulation.cumulate(ctx, "SUM", number, 0, name + "/total")
        ids = elementwise.arithmetic(ctx, "SUB", total, 1, torch.int32, name + "/ids")
        if op.return_inverse:
            inverse = _as_places(ctx, op.self, ids, order, name + "/inverse")
        if op.return_counts:
            length = sizes.size_of(ctx, flat, 0, name + "/length")
            zeros, ones = (
                creation.full(ctx, value, [length], torch.int32, f"{name}/{value}s")
                for value in (0, 1)
            )
            occurs = scatter.combine_at(ctx, "SUM", zeros, ids, ones, 0, name + "/occurs")
            occurs = indexing.gather(ctx, occurs, ids, 0, name + "/occurs_each")
            counts = _select(ctx, occurs, first, name + "/counts")
            counts = types.cast(ctx, counts, torch.int64, name + "/counts")
    return values, inverse, counts


def _differs_from_before(ctx: ConversionContext, flat: Any, name: str) -> Any:
    """Returns which elements of a vector do not equal the one before; the first does not."""
    length = sizes.size_of(ctx, flat, 0, name + "/length")
    rest = sizes.combine(ctx, "SUB", length, 1, name + "/rest")
    before, after = (
        shape.slice_by(ctx, flat, [start], [rest], [1], f"{name}/from{start}") for start in (0, 1)
    )
    changes = elementwise.compare(ctx, "ne", after, before, name + "/changes")
    start = get_trt_tensor(ctx, [True], name + "/start")
    return slicing.concatenate(ctx, [start, changes], 0, name + "/first")


def _as_places(ctx: ConversionContext, tensor: Any, ids: Any, order: Any, name: str) -> Any:
    """Returns ids in the shape and order that the elements had."""
    if order is not None:
        ids = indexing.scatter_elements(ctx, ids, order, ids, 0, name + "/unsorted")
    extents = sizes.sizes_of(ctx, tensor, name + "/size")
    ids = shape.reshape(ctx, ids, extents, name + "/shaped")
    return types.cast(ctx, ids, torch.int64, name)
