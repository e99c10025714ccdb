"""Operators whose output size depends on the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkLayer,
    NetworkTensor,
    Size,
    arguments_of,
    value_of,
)
from torchtrt.tensorrt import Capability, dtype_name, trt
from torchtrt_blocks import (
    creation,
    cumulation,
    indexing,
    ranking,
    reduction,
    scatter,
    shape,
    sizes,
    slicing,
    types,
)
from torchtrt_blocks.checks import is_backed, sizes_known_before_data
from torchtrt_blocks.formulas import Formula
from torchtrt_blocks.sizes_from_data import asserted_size
from torchtrt_converters_aten_experimental import pack


def unmoved_bytes(node: Node) -> str | None:
    """Rejects 8-bit integers, which TensorRT moves around in casts and at the network's edges alone."""
    values = [value_of(source) for source in node.all_input_nodes]
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return _bytes_among(dtypes & {torch.uint8, torch.int8})


def unmoved_signed_bytes(node: Node) -> str | None:
    """Rejects signed 8-bit integers; others are cast first."""
    return _bytes_among({value_of(node.args[0]).dtype} & {torch.int8})


def _bytes_among(dtypes: set[torch.dtype]) -> str | None:
    names = " and ".join(sorted(map(dtype_name, dtypes)))
    return f"TensorRT does not compute this op with {names}" if names else None


def no_dimensions(node: Node) -> str | None:
    """Rejects scalars, for which TensorRT does not document the layer."""
    return None if value_of(node.args[0]).dim() else "a tensor of no dimensions"


