"""Pooling over windows, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.conversion import add_layer
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import matmul, shape, types
from torchtrt_converters_aten_core.impl.reduction import reduce


@dataclass(frozen=True, slots=True)
class Window:
    """What is pooled together: one number for each spatial dimension.

    Attributes:
        size: The window's size.
        stride: The distance between windows.
        padding: What is added before and after.
        padding_after: What is added after, where it is another.
        round_up: Whether a last window that reaches over the end counts.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_after: tuple[int, ...]
    round_up: bool = False

    def widened(self) -> Window:
        """Returns the window with one more dimension, over which nothing is pooled."""
        return Window(
            (*self.size, 1),
            (*self.stride, 1),
            (*self.padding, 0),
            (*self.padding_after, 0),
            self.round_up,
        )


def pool(ctx: Any, kind: str, tensor: Any, window: Window, count_padding: bool = False) -> Any:
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
        result = pool(ctx, kind, batch, window, count_padding)
        return shape.squeeze(ctx, result, [0])
    if spatial == 1:  # TensorRT pools over two or three dimensions
        wide = shape.unsqueeze(ctx, tensor, [3])
        result = pool(ctx, kind, wide, window.widened(), count_padding)
        return shape.squeeze(ctx, result, [3])
    dtype = ctx.dtype_of(tensor)
    if dtype is torch.bfloat16:  # not among the dtypes that TensorRT pools
        tensor = types.cast(ctx, tensor, torch.float32)
    layer = add_layer(ctx, "pooling_nd", tensor, getattr(trt.PoolingType, kind), window.size)
    layer.stride_nd = window.stride
    layer.pre_padding = window.padding
    layer.post_padding = window.padding_after
    if window.round_up:
        layer.padding_mode = trt.PaddingMode.EXPLICIT_ROUND_UP
    if kind == "AVERAGE":
        layer.average_count_excludes_padding = not count_padding
    return types.cast(ctx, layer.get_output(0), dtype)


def adaptive_average(ctx: Any, tensor: Any, sizes: Sequence[int]) -> Any:
    """Returns the averages of as many equal parts of the last dimensions as ``sizes`` says.

    A dimension of any size becomes 1 by a mean; a fixed one becomes any other by a matrix of the parts' weights.
    """
    rank = len(tensor.shape)
    places = range(rank - len(sizes), rank)
    single = [place for place, size in zip(places, sizes, strict=True) if size == 1]
    result = reduce(ctx, "AVG", tensor, single, True)
    rest = {
        place: size
        for place, size in zip(places, sizes, strict=True)
        if size != 1 and tensor.shape[place] != size
    }
    if rest and all(tensor.shape[place] % size == 0 for place, size in rest.items()):
        steps = tuple(
            tensor.shape[place] // rest[place] if place in rest else 1 for place in places
        )
        zeros = (0,) * len(sizes)
        return pool(ctx, "AVERAGE", result, Window(steps, steps, zeros, zeros))
    for place, size in rest.items():
        result = _average_parts(ctx, result, place, size)
    return result


def _average_parts(ctx: Any, tensor: Any, place: int, size: int) -> Any:
    length, rank = tensor.shape[place], len(tensor.shape)
    weights = torch.zeros(length, size)
    for part in range(size):
        first, last = part * length // size, -(-(part + 1) * length // size)
        weights[first:last, part] = 1 / (last - first)
    weights = weights.to(ctx.dtype_of(tensor)).reshape((1,) * (rank - 2) + (length, size))
    matrix = ctx.tensor(weights)
    moved = shape.swap(ctx, tensor, place, -1)
    return shape.swap(ctx, matmul.multiply(ctx, moved, matrix), place, -1)
