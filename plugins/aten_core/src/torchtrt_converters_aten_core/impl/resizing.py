"""Images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt.conversion import add_layer
from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import indexing, matmul, shape, sizes, types


def resize(
    ctx: Any,
    tensor: Any,
    extents: Sequence[sizes.Size],
    mode: str,
    coordinates: str,
    rounding: str = "FLOOR",
) -> Any:
    """Returns ``tensor`` with its last dimensions resampled to other sizes.

    Args:
        ctx: The conversion context.
        tensor: A float32 or float16 network tensor of shape ``(batch, channels, *spatial)``.
        extents: The new sizes of the spatial dimensions: numbers or 0-d int32 tensors.
        mode: The name of a ``trt.InterpolationMode``: ``"NEAREST"``, ``"LINEAR"`` or ``"CUBIC"``.
        coordinates: The name of a ``trt.ResizeCoordinateTransformation``.
        rounding: The name of a ``trt.ResizeRoundMode``, for ``"NEAREST"``.
    """
    if len(extents) == 1 and mode == "CUBIC":
        wide = shape.unsqueeze(ctx, tensor, [2])
        result = resize(ctx, wide, [1, *extents], mode, coordinates, rounding)
        return shape.squeeze(ctx, result, [2])
    kept = sizes.sizes_of(ctx, tensor)[: len(tensor.shape) - len(extents)]
    target = [*kept, *extents]
    layer = add_layer(ctx, "resize", tensor)
    if sizes.is_static(target):
        layer.shape = tuple(target)
    else:
        layer.set_input(1, sizes.to_tensor(ctx, target))
    layer.resize_mode = getattr(trt.InterpolationMode, mode)
    layer.coordinate_transformation = getattr(trt.ResizeCoordinateTransformation, coordinates)
    layer.nearest_rounding = getattr(trt.ResizeRoundMode, rounding)
    if mode == "CUBIC":
        layer.cubic_coeff = -0.75
    return layer.get_output(0)


def choose(ctx: Any, tensor: Any, weights: torch.Tensor, dim: int) -> Any:
    """Returns the elements along a dimension that weights of one each choose.

    Args:
        ctx: The conversion context.
        tensor: A network tensor.
        weights: Shape ``(old size, new size)``, a single 1 in each column.
        dim: The dimension.
    """
    places = ctx.tensor(weights.argmax(0).to(torch.int32))
    return indexing.gather(ctx, tensor, places, dim)


def mix(ctx: Any, tensor: Any, weights: torch.Tensor, dim: int) -> Any:
    """Returns sums along a dimension, for each new element with its own weights, computed in float32.

    Args:
        ctx: The conversion context.
        tensor: A floating-point network tensor.
        weights: Shape ``(old size, new size)``.
        dim: The dimension.
    """
    dtype, rank = ctx.dtype_of(tensor), len(tensor.shape)
    inner = types.wide(dtype)
    wide = types.cast(ctx, tensor, inner)
    matrix = types.operand(ctx, weights, inner, rank)
    moved = shape.swap(ctx, wide, dim, -1)
    product = matmul.multiply(ctx, moved, matrix)
    return types.cast(ctx, shape.swap(ctx, product, dim, -1), dtype)