@pack.converter(
    torch.ops.aten.nonzero.default,
    requires=Capability.DATA_DEPENDENT_SIZES,
    reject_if=(no_dimensions, unmoved_signed_bytes, asserted_size),
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def nonzero(ctx: ConversionContext, self: NetworkTensor) -> NetworkTensor:
    """The indices of what is not zero: ``(count, rank)``, in row-major order."""
    indices = _rows(ctx, _columns(ctx, self))
    return ctx.tensor(indices, torch.int64)


def _columns(ctx: ConversionContext, value: NetworkTensor) -> NetworkTensor:
    """Returns where a tensor is not zero as TensorRT returns it: int32, ``(rank, count)``."""
    if ctx.dtype_of(value) in (torch.int64, torch.int32, torch.uint8):
        value = ctx.tensor(value, torch.bool)
    elif value.is_network_input and ctx.dtype_of(value) is torch.bool:
        # TensorRT 8.6 builds no gather of the places of a mask that no layer computed.
        value = ctx.tensor(ctx.tensor(value, torch.int32), torch.bool)
    layer: NetworkLayer = ctx.net.add_non_zero(value)
    return layer.get_output(0)


def _rows(ctx: ConversionContext, columns: NetworkTensor) -> NetworkTensor:
    layer: NetworkLayer = ctx.net.add_shuffle(columns)
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


def unknown_sizes(node: Node) -> str | None:
    """Rejects sizes that this TensorRT does not return, unless a mask of the leading dimensions needs none."""
    op = arguments_of(node)
    shape = value_of(op.self).shape
    if hasattr(op, "indices"):
        mask, *rest = map(value_of, op.indices)
        if _is_mask(mask) and all(index is None for index in rest):
            return None
    elif sizes.have_same_sizes(shape, value_of(op.mask).shape):
        return None
    return sizes_known_before_data(node)


@pack.converter(
    torch.ops.aten.index.Tensor,
    requires=Capability.DATA_DEPENDENT_SIZES,
    reject_if=(unfit_masks, unmoved_bytes, unknown_sizes, asserted_size),
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def index(
    ctx: ConversionContext, self: NetworkTensor, indices: Sequence[NetworkTensor | None]
) -> NetworkTensor:
    """``self`` where masks are true, beside indices and whole dimensions as NumPy has it."""
    tensor = ctx.tensor(self)
    leading = _leading_mask(ctx, indices)
    if leading is not None:
        return _select(ctx, tensor, leading)
    index_tensors: list[Any] = []
    for item in indices:
        if item is None or _dtype(ctx, item) is not torch.bool:
            index_tensors.append(item)
            continue
        mask = ctx.tensor(item)
        columns = _columns(ctx, mask)
        index_tensors += [slicing.select(ctx, columns, 0, dim) for dim in range(len(mask.shape))]
    return indexing.index_by(ctx, tensor, index_tensors)


def _dtype(ctx: ConversionContext, value: NetworkTensor | torch.Tensor) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else ctx.dtype_of(value)


def _leading_mask(
    ctx: ConversionContext, indices: Sequence[NetworkTensor | None]
) -> NetworkTensor | None:
    """Returns the mask that stands alone before whole dimensions, or ``None``."""
    first, *rest = indices
    is_alone = all(index is None for index in rest)
    is_mask = first is not None and _dtype(ctx, first) is torch.bool
    return first if is_alone and is_mask else None


def _select(ctx: ConversionContext, tensor: NetworkTensor, mask: NetworkTensor) -> NetworkTensor:
    """Returns the rows of ``tensor`` where a mask over its first dimensions is true."""
    mask = ctx.tensor(mask)
    indices = _rows(ctx, _columns(ctx, mask))
    layer: NetworkLayer = ctx.net.add_gather_v2(tensor, indices, trt.GatherMode.ND)
    return layer.get_output(0)


def broadcast_by_data(node: Node) -> str | None:
    """Rejects a size that depends on data, beside another one: PyTorch broadcasts it if it is 1."""
    op = arguments_of(node)
    shapes = [value_of(argument).shape[::-1] for argument in (op.self, op.mask)]
    for extents in zip(*shapes, strict=False):
        symbolic = [extent for extent in extents if not isinstance(extent, int)]
        is_fixed_one = any(isinstance(extent, int) and extent == 1 for extent in extents)
        if not is_fixed_one and not sizes.same(*extents) and not all(map(is_backed, symbolic)):
            return f"only the data decides whether a size is broadcast: {extents[0]} beside {extents[1]}"
    return None


@pack.converter(
    torch.ops.aten.masked_select.default,
    requires=Capability.DATA_DEPENDENT_SIZES,
    reject_if=(unmoved_bytes, unknown_sizes, broadcast_by_data, asserted_size),
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def masked_select(
    ctx: ConversionContext, self: NetworkTensor, mask: NetworkTensor
) -> NetworkTensor:
    """The elements where a mask is true, as a vector; both broadcast."""
    rank = max(types.common_rank((self, mask)), 1)
    tensor = types.operand(ctx, self, _dtype(ctx, self), rank)
    mask = types.operand(ctx, mask, torch.bool, rank)
    return _select(ctx, *shape.broadcast(ctx, [tensor, mask]))


def unfit_unique(node: Node) -> str | None:
    """Rejects what cannot be put in order."""
    op = arguments_of(node)
    tensor, dim = value_of(op.self), getattr(op, "dim", None)
    if any(isinstance(size, int) and size == 0 for size in tensor.shape):
        return "a tensor without elements"
    if any(counts.dtype is not torch.int64 for counts in node.meta["val"][1:]):
        return "this PyTorch traces indices and counts with the dtype of the elements"  # 2.9
    if node.target is torch.ops.aten.unique_consecutive.default:
        if dim is not None and node.meta["val"][0].dim() != tensor.dim():
            return "PyTorch mistakes the rank of what is unique along a negative dimension"
        return None
    if dim is None:
        fits = ranking.sorts(tensor.dtype, (tensor.numel(),), 0)
    else:
        comparisons = sizes.maximum_product((tensor.shape[dim], *tensor.shape))
        fits = comparisons is not None and comparisons <= ranking.COUNTING_LIMIT
    return None if fits else "there are too many elements to put in order"


@pack.converter(
    table={
        "sorts": {
            torch.ops.aten._unique2.default: True,
            torch.ops.aten.unique_consecutive.default: False,
            torch.ops.aten.unique_dim.default: True,
        }
    },
    requires=Capability.DATA_DEPENDENT_SIZES,
    reject_if=(unfit_unique, unmoved_bytes, sizes_known_before_data, asserted_size),
    supports_dynamic_shapes=True,
    requires_output_allocator=True,
)
def unique(
    ctx: ConversionContext,
    self: NetworkTensor,
    return_inverse: bool,
    return_counts: bool,
    dim: int | None = None,
    *,
    sorts: bool,
    **_: Any,
) -> tuple[NetworkTensor | None, ...]:
    """The elements (or slices) without repetitions, where each one is, and how often each occurs."""
    tensor = ctx.tensor(self)
    dtype = ctx.dtype_of(tensor)
    rows = shape.flatten(ctx, tensor) if dim is None else _moved(ctx, tensor, dim, 0)
    if dtype is torch.bool:
        rows = types.cast(ctx, rows, torch.int32)
    order = None
    if sorts:
        by = ranking.sort if dim is None else _sort_rows
        rows, order = by(ctx, rows, 0, False)
    first = _differs_from_before(ctx, rows)
    values = _select(ctx, rows, first)
    if dtype is torch.bool:
        values = types.cast(ctx, values, dtype)
    if dim is not None:
        values = _moved(ctx, values, 0, dim)
    inverse = counts = None
    if return_inverse or return_counts:
        number = types.cast(ctx, first, torch.int32)
        ids = (Formula(ctx, cumulation.cumulate(ctx, "SUM", number, 0)) - 1).tensor
        if return_inverse:
            extents = sizes.sizes_of(ctx, self if dim is None else ids)
            inverse = _as_places(ctx, extents, ids, order)
        if return_counts:
            length = sizes.size_of(ctx, rows, 0)
            zeros, ones = (creation.full(ctx, value, [length], torch.int32) for value in (0, 1))
            occurs = scatter.combine_at(ctx, "SUM", zeros, ids, ones, 0)
            occurs = indexing.gather(ctx, occurs, ids, 0)
            counts = _select(ctx, occurs, first)
            counts = types.cast(ctx, counts, torch.int64)
    return values, inverse, counts


def _moved(
    ctx: ConversionContext, tensor: NetworkTensor, source: int, destination: int
) -> NetworkTensor:
    """Returns a tensor with one dimension moved to another place."""
    rank = len(tensor.shape)
    order = [dim for dim in range(rank) if dim != source % rank]
    order.insert(destination % rank, source % rank)
    return shape.permute(ctx, tensor, order)


def _sort_rows(
    ctx: ConversionContext, rows: NetworkTensor, dim: int, descending: bool
) -> tuple[NetworkTensor, NetworkTensor]:
    """Returns slices along the first dimension in lexicographic order, and their indices.

    The place of a row is the count of rows before it. Of two rows the first element that differs
    decides, and NaN comes after all numbers.
    """
    count = sizes.size_of(ctx, rows, 0)
    keys = shape.reshape(ctx, rows, [count, -1], source=ctx.symbolic_shape(rows))
    mine, theirs = (Formula(ctx, keys).unsqueeze(dim) for dim in (1, 0))
    less, same = theirs < mine, theirs == mine
    if mine.dtype.is_floating_point:
        my_nan, their_nan = mine != mine, theirs != theirs
        less = less | (my_nan & ~their_nan)
        same = same | (my_nan & their_nan)
    positions = creation.indices_along(ctx, same.tensor, 2, torch.float32)
    differs = same.where(_BEHIND, positions, torch.float32)
    decisive = reduction.reduce(ctx, "MIN", differs.tensor, [2], True)
    decided = (differs == decisive) & less
    before = Formula(ctx, reduction.any_true(ctx, decided.tensor, [2], False))
    equal = Formula(ctx, reduction.all_true(ctx, same.tensor, [2], False))
    earlier = creation.triangle_mask(ctx, count, count, -1, True)
    target = (before | (equal & earlier)).cast(torch.int32).sum([1], keep=False).tensor
    indices = creation.indices_along(ctx, target, 0, torch.int32)
    return (
        indexing.scatter_rows(ctx, rows, target, rows),
        indexing.scatter_elements(ctx, indices, target, indices, 0),
    )


_BEHIND = float(1 << 24)
"""Beyond the place of every element that float32 distinguishes."""


def _differs_from_before(ctx: ConversionContext, rows: NetworkTensor) -> NetworkTensor:
    """Returns which slices along the first dimension do not equal the one before; the first does not."""
    rank = len(rows.shape)
    row_numbers = shape.squeeze(
        ctx, creation.indices_along(ctx, rows, 0, torch.int32), range(1, rank)
    )
    row = Formula(ctx, row_numbers)
    before = indexing.gather(ctx, rows, (row - 1).maximum(0).tensor, 0)
    changes = (Formula(ctx, rows) != before).tensor
    changes = reduction.any_true(ctx, changes, range(1, rank), False)
    return ((row == 0) | changes).tensor


def _as_places(
    ctx: ConversionContext,
    extents: Sequence[Size],
    ids: NetworkTensor,
    order: NetworkTensor | None,
) -> NetworkTensor:
    """Returns ids in the order and the shape that the elements had."""
    if order is not None:
        ids = indexing.scatter_elements(ctx, ids, order, ids, 0)
    ids = shape.reshape(ctx, ids, extents)
    return types.cast(ctx, ids, torch.int64)
