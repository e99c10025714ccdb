"""Layers of this pack that TensorRT's versions spell differently."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.conversion import NetworkTensor
from torchtrt.tensorrt import Capability, supports, to_trt_dtype, trt


def add_gelu(network: Any, tensor: NetworkTensor, approximate: str) -> NetworkTensor | None:
    """Returns GELU as one layer, or None where TensorRT has no such activation.

    Args:
        network: The network.
        tensor: A floating-point tensor of any shape.
        approximate: ``"none"`` (by erf) or ``"tanh"``.
    """
    if not supports(Capability.GELU):
        return None
    kinds = trt.ActivationType
    kind = kinds.GELU_TANH if approximate == "tanh" else kinds.GELU_ERF
    result: NetworkTensor = network.add_activation(tensor, kind).get_output(0)
    return result


def reduces_integers_exactly() -> bool:
    """Returns whether Reduce computes integers as such; TensorRT 8.6 does it in float32."""
    return supports(Capability.INTEGER_REDUCTION)


def tells_sizes_that_depend_on_data() -> bool:
    """Returns whether Shape takes tensors whose sizes depend on data; TensorRT 8.6 cannot build that."""
    return supports(Capability.SIZES_FROM_DATA)


def returns_sizes_of_one_branch() -> bool:
    """Returns whether the branches of a conditional may return different sizes, which TensorRT 8.6 refuses."""
    return supports(Capability.BRANCHES_OF_OTHER_SIZES)


def deconvolves(dtype: torch.dtype) -> bool:
    """Returns whether the TensorRT in use has a Deconvolution layer of a dtype."""
    return dtype is not torch.bfloat16 or supports(Capability.BFLOAT16_DECONVOLUTION)


def keeps_infinite_numbers() -> bool:
    """Returns whether an infinite constant of one element stays infinite; TensorRT 8.6 reads it as 1e38."""
    return supports(Capability.INFINITE_CONSTANTS)


def add_fill(
    network: Any,
    shape: tuple[int, ...] | NetworkTensor,
    operation: Any,
    dtype: torch.dtype,
    alpha: NetworkTensor | float,
    beta: NetworkTensor | float,
) -> NetworkTensor:
    """Returns a tensor filled by ``operation``.

    Args:
        network: The network.
        shape: A tuple of sizes, or an int32 tensor of shape ``(rank,)`` for sizes known at run
            time.
        operation: A ``trt.FillOperation``.
        dtype: The result's dtype.
        alpha: First parameter (start, low or mean): a Python number for a static shape, a 0-d
            tensor otherwise.
        beta: Second parameter (step, high or deviation): a number, or a tensor (``(rank,)`` for
            LINSPACE).
    """
    dims = shape if isinstance(shape, tuple) else (0,) * shape.shape[0]
    if supports(Capability.STRONG_TYPING):
        layer = network.add_fill(dims, operation, to_trt_dtype(dtype))
    else:
        layer = network.add_fill(dims, operation)
        layer.set_output_type(0, to_trt_dtype(dtype))
    if isinstance(shape, tuple):
        layer.alpha, layer.beta = alpha, beta
    else:
        for index, tensor in enumerate((shape, alpha, beta)):
            layer.set_input(index, tensor)
    result: NetworkTensor = layer.get_output(0)
    return result


def add_cumulative_sum(
    network: Any, tensor: NetworkTensor, dim: NetworkTensor
) -> NetworkTensor | None:
    """Returns the running sum of ``tensor`` along a dimension, or None where TensorRT has no such layer.

    Args:
        network: The network.
        tensor: A tensor of floating-point numbers or integers, of rank 1 or more.
        dim: The dimension: a constant 0-d int32 tensor.
    """
    if not supports(Capability.CUMULATIVE):
        return None
    layer = network.add_cumulative(tensor, dim, trt.CumulativeOperation.SUM, False, False)
    result: NetworkTensor = layer.get_output(0)
    return result


def ranks_integers() -> bool:
    """Returns whether TopK takes integers, which TensorRT 8.6 refuses."""
    return supports(Capability.INTEGER_RANKING)


def multiplies_one_row_exactly() -> bool:
    """Returns whether a batch of products may have one row each.

    TensorRT 8.6 computes ``softmax(q @ k.T + mask) @ v`` wrongly, by as much as the values themselves. That happens if
    ``q`` has one row that does not vary, the batch has several products, and a reduction reads the mask as well.
    Scores that are the transpose of ``k @ q.T`` are right: 0 of 38 such networks on an H200 were wrong, and 34 of 176.
    """
    return supports(Capability.SINGLE_ROW_PRODUCTS)


def takes_several_varying_sizes() -> bool:
    """Returns whether networks with several dynamic sizes are computed right in any form, and quickly."""
    return supports(Capability.SEVERAL_VARYING_SIZES)


def loops_over_one_row() -> bool:
    """Returns whether a loop whose body multiplies one row builds in a usual time.

    TensorRT for RTX 1.7 takes 20 s to 255 s for an LSTM or a GRU with a batch of 1, and 1 s with a batch of 2.
    """
    return supports(Capability.SINGLE_ROW_LOOPS)
