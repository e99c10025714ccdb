"""The differences between the TensorRT versions, each in one function.

Every decision asks for a ``torchtrt.capability.Capability``. The functions take the
network and return tensors, so that converters read the same for every version.
"""

from __future__ import annotations

from collections.abc import Collection
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


def allow_precisions(network: Any, config: Any, known: Collection[str] = ()) -> list[Any]:
    """Lets a weakly typed network compute in int8 where it quantizes, and in float16 what is float16.

    TensorRT may then compute anything in either, so each float32 layer and most float16 layers require their type.
    Layers between int8 and int8 require none, so that TensorRT can fuse them.
    Returns the float16 layers that need not require it, should the network not build: all but products.

    Args:
        network: The network.
        config: The configuration of its build.
        known: The names of the tensors that are float16 in PyTorch. Outputs of Dequantize need it.
    """
    if supports(Capability.STRONG_TYPING):
        return []
    quantizing = (trt.LayerType.QUANTIZE, trt.LayerType.DEQUANTIZE)
    if any(layer.type in quantizing for layer in network):
        config.set_flag(trt.BuilderFlag.INT8)
    dequantized = (layer.get_output(0).name for layer in network if layer.type == quantizing[1])
    halves: set[str] = {name for name in dequantized if name in known}
    if not halves and not any(propagate_float16(layer, halves) for layer in network):
        return []
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
    return _hold_precisions(network, halves)


_TYPELESS_LAYERS = ("CAST", "CONDITION", "CONSTANT", "ITERATOR", "LOOP_OUTPUT", "RECURRENCE")
"""The prefix of the names of layers that compute nothing."""
_UNCONSTRAINED_LAYERS = (
    "CONVOLUTION",
    "DECONVOLUTION",
    "NORMALIZATION",
    "POOLING",
    "REDUCE",
    "SOFTMAX",
)
"""Of float16, what may be computed in float32: what sums, and convolutions, which are 10 % slower held (ConvNeXt)."""


def _hold_precisions(network: Any, halves: set[str]) -> list[Any]:
    """Holds layers to the dtypes of their tensors; returns those that may be let go of float16 again."""
    quantized: set[str] = set()
    between = _between_quantized(network)
    held: list[Any] = []
    for layer in network:
        kind = layer.type.name
        inputs, outputs = _tensors(layer)
        is_half = propagate_float16(layer, halves)
        is_int8 = kind == "DEQUANTIZE" or any(each.name in quantized for each in inputs)
        if is_int8 and kind in ("DEQUANTIZE", "SHUFFLE"):
            quantized.add(outputs[0].name)
        elif not kind.startswith(_TYPELESS_LAYERS) and layer.name not in between:
            _hold_single(layer, halves, with_precision=not (is_half or is_int8))
        stays_half = is_half and not is_int8 and all(each.name in halves for each in outputs)
        if (
            stays_half
            and not kind.startswith(_TYPELESS_LAYERS + _UNCONSTRAINED_LAYERS)
            and layer.name not in between
        ):
            layer.precision = trt.DataType.HALF
            if kind != "MATRIX_MULTIPLY":
                held.append(layer)
    return held


_POINTWISE = ("ACTIVATION", "ELEMENTWISE", "UNARY", "SCALE", "SHUFFLE", "RELU", "CLIP")
"""The layers that TensorRT fuses with a product of int8 before them and a Quantize after them."""
_CARRYING = ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", *_POINTWISE)


def _between_quantized(network: Any) -> set[str]:
    """Returns the names of the pointwise layers that lie between products of int8 and Quantize."""
    layers = [network.get_layer(place) for place in range(network.num_layers)]
    after: set[str] = set()  # tensors that a product of int8 leads to
    for layer in layers:
        inputs, outputs = _tensors(layer)
        is_reached = any(each.name in after for each in inputs)
        if layer.type.name == "DEQUANTIZE" or (is_reached and layer.type.name in _CARRYING):
            after.update(each.name for each in outputs)
    before: set[str] = set()  # tensors that lead to a Quantize
    between: set[str] = set()
    for layer in reversed(layers):
        inputs, outputs = _tensors(layer)
        if layer.type.name == "QUANTIZE":
            before.add(inputs[0].name)
        elif layer.type.name in _POINTWISE and any(each.name in before for each in outputs):
            before.update(each.name for each in inputs)
            if any(each.name in after for each in inputs):
                between.add(layer.name)
    return between


def _hold_single(layer: Any, halves: set[str], with_precision: bool) -> None:
    """Holds a layer's float32 outputs to float32 and, where asked, its arithmetic too."""
    single = trt.DataType.FLOAT
    for place, output in enumerate(_tensors(layer)[1]):
        if output.dtype == single and output.name not in halves:
            layer.set_output_type(place, single)
            if with_precision:
                layer.precision = single


def propagate_float16(layer: Any, halves: set[str]) -> bool:
    """Returns whether a layer reads float16, by the names of what is float16 but called Float, and adds its results."""
    kind = layer.type.name
    half = trt.DataType.HALF
    inputs, outputs = _tensors(layer)
    if kind in ("CAST", "CONSTANT"):
        # TensorRT 8.6 calls what they return Float, and hands them out as base classes.
        layer.__class__ = trt.ICastLayer if kind == "CAST" else trt.IConstantLayer
    if kind == "CAST":
        is_half = half == layer.to_type
    elif kind == "CONSTANT":
        is_half = layer.weights.dtype == np.float16
    else:
        is_half = any(each.dtype == half or each.name in halves for each in inputs)
    for place, output in enumerate(outputs):
        is_number = kind == "CAST" or output.dtype in (trt.DataType.FLOAT, half)
        if is_half and is_number and not layer.output_type_is_set(place):
            halves.add(output.name)
    return bool(is_half)


def _tensors(layer: Any) -> tuple[list[Any], list[Any]]:
    """Returns a layer's inputs, without those that are left out, and its outputs."""
    inputs = [layer.get_input(place) for place in range(layer.num_inputs)]
    outputs = [layer.get_output(place) for place in range(layer.num_outputs)]
    return [tensor for tensor in inputs if tensor], outputs


def share_profiles(config: Any) -> None:
    """Lets several execution contexts use a profile at a time, which TensorRT 8.6 does only with a flag."""
    if not supports(Capability.SHARED_PROFILES):
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)


def context_without_memory(engine: Any) -> Any:
    """Returns an execution context that computes in memory of the caller's."""
    if supports(Capability.ALLOCATION_STRATEGIES):
        return engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    return engine.create_execution_context_without_device_memory()


def preview_collectives(network: Any, config: Any) -> None:
    """Lets layers of a network exchange tensors between processes, which TensorRT 10.16 has as a preview feature."""
    if supports(Capability.SETTLED_COLLECTIVES):
        return
    has_layer = supports(Capability.DISTRIBUTED_COLLECTIVES)
    if has_layer and any(layer.num_ranks > 1 for layer in network):
        config.set_preview_feature(trt.PreviewFeature.MULTIDEVICE_RUNTIME_10_16, True)


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
    owner = tensor.detach().to(device="cpu", dtype=target).contiguous()
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
