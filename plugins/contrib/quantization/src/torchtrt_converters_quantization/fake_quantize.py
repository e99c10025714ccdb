"""Fake quantization: quantise to int8 and back, so that TensorRT can run what lies between in int8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import ConversionContext, TRTTensor, enforce_tensor_types, get_trt_tensor
from torchtrt.registry import Reject
from torchtrt.tensorrt.shims import add_dequantize, add_quantize
from torchtrt_converters_quantization._pack import pack


def is_symmetric_int8(node: Node) -> bool | Reject:
    """Accepts what TensorRT's int8 is: zero point 0 and the range -128 to 127."""
    source, scale, zero_point, least, greatest = node.args[:5]
    if source.meta["val"].dim() == 0:
        return Reject("TensorRT does not quantise a tensor of no dimensions")
    if not isinstance(scale, float) or scale <= 0:
        return Reject("the scale must be a positive number")
    if zero_point != 0:
        return Reject(f"zero point {zero_point}: TensorRT quantises symmetrically")
    if (least, greatest) != (-128, 127):
        return Reject(f"the range {least} to {greatest}: TensorRT's int8 is -128 to 127")
    return True


@pack.converter(
    torch.ops.aten.fake_quantize_per_tensor_affine.default,
    capability_validator=is_symmetric_int8,
    supports_dynamic_shapes=True,
)
@enforce_tensor_types({0: (TRTTensor,)})
def fake_quantize_per_tensor_affine(
    ctx: ConversionContext, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> Any:
    """``clamp(round(x / scale), -128, 127) * scale`` with one scale for the whole tensor."""
    dtype = ctx.dtype_of(args[0])
    scale = get_trt_tensor(ctx, args[1], name + "/scale", torch.float32)
    quantized = add_quantize(ctx.net, args[0], scale, name + "/quantize")
    result = add_dequantize(ctx.net, quantized, scale, torch.float32, name)
    return get_trt_tensor(ctx, result, name, dtype)
