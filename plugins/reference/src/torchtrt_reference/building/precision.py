"""The types of weakly typed networks: the ones that a builder must allow, and those of the outputs.

In a weakly typed network the types of floating-point tensors are only preferred. TensorRT 8.6 drops a cast to float16
that nothing requires, takes 8-bit integers for quantized values, and calls an output Float until it is declared
otherwise. Where float16 is allowed, it may compute anything in float16 that is not required to be Float.
"""

from __future__ import annotations

from torchtrt_reference import dtypes
from torchtrt_reference.building.configuration import BuilderConfig
from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.semantics.operation import FLOATS
from torchtrt_reference.semantics.tensor_facts import RefusedError

_FLAGS = {"HALF": "FP16", "BF16": "BF16", "INT8": "INT8", "FP8": "FP8", "INT4": "INT4"}
_QUANTIZING = ("quantize", "dequantize")
# What declares the type that it makes, and what computes nothing
_UNNARROWED = ("cast", *_QUANTIZING, "conditional_input", "conditional_output")
_BESIDE_BYTES = ("cast", "identity")  # what may read and write UINT8


def check_types(network: NetworkDefinition, config: BuilderConfig) -> None:
    """Checks that the builder may use the types that a weakly typed network requires.

    Raises:
        RefusedError: A flag is missing, or a type is where TensorRT has none.
    """
    if network._strong:
        return
    for layer in network._layers:
        for name in _types_asked_for(layer):
            flag = _FLAGS.get(name)
            if flag is not None and not config._has_flag(flag):
                message = (
                    f"{layer._name}: {dtypes.SPELLING[name]} precision has been set for a layer or layer output, "
                    f"but it is not configured in the builder: set the flag {flag}"
                )
                raise RefusedError(message)
    if network._rules.types_are_hints:
        _check_bytes(network)


def _types_asked_for(layer: Layer) -> list[str]:
    asked = list(layer._output_types.values())
    if layer._precision is not None:
        asked.append(layer._precision.name)
    if layer._operation.name in _QUANTIZING:
        asked.append("INT8")
    return asked


def _check_bytes(network: NetworkDefinition) -> None:
    """Raises an error for INT8 tensors without Q/DQ layers, which need TensorRT's calibration."""
    is_quantized = any(layer._operation.name in _QUANTIZING for layer in network._layers)
    for tensor in network._inputs:
        if tensor._declared == "INT8" and not is_quantized:
            message = (
                f"{tensor._name}: input/output with DataType Int8 in network without Q/DQ layers must have "
                "dynamic range set when no calibrator is used. The reference does not quantize implicitly: use Int32"
            )
            raise RefusedError(message)
    for layer in network._layers:
        if layer._operation.name != "constant" or layer._attributes["weights"]._dtype != "INT8":
            continue
        readers = layer._outputs[0]._consumers.values()
        if not all(
            reader._operation.name == "dequantize" and reader._inputs[0] is layer._outputs[0]
            for reader in readers
        ):
            message = f"{layer._name}: Int8 constant is only allowed before DQ node"
            raise RefusedError(message)
    for tensor in network._outputs:
        producer = tensor._producer
        is_moved = producer is not None and producer._operation.name not in _BESIDE_BYTES
        if is_moved and tensor._facts().dtype == "UINT8":
            message = f"{tensor._name} has datatype UInt8 but is not produced by an IdentityLayer or CastLayer"
            raise RefusedError(message)


def output_type(tensor: Tensor) -> str:
    """Returns the type of a network output, which may differ from the type that its layer gives it.

    Raises:
        RefusedError: The one cannot be made of the other.
    """
    natural = tensor._facts().dtype
    if not tensor._network._types_are_hints:
        return natural
    nominal = _nominal(tensor)
    quantized = nominal == "FLOAT" and natural in ("HALF", "INT8")
    if nominal != natural and not quantized:
        message = (
            f"Output tensor {tensor._name} of type {dtypes.SPELLING[nominal]} produced from output of "
            f"incompatible type {dtypes.SPELLING[natural]}: declare its dtype"
        )
        raise RefusedError(message)
    return nominal


def _nominal(tensor: Tensor) -> str:
    """The type that TensorRT 8.6 has for a tensor while the network is built: that of a cast is its input's."""
    layer = tensor._producer
    declared = tensor._asked_type()
    if declared:
        return declared
    if layer is not None and layer._operation.name == "cast" and layer._inputs[0] is not None:
        return _nominal(layer._inputs[0])
    natural = tensor._facts().dtype
    return "FLOAT" if natural in (*FLOATS, "INT8") else natural


def is_dropped(layer: Layer, config: BuilderConfig) -> bool:
    """Returns whether TensorRT drops a layer that narrows floating-point numbers because nothing requires the type.

    Args:
        layer: Any layer.
        config: The configuration of the build.
    """
    network = layer._network
    if not network._types_are_hints:
        return False
    operation = layer._operation.name
    if operation not in ("cast", "quantize") or layer._outputs[0]._declared:
        return False
    is_output = layer._outputs[0].is_network_output
    if operation == "quantize":
        return is_output
    source = layer._inputs[0]
    if source is None or _nominal(source) != "FLOAT":
        return False
    target = layer._attributes["to_type"]
    return (target == "HALF" and not config._has_flag("FP16")) or (target == "INT8" and is_output)


def is_narrowed(layer: Layer, index: int, config: BuilderConfig) -> bool:
    """Returns whether an output is computed in float16 although it is Float: where TensorRT may, this one does.

    Args:
        layer: Any layer but a constant.
        index: Which of its outputs.
        config: The configuration of the build.
    """
    return reads_narrowed(layer, config) and layer._output_facts()[index].dtype == "FLOAT"


def reads_narrowed(layer: Layer, config: BuilderConfig) -> bool:
    """Returns whether a layer reads what is Float in float16, be it a constant: where TensorRT may, this one does.

    Layers that make no numbers, such as comparisons, read them as they are: no constraint applies.
    """
    network = layer._network
    if not network._types_are_hints or not config._has_flag("FP16"):
        return False
    held = layer._precision and layer._precision.name, *layer._output_types.values()
    if "FLOAT" in held or layer._operation.name in _UNNARROWED:
        return False
    return any(fact.dtype == "FLOAT" for fact in layer._output_facts())
