"""Pooling over windows, in one to three dimensions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkLayer,
    NetworkTensor,
    Size,
    add_layer,
    arguments_of,
    value_of,
)
from torchtrt.tensorrt import trt
from torchtrt_blocks import shape, types
from torchtrt_blocks.formulas import Formula
from torchtrt_blocks.reduction import reduce
from torchtrt_blocks.sizes import per_dimension
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.weighted_sums import Taps, sum_of_taps, taps_in

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of a pooling: one number for each spatial dimension.

    Attributes:
        size: The window's size.
        stride: The distance between windows.
        padding: What is added before and after.
        padding_after: What is added after, where it is another.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_after: tuple[int, ...]

    def widened(self) -> Window:
        """Returns the window with one more dimension, over which nothing is pooled."""
        return Window(
            (*self.size, 1),
            (*self.stride, 1),
            (*self.padding, 0),
            (*self.padding_after, 0),
        )


def _pool(
    ctx: ConversionContext,
    kind: str,
    tensor: NetworkTensor,
    window: Window,
    count_padding: bool = False,
) -> NetworkTensor:
    """Returns ``tensor`` pooled over its last dimensions.

    Args:
        ctx: The conversion context.
        kind: ``"MAX"`` or ``"AVERAGE"``.
        tensor: A floating-point network tensor of shape ``(batch, channels, *spatial)``; without
            the batch dimension likewise.
        window: What is pooled together.
        count_padding: Whether an average divides by the padding's elements too.
    """
    spatial = len(window.size)
    if len(tensor.shape) == spatial + 1:
        batch = shape.unsqueeze(ctx, tensor, [0])
        result = _pool(ctx, kind, batch, window, count_padding)
        return shape.squeeze(ctx, result, [0])
    if spatial == 1:  # TensorRT pools over two or three dimensions
        wide = shape.unsqueeze(ctx, tensor, [3])
        result = _pool(ctx, kind, wide, window.widened(), count_padding)
        return shape.squeeze(ctx, result, [3])
    dtype = ctx.dtype_of(tensor)
    if dtype is torch.bfloat16:  # not among the dtypes that TensorRT pools
        tensor = types.cast(ctx, tensor, torch.float32)
    layer = _layer(ctx, kind, tensor, window)
    if kind == "AVERAGE":
        layer.average_count_excludes_padding = not count_padding
    result = layer.get_output(0)
    if kind == "MAX" and _may_be_minus_infinity(arguments_of(types.node_of(ctx)).self):
        result = _restore_minus_infinity(ctx, tensor, window, result)
    return ctx.tensor(result, dtype)


def _layer(
    ctx: ConversionContext, kind: str, tensor: NetworkTensor, window: Window
) -> NetworkLayer:
    layer = add_layer(ctx, "pooling_nd", tensor, getattr(trt.PoolingType, kind), window.size)
    layer.stride_nd = window.stride
    layer.pre_padding = window.padding
    layer.post_padding = window.padding_after
    return layer


def _restore_minus_infinity(
    ctx: ConversionContext, tensor: NetworkTensor, window: Window, pooled: NetworkTensor
) -> NetworkTensor:
    """Returns maxima with -inf where a window holds nothing else.

    TensorRT starts from the lowest finite number, which a mask may have put into a window: whether it holds a finite
    number is pooled too.
    """
    dtype = ctx.dtype_of(pooled)
    finite = (Formula(ctx, tensor) >= torch.finfo(dtype).min).cast(dtype)
    most = Formula(ctx, _layer(ctx, "MAX", finite.tensor, window).get_output(0))
    return (most > 0.5).where(pooled, -math.inf, dtype).tensor


def _may_be_minus_infinity(made: Any) -> bool:
    """Returns whether an element may be -inf, as far as the node that made the tensor determines."""
    makers = [made]
    for maker in makers:  # each once: pools of pools that are concatenated have many ways back
        if isinstance(maker, Node) and maker.target in _CHOOSING:
            makers += [source for source in maker.all_input_nodes if source not in makers]
        elif not isinstance(maker, Node) or not _is_bounded_below(maker):
            return True
    return False


def _is_bounded_below(node: Node) -> bool:
    """Returns whether a node's values are all above -inf, whatever it reads."""
    if node.target in _LIMITING:
        op = vars(arguments_of(node))
        low, *others = (op[name] for name in _LIMITING[node.target])
        limits = [low, *(limit for limit in others if limit is not None)]
        lowest = torch.finfo(value_of(node).dtype).min
        return all(isinstance(limit, (int, float)) and limit >= lowest for limit in limits)
    is_dequantized = getattr(node.target, "__name__", "").startswith("dequantize")
    return node.target in _BOUNDED_BELOW or is_dequantized


