"""Converters for ops of its own: weights, sizes that vary, several results, enforced types, a legacy signature."""

# ruff: noqa

import logging
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import numpy as np
import tensorrt as trt
import torch
from torch.fx.node import Argument, Node, Target
from torch_tensorrt import _enums
from torch_tensorrt.dynamo._settings import CompilationSettings
from torch_tensorrt.dynamo._SourceIR import SourceIR
from torch_tensorrt.dynamo.conversion import impl
from torch_tensorrt.dynamo.conversion._ConversionContext import ConversionContext
from torch_tensorrt.dynamo.conversion._ConverterRegistry import (
    ConverterPriority,
    dynamo_tensorrt_converter,
    has_static_shapes_in_args,
)
from torch_tensorrt.dynamo.conversion.aten_ops_converters import args_bounds_check
from torch_tensorrt.dynamo.conversion.converter_utils import (
    cast_trt_tensor,
    enforce_tensor_types,
    get_axes_for_reduce_op,
    get_positive_dim,
    get_trt_tensor,
    set_layer_name,
    to_trt_weights,
)
from torch_tensorrt.dynamo.conversion.impl.shape import get_shape_with_dynamic_shape
from torch_tensorrt.dynamo.conversion.impl.shape import shape as get_shape
from torch_tensorrt.dynamo.types import TRTTensor

_LOGGER = logging.getLogger(__name__)


def few_columns(node: Node, settings: Optional[CompilationSettings] = None) -> bool:
    if settings is not None and settings.use_fp32_acc:
        _LOGGER.debug("not with use_fp32_acc")
        return False
    return isinstance(args_bounds_check(node.args, 2, 1e-5), float)


@dynamo_tensorrt_converter(
    torch.ops.published.rms_norm.default,
    capability_validator=few_columns,
    priority=ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
@enforce_tensor_types({0: (TRTTensor,), 1: (np.ndarray, TRTTensor)})
def rms_norm(
    ctx: ConversionContext,
    target: Target,
    args: Tuple[Argument, ...],
    kwargs: Dict[str, Argument],
    name: str,
) -> Union[TRTTensor, Sequence[TRTTensor]]:
    x, weight = args[0], args[1]
    eps = args_bounds_check(args, 2, 1e-5)
    dim = get_positive_dim(-1, len(x.shape))
    square = impl.elementwise.pow(ctx, target, SourceIR.ATEN, f"{name}_square", x, 2.0)
    layer = ctx.net.add_reduce(
        square, trt.ReduceOperation.AVG, axes=get_axes_for_reduce_op(dim), keep_dims=True
    )
    set_layer_name(layer, target, f"{name}_mean", SourceIR.ATEN)
    shifted = impl.elementwise.add(
        ctx, target, SourceIR.ATEN, f"{name}_shift", layer.get_output(0), eps
    )
    root = impl.unary.sqrt(ctx, target, SourceIR.ATEN, f"{name}_root", shifted)
    normal = impl.elementwise.div(ctx, target, SourceIR.ATEN, f"{name}_normal", x, root)
    scale = get_trt_tensor(ctx, weight, f"{name}_weight", dtype=_enums.dtype.f32)
    rank = len(x.shape)
    if len(scale.shape) != rank:
        shuffle = ctx.net.add_shuffle(scale)
        shuffle.reshape_dims = (1,) * (rank - len(scale.shape)) + tuple(scale.shape)
        scale = shuffle.get_output(0)
    return impl.elementwise.mul(ctx, target, SourceIR.ATEN, f"{name}_scaled", normal, scale)


@dynamo_tensorrt_converter(torch.ops.published.repeat_rows.default, supports_dynamic_shapes=True)
def repeat_rows(
    ctx: ConversionContext,
    target: Target,
    args: Tuple[Argument, ...],
    kwargs: Dict[str, Argument],
    name: str,
) -> TRTTensor:
    """Expands ``(1, n)`` to ``(count, n)``, where the count is a number of the program or a network tensor of it."""
    count = args[1]
    assert isinstance(count, int) or tuple(count.shape) == (1,), "a number is a vector of one"
    columns = get_shape(ctx, target, SourceIR.ATEN, f"{name}_columns", args[0], 1)
    rows = cast_trt_tensor(
        ctx, get_trt_tensor(ctx, count, f"{name}_count"), trt.int32, f"{name}_rows"
    )
    shape = ctx.net.add_concatenation([rows, columns])
    shape.axis = 0
    zeros = get_trt_tensor(ctx, np.array([0, 0], dtype=np.int32), f"{name}_zeros")
    strides = get_trt_tensor(ctx, np.array([0, 1], dtype=np.int32), f"{name}_strides")
    layer = ctx.net.add_slice(args[0], start=trt.Dims(), shape=trt.Dims(), stride=trt.Dims())
    for index, source in enumerate((zeros, shape.get_output(0), strides), 1):
        layer.set_input(index, source)
    set_layer_name(layer, target, name, SourceIR.ATEN)
    return layer.get_output(0)


@dynamo_tensorrt_converter(torch.ops.published.extremes.default, supports_dynamic_shapes=True)
def extremes(
    ctx: ConversionContext,
    target: Target,
    args: Tuple[Argument, ...],
    kwargs: Dict[str, Argument],
    name: str,
) -> Tuple[TRTTensor, TRTTensor]:
    low = impl.reduce.amin(ctx, target, SourceIR.ATEN, f"{name}_low", args[0], 1, False)
    high = impl.reduce.amax(ctx, target, SourceIR.ATEN, f"{name}_high", args[0], 1, False)
    return low, high


@dynamo_tensorrt_converter(torch.ops.published.count_all.default, supports_dynamic_shapes=True)
def count_all(ctx, target, args, kwargs, name):
    """Returns how many elements there are: 0-d in PyTorch, and a vector of one here."""
    counted = impl.shape.numel(ctx, target, SourceIR.ATEN, name, args[0])
    assert tuple(counted.shape) == (1,)
    assert ctx.current_node is None or ctx.current_node.op == "call_function"
    return counted


@dynamo_tensorrt_converter(
    torch.ops.published.like_rows.default,
    capability_validator=has_static_shapes_in_args([1]),
    supports_dynamic_shapes=True,
)
def like_rows(ctx, target, args, kwargs, name):
    """Reshapes to rows of the second's size, by a shape tensor."""
    layer = ctx.net.add_shuffle(args[0])
    shape = get_shape_with_dynamic_shape(
        ctx, target, SourceIR.ATEN, f"{name}_shape", (-1, *args[1].shape), args[0]
    )
    layer.set_input(1, shape)
    set_layer_name(layer, target, name, SourceIR.ATEN)
    return layer.get_output(0)


@dynamo_tensorrt_converter(torch.ops.published.weighted.default, supports_dynamic_shapes=True)
def weighted(ctx, target, args, kwargs, name):
    """Adds a constant through ``to_trt_weights``, which records it."""
    weight: Any = args[1]
    assert isinstance(weight, torch.Tensor) and not weight.requires_grad
    constant = ctx.net.add_constant(
        (1, *weight.shape), to_trt_weights(ctx, weight, name, "CONSTANT", "CONSTANT")
    )
    set_layer_name(constant, target, f"{name}_weight", SourceIR.ATEN)
    layer = ctx.net.add_elementwise(args[0], constant.get_output(0), trt.ElementWiseOperation.SUM)
    set_layer_name(layer, target, name, SourceIR.ATEN)
    return layer.get_output(0)
