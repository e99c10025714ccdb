"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Sequence

from torchtrt.conversion import ConversionContext, NetworkTensor, add_layer
from torchtrt_blocks import shape
from torchtrt_blocks.formulas import Formula


def softmax(ctx: ConversionContext, tensor: NetworkTensor, dim: int) -> NetworkTensor:
    """Returns the softmax of a floating-point tensor over one dimension.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        dim: The dimension; negative ones count from the last.
    """
    rank = len(tensor.shape)
    if rank < 2:  # TensorRT needs two dimensions
        wide = shape.to_rank(ctx, tensor, 2)
        dropped = [0] if rank else [0, 1]
        return shape.squeeze(ctx, softmax(ctx, wide, -1), dropped)
    layer = add_layer(ctx, "softmax", tensor)
    layer.axes = 1 << dim % rank
    return layer.get_output(0)


def log_softmax(ctx: ConversionContext, tensor: NetworkTensor, dim: int) -> NetworkTensor:
    """Returns the logarithm of the softmax, without taking the logarithm of a number that underflowed.

    By ``z - log(sum(exp(z)))`` for ``z = x - max(x)``.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        dim: The dimension; negative ones count from the last.
    """
    x = Formula(ctx, tensor)
    if not len(tensor.shape):
        return (x - x).tensor
    shifted = x - x.max([dim])
    return (shifted - shifted.exp().sum([dim]).log()).tensor


def log_sum_exp(
    ctx: ConversionContext, tensor: NetworkTensor, dims: Sequence[int], keep: bool
) -> NetworkTensor:
    """Returns ``log(sum(exp(x)))`` of a floating-point tensor over ``dims`` without overflow.

    By ``m + log(sum(exp(x - m)))`` for the largest element ``m``, or 0 where that is infinite.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of a floating-point dtype and any shape.
        dims: The dimensions; negative ones count from the last.
        keep: Whether the dimensions stay, with size 1.
    """
    x = Formula(ctx, tensor)
    largest = x.max(dims)
    offset = largest.is_infinite().where(0.0, largest)
    logarithm = (x - offset).exp().sum(dims, keep).log()
    return (logarithm + (offset if keep else offset.squeeze(dims))).tensor
