"""``torch_tensorrt.dynamo.conversion.converter_utils``: the helpers that converters call, over torchtrt's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from torchtrt.conversion import is_network_tensor
from torchtrt.errors import ConversionError
from torchtrt.tensorrt import trt
from torchtrt_converters_torch_tensorrt.building_blocks import BLOCKS
from torchtrt_converters_torch_tensorrt.dtypes import torch_dtype
from torchtrt_converters_torch_tensorrt.tracing import building_block

# Network tensors


def get_trt_tensor(
    ctx: Any,
    input_val: Any,
    name: str = "",
    dtype: Any = None,
    min_rank: int = 1,
    target_quantized_type: Any = None,
) -> Any:
    """Returns a network tensor for a value; a constant has at least ``min_rank`` dimensions.

    Args:
        ctx: The conversion context.
        input_val: A network tensor, a PyTorch tensor, a NumPy array, a number or a list of numbers.
        name: What the layer is named after.
        dtype: The dtype to have: PyTorch's, NumPy's, TensorRT's or Torch-TensorRT's.
        min_rank: The rank that a constant has at least.
        target_quantized_type: Is not taken: quantize with layers.
    """
    _no_quantized_weights(target_quantized_type)
    with ctx.part(name or "constant"):
        if is_network_tensor(input_val):
            return ctx.tensor(input_val, torch_dtype(dtype))
        value = to_torch(input_val, dtype)
        return ctx.tensor(value.reshape((1,) * (min_rank - value.dim()) + tuple(value.shape)))


def create_constant(
    ctx: Any,
    value: Any,
    name: str = "",
    dtype: Any = None,
    min_rank: int | None = 1,
    target_quantized_type: Any = None,
) -> Any:
    """Returns a constant of the network; see ``get_trt_tensor``."""
    return get_trt_tensor(ctx, value, name, dtype, min_rank or 0, target_quantized_type)


def cast_trt_tensor(
    ctx: Any, input_val: Any, dtype: Any, name: str = "", target: Any = "", source_ir: Any = None
) -> Any:
    """Returns a network tensor with another dtype, by PyTorch's rules."""
    return BLOCKS["cast"]["to_copy"](ctx, target, source_ir, name, input_val, dtype)


def cast_int_or_float_to_bool(ctx: Any, name: str, tensor: Any) -> Any:
    """Returns where a network tensor is not zero."""
    return cast_trt_tensor(ctx, tensor, torch.bool, name)


def cast_int_int_div_trt_tensor(ctx: Any, lhs_val: Any, rhs_val: Any, name: str) -> list[Any]:
    """Returns two operands of a division, integers as float32."""
    if any(ctx.dtype_of(operand).is_floating_point for operand in (lhs_val, rhs_val)):
        return [lhs_val, rhs_val]
    return [cast_trt_tensor(ctx, operand, torch.float32, name) for operand in (lhs_val, rhs_val)]


def promote_trt_tensors_to_same_dtype(
    ctx: Any, lhs: Any, rhs: Any, name_prefix: str
) -> tuple[Any, Any]:
    """Returns two network tensors in the dtype that PyTorch promotes them to."""
    dtype = torch.promote_types(ctx.dtype_of(lhs), ctx.dtype_of(rhs))
    first, second = (cast_trt_tensor(ctx, operand, dtype, name_prefix) for operand in (lhs, rhs))
    return first, second


def to_trt_weights(
    ctx: Any,
    value: torch.Tensor,
    name: str = "",
    layer_type_name: str = "",
    weight_type_name: str = "",
    target: Any = None,
    source_ir: Any = None,
    target_quantized_type: Any = None,
    dtype: Any = None,
    count: int | None = None,
) -> Any:
    """Returns ``trt.Weights`` over a tensor's values, which the context keeps alive."""
    del name, layer_type_name, weight_type_name, target, source_ir, count
    _no_quantized_weights(target_quantized_type)
    return ctx.weights(to_torch(value, dtype))


def _no_quantized_weights(target_quantized_type: Any) -> None:
    if target_quantized_type is not None:
        message = "Constants of a quantized type are not made here: quantize with layers."
        raise ConversionError(message)


def prepend_ones(ctx: Any, tensor: Any, name: str, num_prepend_ones: int) -> Any:
    """Returns a tensor with as many dimensions of size 1 in front."""
    if not is_network_tensor(tensor):
        return tensor.reshape((1,) * num_prepend_ones + tuple(tensor.shape))
    return _PREPEND(ctx, None, None, name, tensor, num_prepend_ones)


_PREPEND = building_block(lambda tensor, count: tensor[(None,) * count] if count else tensor)


