"""Running totals along a dimension."""

from __future__ import annotations

from typing import Any

from torchtrt.conversion import get_trt_tensor
from torchtrt.tensorrt.shims import add_cumulative_sum
from torchtrt_converters_aten_core.impl import creation, elementwise, shape, sizes, slicing

NEUTRAL = {"SUM": 0, "PROD": 1}
"""What leaves the other operand as it is."""


def cumulate(ctx: Any, kind: str, tensor: Any, dim: int, name: str) -> Any:
    """Returns the running ``SUM`` or ``PROD`` of ``tensor`` along a dimension.

    One layer where TensorRT has it. Elsewhere by doubling: after step ``n`` each element has
    combined ``2**n`` others, so that a dimension of a fixed size takes as many steps as its size
    has bits (Hillis and Steele, 1986). Exact for whole numbers.
    """
    dim %= len(tensor.shape)
    if kind == "SUM":
        axis = get_trt_tensor(ctx, dim, name + "/axis")
        single = add_cumulative_sum(ctx.net, tensor, axis, name)
        if single is not None:
            return single
    size, step = tensor.shape[dim], 1
    while step < size:
        label = f"{name}/step{step}"
        extents = sizes.sizes_of(ctx, tensor, label + "/size")
        extents[dim] = step
        neutral = creation.full(
            ctx, NEUTRAL[kind], extents, ctx.dtype_of(tensor), label + "/neutral"
        )
        extents[dim] = size - step
        rank = len(extents)
        earlier = shape.slice_by(ctx, tensor, [0] * rank, extents, [1] * rank, label + "/earlier")
        moved = slicing.concatenate(ctx, [neutral, earlier], dim, label + "/moved")
        tensor = elementwise.combine(ctx, kind, tensor, moved, label)
        step *= 2
    return tensor
