"""The precisions of weakly typed networks: TensorRT 8.6 has no others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torchtrt.tensorrt import Capability, propagate_float16, supports, trt
from torchtrt.tensorrt.shims import tensors_of


def allow_precisions(network: Any, config: Any, half_names: Collection[str] = ()) -> list[Any]:
    """Lets a weakly typed network compute in int8 where it quantizes, and in float16 what is float16.

    TensorRT may then compute anything in either, so each float32 layer and most float16 layers require their type.
    Layers between int8 and int8 require none, so that TensorRT can fuse them.
    Returns the float16 layers that need not require it, should the network not build: all but products.

    Args:
        network: The network.
        config: The configuration of its build.
        half_names: The names of the tensors that are float16 in PyTorch. Outputs of Dequantize need it.
    """
    if supports(Capability.STRONG_TYPING):
        return []
    quantizing = (trt.LayerType.QUANTIZE, trt.LayerType.DEQUANTIZE)
    if any(layer.type in quantizing for layer in network):
        config.set_flag(trt.BuilderFlag.INT8)
    dequantized = (layer.get_output(0).name for layer in network if layer.type == quantizing[1])
    halves: set[str] = {name for name in dequantized if name in half_names}
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
        inputs, outputs = tensors_of(layer)
        is_half = propagate_float16(layer, halves)
        is_int8 = kind == "DEQUANTIZE" or any(input_.name in quantized for input_ in inputs)
        if is_int8 and kind in ("DEQUANTIZE", "SHUFFLE"):
            quantized.add(outputs[0].name)
        elif not kind.startswith(_TYPELESS_LAYERS) and layer.name not in between:
            _hold_single(layer, halves, with_precision=not (is_half or is_int8))
        stays_half = is_half and not is_int8 and all(output.name in halves for output in outputs)
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
    layers = list(network)
    after: set[str] = set()  # tensors that a product of int8 leads to
    for layer in layers:
        inputs, outputs = tensors_of(layer)
        is_reached = any(input_.name in after for input_ in inputs)
        if layer.type.name == "DEQUANTIZE" or (is_reached and layer.type.name in _CARRYING):
            after.update(output.name for output in outputs)
    before: set[str] = set()  # tensors that lead to a Quantize
    between: set[str] = set()
    for layer in reversed(layers):
        inputs, outputs = tensors_of(layer)
        if layer.type.name == "QUANTIZE":
            before.add(inputs[0].name)
        elif layer.type.name in _POINTWISE and any(output.name in before for output in outputs):
            before.update(input_.name for input_ in inputs)
            if any(input_.name in after for input_ in inputs):
                between.add(layer.name)
    return between


def _hold_single(layer: Any, halves: set[str], with_precision: bool) -> None:
    """Holds a layer's float32 outputs to float32 and, where asked, its arithmetic too."""
    single = trt.DataType.FLOAT
    for index, output in enumerate(tensors_of(layer)[1]):
        if output.dtype == single and output.name not in halves:
            layer.set_output_type(index, single)
            if with_precision:
                layer.precision = single