def broadcast(
    ctx: Any, a: Any, b: Any, a_name: str, b_name: str, preset_diff: int = 0
) -> tuple[Any, Any]:
    """Returns two network tensors of one rank: the smaller one has dimensions of size 1 in front."""
    difference = len(a.shape) - len(b.shape) - preset_diff
    if difference > 0:
        b = prepend_ones(ctx, b, b_name, difference)
    elif difference < 0:
        a = prepend_ones(ctx, a, a_name, -difference)
    return a, b


def broadcastable(a: Any, b: Any) -> bool:
    """Returns whether two shapes go together by PyTorch's rules, as far as they are known."""
    pairs = zip(reversed(tuple(a.shape)), reversed(tuple(b.shape)), strict=False)
    return all(one == other or 1 in (one, other) or -1 in (one, other) for one, other in pairs)


def broadcast_to_same_shape(
    ctx: Any, target: Any, source_ir: Any, name: str, lhs_val: Any, rhs_val: Any
) -> tuple[Any, Any]:
    """Returns two network tensors, each expanded to the shape of both together."""
    first, second = _BROADCAST(ctx, target, source_ir, name, lhs_val, rhs_val)
    return first, second


_BROADCAST = building_block(
    lambda first, second: tuple(
        tensor.contiguous() for tensor in torch.broadcast_tensors(first, second)
    )
)


def append(
    ctx: Any,
    target: Any,
    source_ir: Any,
    name: str,
    original_tensor: Any,
    new_value: Any,
    dim: int = 0,
) -> Any:
    """Returns a tensor with a value behind its last along a dimension."""
    if not is_network_tensor(new_value):
        new_value = get_trt_tensor(ctx, new_value, name, ctx.dtype_of(original_tensor))
    return BLOCKS["cat"]["cat"](ctx, target, source_ir, name, [original_tensor, new_value], dim)


def set_item(
    ctx: Any,
    target: Any,
    source_ir: Any,
    name: str,
    original_tensor: Any,
    index: int,
    new_value: Any,
) -> Any:
    """Returns a vector with one element replaced."""
    if not is_network_tensor(new_value):
        new_value = get_trt_tensor(ctx, new_value, name, ctx.dtype_of(original_tensor))
    return _SET_ITEM(ctx, target, source_ir, name, original_tensor, index, new_value)


_SET_ITEM = building_block(
    lambda tensor, index, value: torch.slice_scatter(
        tensor,
        value.reshape(1).to(tensor.dtype),
        0,
        index % tensor.shape[0],
        index % tensor.shape[0] + 1,
    )
)


def set_layer_name(layer: Any, target: Any, name: str, source_ir: Any = None) -> None:
    """Names a layer after the op and the name that the converter gives."""
    del source_ir
    label = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    layer.name = f"{label}/{name}" if label else name


# Numbers


def to_torch(value: Any, dtype: Any = None) -> Any:
    """Returns a constant as a PyTorch tensor on the CPU: a float is float32 and an int is int32 (or int64 beyond)."""
    if value is None:
        return None
    chosen = torch_dtype(dtype)
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.array(value, copy=True))
    if isinstance(value, torch.Tensor):
        return value if chosen is None else value.to(chosen)
    tensor = torch.tensor(value)
    if chosen is None:
        fits = tensor.dtype is not torch.int64 or bool((tensor.abs() < 2**31).all())
        narrow = {torch.float64: torch.float32, torch.int64: torch.int32 if fits else torch.int64}
        chosen = narrow.get(tensor.dtype, tensor.dtype)
    return tensor.to(chosen)


def to_numpy(value: Any, dtype: Any = None) -> Any:
    """Returns a constant as a NumPy array."""
    if value is None:
        return None
    if isinstance(value, np.ndarray) and dtype is None:
        return value
    return to_torch(value, dtype).detach().cpu().numpy()


def get_positive_dim(dim: Any, dim_size: int) -> Any:
    """Returns a dimension, or several, counted from the front."""
    if isinstance(dim, (list, tuple)):
        return tuple(get_positive_dim(axis, dim_size) for axis in dim)
    return dim % dim_size if dim_size else dim


def extend_attr_to_tuple(val: Any, num_elem: int) -> tuple[Any, ...]:
    """Returns a number as a tuple of that many, and a list as a tuple."""
    return tuple(val) if isinstance(val, (list, tuple)) else (val,) * num_elem


