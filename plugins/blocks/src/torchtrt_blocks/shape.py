"""Reshapes, permutations and broadcasts, with as few shape computations at run time as the sizes allow."""

from __future__ import annotations

from collections.abc import Sequence

from torchtrt.conversion import (
    ConversionContext,
    NetworkLayer,
    NetworkTensor,
    Size,
    SymbolicSize,
    add_layer,
)
from torchtrt_blocks import sizes as size_math
from torchtrt_blocks.sizes import (
    Deferred,
    is_positive,
    is_static,
    same,
    symbol_of,
)


def reshape(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    sizes: Sequence[Size | Deferred],
    result: Sequence[SymbolicSize] | None = None,
    source: Sequence[SymbolicSize] | None = None,
) -> NetworkTensor:
    """Returns ``tensor`` in another shape.

    Sizes that equal the input's at the same place are copied by TensorRT, and one more is inferred. Where that is not
    enough, all that vary are computed at run time and given as a shape tensor.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        sizes: The new sizes: numbers, at most one of them -1, 0-d int32 tensors, or deferred sizes.
        result: PyTorch's new sizes, where the caller has them.
        source: What is known of the tensor's own sizes, where the tensor is not itself the result of a node.
    """
    if source is None:
        source = ctx.symbolic_shape(tensor)
    target = [symbol_of(ctx, size) for size in sizes]
    if result is not None:
        target = [
            result_size if size is None or same(size, -1) else size
            for size, result_size in zip(target, result, strict=True)
        ]
    if len(source) == len(target) and all(map(same, source, target)):
        return tensor
    layer = add_layer(ctx, "shuffle", tensor)
    if any(symbol == 0 for symbol in target if isinstance(symbol, int)):
        return _reshape_empty(ctx, layer, sizes, target)
    dims = _reshape_dims(ctx, tensor, sizes, source, target)
    if is_static(dims):
        layer.reshape_dims = tuple(dims)
        return layer.get_output(0)
    # A size that is computed may be 0, which must not stand for a copy: so nothing is copied.
    layer.zero_is_placeholder = False
    dims = [
        size_math.size_of(ctx, tensor, dim) if isinstance(size, int) and size == 0 else size
        for dim, size in enumerate(dims)
    ]
    layer.set_input(1, size_math.to_tensor(ctx, dims))
    return layer.get_output(0)


def _reshape_dims(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    sizes: Sequence[Size | Deferred],
    source: Sequence[SymbolicSize],
    target: Sequence[SymbolicSize],
) -> list[Size]:
    """Returns what TensorRT gets for each new size: 0 for a copy, -1 for one that it infers, or the size itself."""
    dims: list[Size] = []
    for dim, (size, symbol) in enumerate(zip(sizes, target, strict=True)):
        if isinstance(symbol, int) and symbol >= 0:
            dims.append(symbol)
        elif dim < len(source) and same(source[dim], symbol):
            dims.append(0)
        else:
            dims.append(size_math.resolve(ctx, size))
    unknown = [index for index, size in enumerate(dims) if not isinstance(size, int)]
    inferred = [dims.index(-1)] if -1 in dims else unknown
    if len(inferred) != 1:
        return dims
    (inferred_dim,) = inferred
    others = [symbol for other, symbol in enumerate(target) if other != inferred_dim]
    if all(map(is_positive, others)):
        dims[inferred_dim] = -1
    elif -1 in dims:  # of no elements, TensorRT infers nothing
        dims[inferred_dim] = _inferred(ctx, tensor, source, target, inferred_dim, sizes)
    return dims


def _inferred(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    source: Sequence[SymbolicSize],
    target: Sequence[SymbolicSize],
    inferred_dim: int,
    sizes: Sequence[Size | Deferred],
) -> Size:
    """Returns the size that a reshape leaves to be inferred, of tensors without elements too."""
    rest = list(range(len(source)))
    others: list[Size] = []
    for other, symbol in enumerate(target):
        if other == inferred_dim:
            continue
        kept = next((dim for dim in rest if same(source[dim], symbol)), None)
        if kept is None:
            others.append(_resolved(ctx, symbol, sizes[other]))
        else:
            rest.remove(kept)  # which may be 0, and divides both sides
    count = size_math.product(ctx, [size_math.size_of(ctx, tensor, dim) for dim in rest])
    return size_math.combine(ctx, "FLOOR_DIV", count, size_math.product(ctx, others))


