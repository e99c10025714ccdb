"""Turns a block of the graph into a TensorRT network.

The interpreter walks the block's nodes and calls one converter for each; converters use the context
and the helpers exported here.
"""

from torchtrt.conversion.constants import (
    get_trt_tensor,
    get_weights,
    is_network_tensor,
    name_weights,
)
from torchtrt.conversion.context import ConversionContext
from torchtrt.conversion.type_contract import TRTTensor, enforce_tensor_types

__all__ = [
    "ConversionContext",
    "TRTTensor",
    "enforce_tensor_types",
    "get_trt_tensor",
    "get_weights",
    "is_network_tensor",
    "name_weights",
]
