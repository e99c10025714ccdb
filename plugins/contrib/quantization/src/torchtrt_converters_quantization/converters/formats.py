"""The ops of ``torchtrt_quantization`` as Quantize, Dequantize and DynamicQuantize layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    add,
    arguments_of,
    constant_of,
    is_network_tensor,
    value_of,
)
from torchtrt.tensorrt import trt
from torchtrt_converters_quantization import pack
from torchtrt_converters_quantization.converters.layers import (
    add_dequantize,
    add_dynamic_quantize,
    add_quantize,
    add_quantized_constant,
    reshaped,
)
from torchtrt_converters_quantization.formats import Format, merged
from torchtrt_converters_quantization.ops import (
    DEQUANTIZE,
    FAKE_QUANTIZE,
    FAKE_QUANTIZE_BLOCKS,
    FORMAT_OF,
)


def lacks_format(node: Node) -> str | None:
    """Rejects formats that the TensorRT in use lacks."""
    return FORMAT_OF[node.target].objection() or None


def no_weight(node: Node) -> str | None:
    """Rejects values that are neither known nor an input: what the network computes goes through a Quantize layer."""
    op = arguments_of(node)
    if constant_of(op.data) is not None:
        return None
    is_input = isinstance(op.data, Node) and op.data.op == "placeholder"
    if is_input and op.data.meta["val"].dtype is FORMAT_OF[node.target].dtype:
        return None if value_of(op.scale).numel() == 1 else "an input has one scale"
    return "TensorRT dequantizes weights, inputs in the format, and what its layers have quantized"


def no_int4(node: Node) -> str | None:
    """Rejects weights that four bits do not hold: TensorRT packs the low four bits of each byte."""
    data = constant_of(arguments_of(node).data)
    if FORMAT_OF[node.target].name != "INT4" or data is None or data.dtype is not torch.int8:
        return None
    if bool(((data >= -8) & (data <= 7)).all()):
        return None
    return "some of the weights are not within -8 and 7, the range of INT4"


def no_positive_scale(node: Node) -> str | None:
    """Rejects scales that are known and not positive."""
    op = arguments_of(node)
    scale = constant_of(op.scale)
    if scale is None or scale.dtype is torch.uint8 or bool((scale.to(torch.float32) > 0).all()):
        return None
    return "the scales must be positive numbers"


def no_blocks(node: Node) -> str | None:
    """Rejects scales whose blocks lie along more than one dimension."""
    op = arguments_of(node)
    shape, scale = node.meta["val"].shape, value_of(op.scale).shape
    if math.prod(scale) == 1 or _axis(scale, shape) is not None:
        return None
    if tuple(scale) == tuple(shape):
        return "there is a scale for each weight, and no block"
    if len(scale) != len(shape):
        return f"scales of {len(scale)} dimensions for weights of {len(shape)}"
    blocked = [dim for dim, (a, b) in enumerate(zip(scale, shape, strict=True)) if a != b]
    if merged(scale, shape) is None and (len(blocked) != 1 or blocked[0] < len(shape) - 2):
        return "TensorRT has scales for blocks along one dimension, the last or the second to last"
    return None


def _axis(scale: Sequence[int], shape: Sequence[int]) -> int | None:
    """Returns the dimension whose indices have a scale each, if it is one."""
    if len(scale) != len(shape):
        return None
    own = [dim for dim, size in enumerate(scale) if size != 1]
    return own[0] if len(own) == 1 and scale[own[0]] == shape[own[0]] else None


@pack.converter(
    DEQUANTIZE["INT8"],
    DEQUANTIZE["INT4"],
    DEQUANTIZE["FP8"],
    DEQUANTIZE["FP4"],
    reject_if=(lacks_format, no_weight, no_int4, no_positive_scale, no_blocks),
    supports_dynamic_shapes=True,
)
def dequantize_weight(
    ctx: ConversionContext,
    data: NetworkTensor | torch.Tensor,
    scale: NetworkTensor | torch.Tensor,
    dtype: torch.dtype,
) -> NetworkTensor:
    """Converts it to a Constant, packed, or the input, and a Dequantize layer."""
    node = _node(ctx)
    if is_network_tensor(data):
        one = scale if is_network_tensor(scale) else scale.to(torch.float32).reshape(())
        return add_dequantize(ctx, data, ctx.tensor(one), None, dtype)
    kind: Format = FORMAT_OF[node.target]
    shape = tuple(node.meta["val"].shape)
    values = data.contiguous()
    if values.dtype is not kind.dtype:
        values = values.view(kind.dtype)
    axis, parts = None, None
    if not is_network_tensor(scale) and scale.numel() > 1 and _axis(scale.shape, shape) is None:
        parts = merged(scale.shape, shape)
    sizes = shape if parts is None else _merged_sizes(shape, parts)
    step: NetworkTensor
    if is_network_tensor(scale):
        quantized, step = ctx.add_constant(values, sizes), scale
    else:
        axis = _axis(scale.shape, shape)
        if scale.numel() == 1:
            scale = scale.reshape(())
        elif axis is not None:
            scale = scale.reshape(-1)
        if scale.dtype is torch.uint8:
            scale = scale.contiguous().view(torch.float8_e8m0fnu)
        else:  # TensorRT requires the type of the result where values have 4 bits
            scale = scale.to(dtype if kind.name in ("INT4", "FP4") else torch.float32)
        if parts is not None:
            scale = scale.reshape(_merged_sizes(scale.shape, parts))
        scale = scale.contiguous()
        quantized = add_quantized_constant(ctx, values, scale, axis, sizes)
        step = ctx.add_constant(scale)
    result = add_dequantize(ctx, quantized, step, axis, dtype)
    return result if parts is None else reshaped(ctx, result, shape)


def _merged_sizes(sizes: Sequence[int], parts: Sequence[int]) -> tuple[int, ...]:
    result: list[int] = []
    for count in parts:
        result.append(math.prod(sizes[:count]))
        sizes = sizes[count:]
    return tuple(result)


def _node(ctx: ConversionContext) -> Node:
    assert ctx.node is not None  # the interpreter converts nodes of graphs only
    return ctx.node


def unknown_scale(node: Node) -> str | None:
    """Rejects scales that are not known, and numbers."""
    op = arguments_of(node)
    if constant_of(op.scale) is None:
        return "TensorRT takes scales that are known when the engine is built"
    if value_of(op.x).dim() == 0:
        return "TensorRT does not quantize a tensor of no dimensions"
    return None


@pack.converter(
    FAKE_QUANTIZE["INT8"],
    FAKE_QUANTIZE["FP8"],
    reject_if=(lacks_format, unknown_scale, no_positive_scale),
    supports_dynamic_shapes=True,
)
def fake_quantize(
    ctx: ConversionContext,
    x: NetworkTensor | torch.Tensor,
    scale: torch.Tensor,
    least: int,
    **_: object,
) -> NetworkTensor:
    """Converts it to a Quantize and a Dequantize layer."""
    node = _node(ctx)
    kind: Format = FORMAT_OF[node.target]
    source = ctx.tensor(x)
    dtype = node.meta["val"].dtype
    factor = scale.to(torch.float32).reshape(())
    if kind.name == "INT8" and least == -127:
        rank = len(source.shape)
        bound = (factor * least).to(ctx.dtype_of(source)).reshape([1] * rank)
        largest = trt.ElementWiseOperation.MAX
        source = add(ctx, "elementwise", source, ctx.tensor(bound), largest)
    step = ctx.tensor(factor)
    quantized = add_quantize(ctx, source, step, None, kind.dtype)
    return add_dequantize(ctx, quantized, step, None, dtype)


def unfit_blocks(node: Node) -> str | None:
    """Rejects dynamic sizes, and sizes that blocks do not divide."""
    block = FORMAT_OF[node.target].block
    shape = value_of(arguments_of(node).x).shape
    if not shape or not isinstance(shape[-1], int) or shape[-1] % block:
        size = shape[-1] if shape else "no"
        return f"blocks of {block} do not divide the last dimension, {size}"
    return None


@pack.converter(
    *FAKE_QUANTIZE_BLOCKS.values(),
    reject_if=(lacks_format, unknown_scale, no_positive_scale, unfit_blocks),
    supports_dynamic_shapes=True,
)
def fake_quantize_blocks(
    ctx: ConversionContext, x: NetworkTensor | torch.Tensor, scale: torch.Tensor | None
) -> NetworkTensor:
    """Converts it to a DynamicQuantize layer and Dequantize layers."""
    node = _node(ctx)
    kind: Format = FORMAT_OF[node.target]
    source = ctx.tensor(x)
    dtype = node.meta["val"].dtype
    rank = len(source.shape)
    flat = source if rank in (2, 3) else reshaped(ctx, source, (-1, source.shape[-1]))
    if scale is not None and kind.name == "NVFP4":
        # In the input's dtype, which TensorRT takes as well, rounding would change which steps are nearest.
        double = ctx.tensor(scale.to(torch.float32).reshape(()))
        data, scales = add_dynamic_quantize(ctx, flat, kind, torch.float8_e4m3fn, double)
        scales = add_dequantize(ctx, scales, double, None, dtype)
    else:
        data, scales = add_dynamic_quantize(ctx, flat, kind, torch.float8_e8m0fnu, None)
    result = add_dequantize(ctx, data, scales, None, dtype)
    return result if flat is source else reshaped(ctx, result, None, source)