def _reshape_empty(
    ctx: ConversionContext,
    layer: NetworkLayer,
    sizes: Sequence[Size | Deferred],
    target: Sequence[SymbolicSize],
) -> NetworkTensor:
    """Reshapes a tensor with a size that may be zero. It infers no size, so it computes each one from the input's."""
    # A size of zero: 0 must not mean "copy", and -1 cannot be inferred.
    layer.zero_is_placeholder = False
    resolved = [
        symbol if isinstance(symbol, int) else size_math.resolve(ctx, size)
        for size, symbol in zip(sizes, target, strict=True)
    ]
    if is_static(resolved):
        layer.reshape_dims = tuple(resolved)
    else:
        layer.set_input(1, size_math.to_tensor(ctx, resolved))
    return layer.get_output(0)


def permute(ctx: ConversionContext, tensor: NetworkTensor, order: Sequence[int]) -> NetworkTensor:
    """Returns ``tensor`` with its dimensions in another order: ``order[i]`` becomes dimension ``i``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        order: A dimension of ``tensor`` for each dimension of the result.
    """
    rank = len(tensor.shape)
    order = [dim % rank for dim in order]
    if order == list(range(rank)):
        return tensor
    layer = add_layer(ctx, "shuffle", tensor)
    layer.first_transpose = tuple(order)
    return layer.get_output(0)


def swap(ctx: ConversionContext, tensor: NetworkTensor, first: int, second: int) -> NetworkTensor:
    """Returns ``tensor`` with two dimensions exchanged.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        first: A dimension; negative ones count from the last.
        second: The other dimension, likewise.
    """
    rank = len(tensor.shape)
    order = list(range(rank))
    if rank:
        first, second = first % rank, second % rank
        order[first], order[second] = order[second], order[first]
    return permute(ctx, tensor, order)


def unsqueeze(ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int]) -> NetworkTensor:
    """Returns ``tensor`` with dimensions of size 1 at the given places of the result.

    One layer and no shape computation: the ones are appended, every other size is copied, and a
    transposition moves them into place.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dims: The places of the new dimensions in the result; negative ones count from its last.
    """
    rank = len(tensor.shape)
    result_rank = rank + len(dims)
    new_dims = sorted(dim % result_rank for dim in dims)
    if not new_dims:
        return tensor
    layer = add_layer(ctx, "shuffle", tensor)
    shape = tuple(tensor.shape)
    if all(size >= 0 for size in shape):
        final = list(shape)
        for new_dim in new_dims:
            final.insert(new_dim, 1)
        layer.zero_is_placeholder = False
        layer.reshape_dims = tuple(final)
        return layer.get_output(0)
    layer.reshape_dims = (0,) * rank + (1,) * len(new_dims)
    kept, ones = iter(range(rank)), iter(range(rank, result_rank))
    layer.second_transpose = tuple(
        next(ones) if index in new_dims else next(kept) for index in range(result_rank)
    )
    return layer.get_output(0)


def squeeze(ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int]) -> NetworkTensor:
    """Returns ``tensor`` without the given dimensions, which must be of size 1.

    One layer and no shape computation: a transposition moves them to the end, and every other size is copied.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dims: The dimensions; negative ones count from the last.
    """
    shape = tuple(tensor.shape)
    rank = len(shape)
    gone = {dim % rank for dim in dims} if rank else set()
    if not gone:
        return tensor
    layer = add_layer(ctx, "shuffle", tensor)
    kept = [dim for dim in range(rank) if dim not in gone]
    if all(shape[dim] >= 0 for dim in kept):
        layer.zero_is_placeholder = False
        layer.reshape_dims = tuple(shape[dim] for dim in kept)
        return layer.get_output(0)
    layer.first_transpose = tuple(kept + sorted(gone))
    layer.reshape_dims = (0,) * len(kept)
    return layer.get_output(0)


def to_rank(ctx: ConversionContext, tensor: NetworkTensor, rank: int) -> NetworkTensor:
    """Returns ``tensor`` with ``rank`` dimensions, the new ones in front and of size 1, ready to broadcast.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        rank: The rank of the result, at least that of ``tensor``.
    """
    return unsqueeze(ctx, tensor, range(rank - len(tensor.shape)))