def _adaptive_average(
    ctx: ConversionContext, tensor: NetworkTensor, sizes: Sequence[int]
) -> NetworkTensor:
    """Returns the averages of equal parts of the last dimensions: ``sizes`` is how many.

    A dimension of any size becomes 1 by a mean; a fixed one becomes any other by sums of the parts' elements.
    """
    rank = len(tensor.shape)
    dims = range(rank - len(sizes), rank)
    single = [dim for dim, size in zip(dims, sizes, strict=True) if size == 1]
    result = reduce(ctx, "AVG", tensor, single, True)
    rest = {
        dim: size
        for dim, size in zip(dims, sizes, strict=True)
        if size != 1 and tensor.shape[dim] != size
    }
    if rest and all(tensor.shape[position] % size == 0 for position, size in rest.items()):
        steps = tuple(tensor.shape[dim] // rest[dim] if dim in rest else 1 for dim in dims)
        zeros = (0,) * len(sizes)
        return _pool(ctx, "AVERAGE", result, Window(steps, steps, zeros, zeros))
    for dim, size in rest.items():
        result = sum_of_taps(ctx, result, _parts(tensor.shape[dim], size), dim)
    return result


def _parts(length: int, size: int) -> Taps:
    """Returns the elements of the parts of adaptive pooling: neighbors overlap unless the length is a multiple."""
    windows = torch.zeros(length, size, dtype=torch.bool)
    for part in range(size):
        windows[part * length // size : -(-(part + 1) * length // size), part] = True
    return taps_in(windows, windows / windows.sum(0))


MAXIMA: dict[object, int] = {
    aten.max_pool1d.default: 1,
    aten.max_pool2d.default: 2,
    aten.max_pool3d.default: 3,
}
MAXIMA_WITH_INDICES: dict[object, int] = {
    aten.max_pool2d_with_indices.default: 2,
    aten.max_pool3d_with_indices.default: 3,
}
AVERAGES: dict[object, int] = {
    aten.avg_pool1d.default: 1,
    aten.avg_pool2d.default: 2,
    aten.avg_pool3d.default: 3,
}
ADAPTIVE_AVERAGES: dict[object, int] = {
    aten.adaptive_avg_pool1d.default: 1,
    aten.adaptive_avg_pool2d.default: 2,
    aten._adaptive_avg_pool2d.default: 2,
    aten.adaptive_avg_pool3d.default: 3,
    aten._adaptive_avg_pool3d.default: 3,
}
"""Ops by the number of dimensions that they pool over."""
ADAPTIVE_MAXIMA: dict[object, int] = {
    aten.adaptive_max_pool1d.default: 1,
    aten.adaptive_max_pool2d.default: 2,
    aten.adaptive_max_pool3d.default: 3,
}
_CHOOSING = {*MAXIMA, *MAXIMA_WITH_INDICES, *ADAPTIVE_MAXIMA, operator.getitem, aten.cat.default}
"""Ops whose elements are elements of what they read."""
_LIMITING: dict[object, tuple[str, ...]] = {
    aten.clamp.default: ("min", "max"),
    aten.clamp_min.default: ("min",),
    aten.hardtanh.default: ("min_val", "max_val"),
}
"""Ops with a lower limit, and its name; then the name of the upper one, which wins where it is lower."""
_BOUNDED_BELOW = {
    aten.gelu.default,
    aten.hardsigmoid.default,
    aten.relu.default,
    aten.relu6.default,
    aten.sigmoid.default,
    aten.silu.default,
    aten.tanh.default,
}
"""Ops none of whose values is -inf."""


def _geometry(
    count: int, kernel_size: Any, stride: Any, padding: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    size = per_dimension(kernel_size, count)
    steps = per_dimension(stride, count) if stride not in (None, []) else size
    return size, steps, per_dimension(padding, count)


def _rounds_alike(size: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]) -> bool:
    """Returns whether no window starts in the padding at the end, which PyTorch would leave out."""
    return all(
        pad + step <= extent for extent, step, pad in zip(size, stride, padding, strict=True)
    )


def _unsupported_window(node: Node, *, count: int) -> str | None:
    """Returns why TensorRT's windows differ from PyTorch's here, or ``None``."""
    op = arguments_of(node)
    tensor = value_of(op.self)
    if not tensor.dtype.is_floating_point:
        return "TensorRT pools floating-point numbers only"
    if any(step != 1 for step in per_dimension(getattr(op, "dilation", 1), 1)):
        return "TensorRT pools without dilation"
    size, stride, padding = _geometry(count, op.kernel_size, op.stride, op.padding)
    if op.ceil_mode and not _rounds_alike(size, stride, padding):
        fixed = all(isinstance(extent, int) for extent in tensor.shape[-len(size) :])
        if not fixed or getattr(op, "count_include_pad", False):
            return "TensorRT counts a last window that starts in the padding, PyTorch does not"
    if op.ceil_mode and any(padding) and getattr(op, "count_include_pad", False):
        return "PyTorch counts the padding but not what ceil_mode adds to it, TensorRT counts both"
    if getattr(op, "divisor_override", None) is not None and op.ceil_mode:
        return "a divisor of its own with ceil_mode has no TensorRT equivalent"
    return None


def _reads_indices(node: Node) -> str | None:
    if types.reads_first_only(node):
        return None
    return "TensorRT's pooling does not return indices"


def _window(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    geometry: tuple[tuple[int, ...], ...],
    ceil_mode: bool,
) -> Window:
    """Returns the window that gives PyTorch's sizes, rounded up with ``ceil_mode``.

    A fixed size is padded up to what its windows read. Another gets one element less than a step, so that rounding
    down counts what rounding up would. TensorRT's own rounding up takes no window that is larger than the size.
    """
    size, stride, padding = geometry
    if not ceil_mode:
        return Window(size, stride, padding, padding)
    result = types.output_value(ctx)
    counts = (result[0] if isinstance(result, tuple) else result).shape[-len(size) :]
    extents = tuple(tensor.shape)[-len(size) :]
    after = tuple(
        pad + step - 1 if extent < 0 else max(0, (count - 1) * step + width - extent - pad)
        for count, step, width, extent, pad in zip(
            counts, stride, size, extents, padding, strict=True
        )
    )
    return Window(size, stride, padding, after)


@pack.converter(table={"count": MAXIMA}, reject_if=_unsupported_window)
def maximum(
    ctx: ConversionContext,
    self: NetworkTensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    *,
    count: int,
    **_: Any,
) -> NetworkTensor:
    """Converts the largest element of each window."""
    geometry = _geometry(count, kernel_size, stride, padding)
    return _pool(ctx, "MAX", self, _window(ctx, self, geometry, ceil_mode))


@pack.converter(
    table={"count": MAXIMA_WITH_INDICES}, reject_if=(_reads_indices, _unsupported_window)
)
def maximum_with_indices(
    ctx: ConversionContext, *, count: int, **arguments: Any
) -> tuple[NetworkTensor, None]:
    """Converts the largest element of each window, where nothing reads its index."""
    return maximum(ctx, count=count, **arguments), None


@pack.converter(table={"count": AVERAGES}, reject_if=_unsupported_window)
def average(
    ctx: ConversionContext,
    self: NetworkTensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
    *,
    count: int,
) -> NetworkTensor:
    """Converts the average of each window, or its sum over a divisor of its own."""
    window = _window(ctx, self, _geometry(count, kernel_size, stride, padding), ceil_mode)
    if divisor_override is None:
        # Without padding there is nothing to count but what ceil_mode adds, which PyTorch does not.
        count_padding = count_include_pad and any(window.padding)
        return _pool(ctx, "AVERAGE", self, window, count_padding)
    whole = _pool(ctx, "AVERAGE", self, window, count_padding=True)
    factor = math.prod(window.size) / divisor_override
    return (Formula(ctx, whole, types.output_dtype(ctx)) * factor).tensor


def _varying_parts(node: Node, *, count: int) -> str | None:
    op = arguments_of(node)
    tensor = value_of(op.self)
    if not tensor.dtype.is_floating_point:
        return "TensorRT pools floating-point numbers only"
    wanted = per_dimension(op.output_size, count)
    for size, extent in zip(wanted, tensor.shape[-len(wanted) :], strict=True):
        if size != 1 and not (isinstance(size, int) and isinstance(extent, int) and extent > 0):
            return "parts of a size that is known only at run time have no fixed window"
    return None


@pack.converter(table={"count": ADAPTIVE_AVERAGES}, reject_if=_varying_parts)
def adaptive_average(
    ctx: ConversionContext, self: NetworkTensor, output_size: Sequence[Size], *, count: int
) -> NetworkTensor:
    """Converts averages of a given number of equal parts."""
    return _adaptive_average(ctx, self, per_dimension(output_size, count))


def _unequal_parts(node: Node, *, count: int) -> str | None:
    op = arguments_of(node)
    wanted = per_dimension(op.output_size, count)
    extents = value_of(op.self).shape[-len(wanted) :]
    if all(
        isinstance(extent, int) and extent % size == 0
        for size, extent in zip(wanted, extents, strict=True)
    ):
        return None
    return "parts of unequal or unknown sizes have no fixed window"


@pack.converter(
    table={"count": ADAPTIVE_MAXIMA}, reject_if=(_reads_indices, _varying_parts, _unequal_parts)
)
def adaptive_maximum(
    ctx: ConversionContext, self: NetworkTensor, output_size: Sequence[int], *, count: int
) -> tuple[NetworkTensor, None]:
    """Converts the largest element of each of equal parts, where nothing reads its index."""
    wanted = per_dimension(output_size, count)
    extents = tuple(self.shape)[-len(wanted) :]
    steps = tuple(extent // size for extent, size in zip(extents, wanted, strict=True))
    zeros = (0,) * len(steps)
    return _pool(ctx, "MAX", self, Window(steps, steps, zeros, zeros)), None
