"""Turns a block of the graph into a TensorRT network.

The interpreter walks the block's nodes and calls one converter for each; converters use the context
and the helpers exported here.
"""

from torchtrt.contract import arguments_of, constant_of, named_arguments, value_of
from torchtrt.conversion.context import ConversionContext, SymbolicSize
from torchtrt.conversion.layers import add, add_layer, get_trt_tensor
from torchtrt.conversion.values import (
    Operand,
    Size,
    as_torch_tensor,
    is_network_tensor,
)
from torchtrt.tensorrt.interfaces import NetworkLayer, NetworkTensor

__all__ = [
    "ConversionContext", "NetworkLayer", "NetworkTensor", "Operand", "Size", "SymbolicSize", "add",
    "add_layer", "arguments_of", "as_torch_tensor", "constant_of", "get_trt_tensor",
    "is_network_tensor", "named_arguments", "value_of",
]  # fmt: skip