def expand(
    ctx: ConversionContext, tensor: NetworkTensor, sizes: Sequence[Size | Deferred]
) -> NetworkTensor:
    """Returns ``tensor`` broadcast to the given sizes.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        sizes: The new sizes: numbers or 0-d int32 tensors; -1 or the deferred size itself keeps the
            input's. New dimensions come in front.
    """
    rank = len(sizes)
    source = [1] * (rank - len(tensor.shape)) + list(ctx.symbolic_shape(tensor))
    target = [symbol_of(ctx, size) for size in sizes]
    tensor = to_rank(ctx, tensor, rank)
    repeated = [
        _may_be_one(old) and not same(old, new) and not same(new, -1)
        for old, new in zip(source, target, strict=True)
    ]
    if not any(repeated):
        return tensor
    extent = [
        _resolved(ctx, new, size) if repeat else size_math.size_of(ctx, tensor, dim)
        for dim, (repeat, new, size) in enumerate(zip(repeated, target, sizes, strict=True))
    ]
    step = [
        _step(ctx, tensor, dim, old) if repeat else 1
        for dim, (repeat, old) in enumerate(zip(repeated, source, strict=True))
    ]
    return slice_by(ctx, tensor, [0] * rank, extent, step)


def _may_be_one(size: SymbolicSize) -> bool:
    """Returns whether a size is 1, or may be."""
    least = None if size is None else size_math.minimum(size)
    most = None if size is None else size_math.maximum(size)
    return (least is None or least <= 1) and (most is None or most >= 1)


def _step(ctx: ConversionContext, tensor: NetworkTensor, dim: int, symbol: SymbolicSize) -> Size:
    """Returns by what a slice repeats a dimension if its size is 1, and takes each element of it otherwise."""
    if isinstance(symbol, int):
        return 0
    rest = size_math.combine(ctx, "SUB", size_math.size_of(ctx, tensor, dim), 1)
    step = size_math.combine(ctx, "MIN", rest, 1)
    return step if is_positive(symbol) else size_math.combine(ctx, "MAX", step, 0)


def broadcast(ctx: ConversionContext, tensors: Sequence[NetworkTensor]) -> list[NetworkTensor]:
    """Returns network tensors of one rank broadcast to their common shape.

    Args:
        ctx: The conversion context.
        tensors: Network tensors of one rank and any dtypes.
    """
    symbols = [ctx.symbolic_shape(tensor) for tensor in tensors]
    extents: list[Size] = []
    for dim in range(len(symbols[0])):
        wide = [index for index, own in enumerate(symbols) if not same(own[dim], 1)]
        extents.append(size_math.size_of(ctx, tensors[wide[0]], dim) if wide else 1)
    return [expand(ctx, tensor, extents) for tensor in tensors]


def _resolved(ctx: ConversionContext, symbol: SymbolicSize, size: Size | Deferred) -> Size:
    return symbol if isinstance(symbol, int) else size_math.resolve(ctx, size)


def slice_by(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    start: Sequence[Size],
    extent: Sequence[Size],
    step: Sequence[Size],
) -> NetworkTensor:
    """Returns elements ``start + index * step`` of ``tensor``, ``extent`` of them along each dimension.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        start: Where to begin, for each dimension.
        extent: How many elements to take, for each dimension.
        step: The distance between elements; 0 repeats one element.
    """
    parts = (start, extent, step)
    static = [tuple(part) if is_static(part) else (0,) * len(part) for part in parts]
    if is_static(extent) and 0 in extent:
        # A static slice of nothing is refused by TensorRT 8.6: give the sizes at run time.
        static[1] = (0,) * len(extent)
    layer = add_layer(ctx, "slice", tensor, *static)
    for index, part in enumerate(parts, start=1):
        if not is_static(part) or (index == 2 and 0 in part):
            layer.set_input(index, size_math.to_tensor(ctx, part))
    return layer.get_output(0)


def flatten(ctx: ConversionContext, tensor: NetworkTensor) -> NetworkTensor:
    """Returns ``tensor`` with one dimension.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
    """
    return reshape(ctx, tensor, [-1] if len(tensor.shape) else [1])


def numel(ctx: ConversionContext, tensor: NetworkTensor) -> Size:
    """Returns how many elements a tensor has.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
    """
    return size_math.product(ctx, size_math.sizes_of(ctx, tensor))
