"""The differences between the TensorRT versions, each in one function.

Every decision asks for a ``torchtrt.capability.Capability``. The functions take the
network and return tensors, so that converters read the same for every version.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torchtrt.capability import Capability
from torchtrt.errors import ConversionError
from torchtrt.tensorrt.dtypes import INT4, engine_dtype, to_trt_dtype
from torchtrt.tensorrt.interfaces import NetworkTensor
from torchtrt.tensorrt.probes import lacking, supports
from torchtrt.tensorrt.selection import trt

INT32_RANGE = (-(2**31), 2**31 - 1)


def create_network(builder: Any) -> Any:
    """Returns a network with an explicit batch dimension, strongly typed where TensorRT can."""
    flags = trt.NetworkDefinitionCreationFlag
    # TensorRT 10 and later have no other kind of batch dimension.
    flag = flags.STRONGLY_TYPED if supports(Capability.STRONG_TYPING) else flags.EXPLICIT_BATCH
    return builder.create_network(1 << int(flag))


def propagate_float16(layer: Any, halves: set[str]) -> bool:
    """Returns whether a layer reads float16, by the names of what is float16 but called Float, and adds its results."""
    kind = layer.type.name
    half = trt.DataType.HALF
    inputs, outputs = tensors_of(layer)
    if kind in ("CAST", "CONSTANT"):
        # TensorRT 8.6 calls what they return Float, and hands them out as base classes.
        layer.__class__ = trt.ICastLayer if kind == "CAST" else trt.IConstantLayer
    if kind == "CAST":
        is_half = half == layer.to_type
    elif kind == "CONSTANT":
        is_half = layer.weights.dtype == np.float16
    else:
        is_half = any(input_.dtype == half or input_.name in halves for input_ in inputs)
    for index, output in enumerate(outputs):
        is_number = kind == "CAST" or output.dtype in (trt.DataType.FLOAT, half)
        if is_half and is_number and not layer.output_type_is_set(index):
            halves.add(output.name)
    return bool(is_half)


def tensors_of(layer: Any) -> tuple[list[Any], list[Any]]:
    """Returns a layer's inputs, without those that are left out, and its outputs."""
    inputs = [layer.get_input(index) for index in range(layer.num_inputs)]
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    return [tensor for tensor in inputs if tensor], outputs


def weights_of(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Returns TensorRT weights over a tensor's values, and the object that owns their memory.

    Args:
        tensor: Any shape and dtype that the TensorRT in use has; 64-bit integers are narrowed where it has none. Of
            ``torch.int4`` each byte holds one value, in its low four bits; TensorRT gets two in a byte. Of
            ``torch.float4_e2m1fn_x2`` each byte holds two values, the first in the low four bits.

    Returns:
        ``(weights, owner)``: the owner must stay alive until the engine is built.

    Raises:
        ConversionError: A 64-bit integer does not fit into 32 bits.
        UnsupportedDtypeError: TensorRT has no such dtype.
    """
    if tensor.dtype in _BYTES:
        return _packed_weights_of(tensor)
    target = engine_dtype(tensor.dtype)
    if target is torch.int32 and tensor.dtype is torch.int64 and tensor.numel():
        low, high = tensor.min().item(), tensor.max().item()
        if low < INT32_RANGE[0] or high > INT32_RANGE[1]:
            constant = f"A 64-bit integer constant with values from {low} to {high}"
            raise ConversionError(
                f"{lacking(constant, Capability.INT64)}. Keep the op in PyTorch with torch_executed_ops."
            )
    owner = tensor.detach().resolve_neg().to(device="cpu", dtype=target).contiguous()
    if target in (torch.bfloat16, torch.float8_e4m3fn):  # NumPy has no such types
        return trt.Weights(to_trt_dtype(target), owner.data_ptr(), owner.numel()), owner
    if not owner.numel():  # weights of nothing must not have an address, which an empty array has
        return trt.Weights(to_trt_dtype(target)), owner
    array = owner.numpy()
    return trt.Weights(array), array


_BYTES = {INT4: 1, torch.float4_e2m1fn_x2: 2, torch.float8_e8m0fnu: 1}
"""The dtypes that are bytes to NumPy and PyTorch's kernels, and how many values a byte of such a tensor holds."""


def _packed_weights_of(tensor: torch.Tensor) -> tuple[Any, Any]:
    count = tensor.numel() * _BYTES[tensor.dtype]
    owner = tensor.detach().view(torch.uint8).cpu().contiguous().reshape(-1)
    if tensor.dtype is INT4:
        if count % 2:
            owner = torch.cat([owner, owner.new_zeros(1)])
        owner = owner[::2] & 15 | owner[1::2] << 4
    return trt.Weights(to_trt_dtype(tensor.dtype), owner.data_ptr(), count), owner


def add_shape(network: Any, tensor: NetworkTensor) -> NetworkTensor:
    """Returns the shape of ``tensor`` as an int32 tensor of shape ``(rank,)``."""
    shape: NetworkTensor = network.add_shape(tensor).get_output(0)
    return shape if shape.dtype == trt.DataType.INT32 else add_cast(network, shape, torch.int32)


def add_cast(network: Any, tensor: NetworkTensor, dtype: torch.dtype) -> NetworkTensor:
    """Returns ``tensor`` converted to ``dtype``; float to integer truncates toward zero and saturates."""
    result: NetworkTensor = network.add_cast(tensor, to_trt_dtype(dtype)).get_output(0)
    return result


def mark_output(network: Any, tensor: Any, name: str, dtype: torch.dtype) -> None:
    """Marks a network output of the given dtype; ``tensor`` must already have it in a strongly typed network."""
    tensor.name = name
    network.mark_output(tensor)
    if not supports(Capability.STRONG_TYPING):
        # In a weakly typed network this, not the producing layer, decides the type of the binding.
        tensor.dtype = to_trt_dtype(dtype)