def flatten_dims(input: Any, start_dim: int, end_dim: int) -> tuple[int, ...]:
    """Returns a shape with the dimensions from one to another, included, as one; -1 where they vary."""
    shape = tuple(input.shape)
    start, end = get_positive_dim(start_dim, len(shape)), get_positive_dim(end_dim, len(shape))
    inside = shape[start : end + 1]
    count = -1 if any(size < 0 for size in inside) else int(np.prod(inside, dtype=np.int64))
    return (*shape[:start], count, *shape[end + 1 :])


def calculate_strides(shape: Sequence[int]) -> list[int]:
    """Returns how many elements apart neighbours along each dimension are."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return strides


def get_axes_for_reduce_op(dim: int | Sequence[int]) -> int:
    """Returns dimensions as the bit mask that TensorRT's reductions take."""
    dims = (dim,) if isinstance(dim, int) else dim
    return functools.reduce(lambda mask, axis: mask | 1 << axis, dims, 0)


def has_dynamic_shape(shape: Sequence[int]) -> bool:
    """Returns whether a size is known only at run time."""
    return any(size == -1 for size in shape)


def args_bounds_check(args: Sequence[Any], i: int, replacement: Any = None) -> Any:
    """Returns an argument, or a replacement where there is none."""
    return args[i] if len(args) > i and args[i] is not None else replacement


def get_node_name(node: Node) -> str:
    """Returns a node's name."""
    return str(node.name)


def is_only_operator_on_placeholder(node: Node, settings: Any = None) -> bool:
    """Returns whether a node reads only an input and makes only a result."""
    del settings
    return (
        node.op == "call_function"
        and len(node.all_input_nodes) == 1
        and node.all_input_nodes[0].op == "placeholder"
        and any(user.op == "output" for user in node.users)
    )


def enforce_tensor_types(
    type_dictionary: dict[Any, tuple[Any, ...]], promote: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that makes arguments, by place or name, of the types that the converter takes.

    Args:
        type_dictionary: For an argument the types that it may have: ``TRTTensor``, ``np.ndarray`` or
            ``torch.Tensor``.
        promote: Whether another one is made into the first of these; otherwise it is an error.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def convert(
            ctx: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
        ) -> Any:
            positional, named = list(args), dict(kwargs)
            for key, types in type_dictionary.items():
                arguments: Any = positional if isinstance(key, int) else named
                if isinstance(arguments[key], types):
                    continue
                if not promote:
                    message = f"The argument {key!r} is a {type(arguments[key]).__name__}."
                    raise AssertionError(message)
                if np.ndarray in types and not is_network_tensor(arguments[key]):
                    arguments[key] = to_numpy(arguments[key])
                else:
                    arguments[key] = get_trt_tensor(ctx, arguments[key], f"{name}_{key}")
            return function(ctx, target, tuple(positional), named, name)

        return convert

    return decorate


# Of networks without a context, as in torch_tensorrt.fx


def prepend_ones_to(network: Any, tensor: Any, name: str, num_prepend_ones: int) -> Any:
    """Returns a network tensor with dimensions of size 1 in front; all others must be known but one."""
    shape = tuple(tensor.shape)
    if sum(size < 0 for size in shape) > 1:
        raise ConversionError(f"{name}: more than one size of {shape} is known only at run time.")
    layer = network.add_shuffle(tensor)
    layer.reshape_dims = (1,) * num_prepend_ones + shape
    return layer.get_output(0)


def type_cast(network: Any, target: Any, name: str, input: Any, cast_type: Any) -> Any:
    """Returns a network tensor with another of TensorRT's dtypes."""
    layer = network.add_cast(input, cast_type)
    set_layer_name(layer, target, f"{name}_dtype_change")
    return layer.get_output(0)


def get_trt_plugin(
    plugin_name: str, field_collection: Sequence[Any], version: str, plugin_namespace: str = ""
) -> Any:
    """Returns a plugin of TensorRT's registry, made of its fields.

    Raises:
        ConversionError: There is none of that name, version and namespace.
    """
    registry = trt.get_plugin_registry()
    creator = registry.get_plugin_creator(plugin_name, version, plugin_namespace)
    if creator is None:
        message = f"There is no plugin {plugin_name!r} of version {version!r}. Load its library."
        raise ConversionError(message)
    return creator.create_plugin(
        name=plugin_name, field_collection=trt.PluginFieldCollection(list(field_collection))
    )


def clean_up_graph_after_modifications(gm: Any) -> Any:
    """Returns a graph module without unused nodes, checked and recompiled."""
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()
    return gm


def get_tensor_placeholders(gm: Any) -> list[Node]:
    """Returns the placeholders of a graph that are tensors."""
    return [
        node
        for node in gm.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
    ]
