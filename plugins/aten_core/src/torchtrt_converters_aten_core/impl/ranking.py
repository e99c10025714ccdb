"""The largest and smallest elements, in order."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import shape, types
from torchtrt_converters_aten_core.impl.layers import add_layer

LIMIT = 3840
"""The most elements that TensorRT ranks."""


def top_k(ctx: Any, tensor: Any, k: int, dim: int, largest: bool, name: str) -> tuple[Any, Any]:
    """Returns the ``k`` largest (or smallest) elements along a dimension in order, and their int32 indices.

    Args:
        ctx: The conversion context.
        tensor: A network tensor; booleans are ranked as numbers.
        k: How many, at most :data:`LIMIT`.
        dim: The dimension; it is moved to the end where TensorRT cannot look along it.
        largest: Whether the largest come first.
        name: The prefix for the names of layers.
    """
    rank, dtype = len(tensor.shape), ctx.dtype_of(tensor)
    if dtype is torch.bool:
        number = types.cast(ctx, tensor, torch.float32, name + "/number")
        values, indices = top_k(ctx, number, k, dim, largest, name)
        return types.cast(ctx, values, torch.bool, name + "/bool"), indices
    if rank < 2:  # TensorRT needs two dimensions
        wide = shape.to_rank(ctx, tensor, 2, name + "/wide")
        values, indices = top_k(ctx, wide, k, -1, largest, name)
        gone = [0] if rank else [0, 1]
        return (
            shape.squeeze(ctx, values, gone, name + "/values"),
            shape.squeeze(ctx, indices, gone, name + "/indices"),
        )
    dim %= rank
    far = dim < rank - 4
    if far:
        tensor = shape.swap(ctx, tensor, dim, -1, name + "/moved")
    kind = trt.TopKOperation.MAX if largest else trt.TopKOperation.MIN
    layer = add_layer(ctx, name, "topk", tensor, kind, k, 1 << (rank - 1 if far else dim))
    values, indices = layer.get_output(0), layer.get_output(1)
    if far:
        values = shape.swap(ctx, values, dim, -1, name + "/values")
        indices = shape.swap(ctx, indices, dim, -1, name + "/indices")
    return values, indices
