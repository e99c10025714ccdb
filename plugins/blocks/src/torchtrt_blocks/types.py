"""Dtypes: casts, PyTorch's promotion, and operands of one dtype and rank."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkLayer,
    NetworkTensor,
    Operand,
    add,
    is_network_tensor,
)
from torchtrt.errors import ConversionError, NewAssumptionError
from torchtrt.tensorrt import Capability, add_cast, engine_dtype, propagate_float16, supports, trt
from torchtrt_blocks.shape import to_rank

Value = TypeVar("Value")

HALF_TYPES = (torch.float16, torch.bfloat16)
_BYTE_TYPES = (torch.uint8, torch.int8)


def cast(ctx: ConversionContext, tensor: NetworkTensor, dtype: torch.dtype) -> NetworkTensor:
    """Returns ``tensor`` as ``dtype``, by PyTorch's rules: as bool, floats but 0 are true, NaN included.

    A cast to the dtype that the tensor has adds no layer, which would keep TensorRT from fusing what is around it.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
        dtype: The dtype of the result.
    """
    source, target = ctx.dtype_of(tensor), engine_dtype(dtype)
    if target is torch.float16:
        # PyTorch's word for it is not enough: what comes around a loop is float32 in a weakly typed network.
        is_held = source is target or _is_half(ctx, tensor)
    else:
        is_held = effective_dtype(ctx, tensor) is target
    if is_held:
        return tensor
    result = _converted(ctx, tensor, source, target)
    symbolic_value = ctx.known_value(tensor)
    if isinstance(symbolic_value, torch.Tensor):  # how its sizes relate to those of others
        # PyTorch checks whether a new tensor is empty.
        with contextlib.suppress(NewAssumptionError):
            ctx.set_known_value(result, symbolic_value.to(target))
    return result


def _converted(
    ctx: ConversionContext, tensor: NetworkTensor, source: torch.dtype, target: torch.dtype
) -> NetworkTensor:
    """Returns what ``cast`` does, in layers."""
    if source is target:  # by the name only that a weakly typed network has for it
        return add_cast(ctx.net, tensor, target)
    if target is torch.bool and source.is_floating_point:
        zero = ctx.tensor(nested(0.0, len(tensor.shape)), source)
        equal = trt.ElementWiseOperation.EQUAL
        is_zero = add(ctx, "elementwise", tensor, zero, equal)
        return add(ctx, "unary", is_zero, trt.UnaryOperation.NOT)
    if target in _BYTE_TYPES and source.is_floating_point:
        # TensorRT rounds to the nearest byte, and cuts toward zero only what becomes a wider number.
        tensor = ctx.tensor(tensor, torch.int32)
    if (source in _BYTE_TYPES or target in _BYTE_TYPES) and torch.float32 not in (
        ctx.dtype_of(tensor),
        target,
    ):
        tensor = ctx.tensor(tensor, torch.float32)  # bytes convert to and from it
    return ctx.tensor(tensor, target)


def effective_dtype(ctx: ConversionContext, tensor: NetworkTensor) -> torch.dtype:
    """Returns the dtype that PyTorch gives a network tensor, or of what is inside a converter the one that it has.

    It differs from the network's in a weakly typed one, which calls float16 Float.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
    """
    dtype: torch.dtype = ctx.dtype_of(tensor)
    if dtype is not torch.float32 or supports(Capability.STRONG_TYPING):
        return dtype
    return torch.float16 if _is_known_half(ctx, tensor) or _is_half(ctx, tensor) else dtype


def _is_known_half(ctx: ConversionContext, tensor: NetworkTensor) -> bool:
    return getattr(ctx.known_value(tensor), "dtype", None) is torch.float16


def _is_half(ctx: ConversionContext, tensor: NetworkTensor) -> bool:
    """Returns whether a weakly typed network computes in float16 what it calls Float."""
    if supports(Capability.STRONG_TYPING):
        return False

    def note(layer: NetworkLayer, halves: set[str]) -> None:
        propagate_float16(layer, halves)
        # int8 becomes what reads it, and a cast would keep TensorRT from computing in int8.
        if layer.type.name == "DEQUANTIZE" and _is_known_half(ctx, layer.get_output(0)):
            halves.add(layer.get_output(0).name)

    return tensor.name in _followed(ctx, "float16", note)


def is_dequantized(ctx: ConversionContext, tensor: NetworkTensor) -> bool:
    """Returns whether a Dequantize layer made a network tensor, or the tensor that was moved into its dimensions.

    Args:
        ctx: The conversion context.
        tensor: A network tensor of any dtype and shape.
    """

    def note(layer: NetworkLayer, names: set[str]) -> None:
        kind = layer.type.name
        if kind == "DEQUANTIZE" or (kind == "SHUFFLE" and layer.get_input(0).name in names):
            names.add(layer.get_output(0).name)

    return tensor.name in _followed(ctx, "dequantized", note)


def _followed(
    ctx: ConversionContext, about: str, note: Callable[[NetworkLayer, set[str]], None]
) -> set[str]:
    """Returns the names of tensors that ``note`` adds, layer by layer; each layer of a network is noted once."""
    network = ctx.net.raw
    followed = ctx.attachments.setdefault(f"{__name__}.{about}", [0, set()])
    for index in range(followed[0], network.num_layers):
        note(network.get_layer(index), followed[1])
    followed[0] = network.num_layers
    names: set[str] = followed[1]
    return names


def nested(value: Any, rank: int) -> Any:
    """Returns ``value`` in ``rank`` lists: a constant of ``rank`` dimensions of size 1."""
    for _ in range(rank):
        value = [value]
    return value


def get_constant(
    ctx: ConversionContext,
    tensor: torch.Tensor,
    dtype: torch.dtype | None = None,
    shape: tuple[int, ...] | None = None,
) -> NetworkTensor:
    """Returns a constant with the values of ``tensor``.

    A weight of the model keeps its name for refitting as long as its values are used unchanged, whatever the shape.

    Args:
        ctx: The conversion context.
        tensor: The values.
        dtype: The dtype to have; the tensor's own without it.
        shape: The shape to have, of as many elements; the tensor's own without it.
    """
    tensor = tensor if dtype is None else tensor.to(dtype)
    shape = tuple(tensor.shape) if shape is None else shape
    if shape == tuple(tensor.shape) or tensor.dtype is torch.bool:
        return ctx.tensor(tensor.reshape(shape) if shape != tuple(tensor.shape) else tensor)
    return ctx.add_constant(tensor, shape)


def operand(ctx: ConversionContext, value: Operand, dtype: torch.dtype, rank: int) -> NetworkTensor:
    """Returns ``value`` as a network tensor of ``dtype`` with ``rank`` dimensions, new ones in front.

    Args:
        ctx: The conversion context.
        value: A network tensor, a PyTorch tensor or a Python number. Constants are cast and
            reshaped here, without layers.
        dtype: The dtype to have.
        rank: The rank to have; at least the value's.
    """
    if is_network_tensor(value):
        has_dtype = ctx.dtype_of(value) is engine_dtype(dtype) and not _makes_single(ctx)
        return to_rank(ctx, value if has_dtype else cast(ctx, value, dtype), rank)
    target = engine_dtype(dtype) if dtype is torch.float64 else dtype
    if isinstance(value, torch.Tensor):
        shape = (1,) * (rank - value.dim()) + tuple(value.shape)
        return get_constant(ctx, value, target, shape)
    return ctx.tensor(nested(value, rank), target)


def operands(
    ctx: ConversionContext, values: Sequence[Operand], dtype: torch.dtype
) -> list[NetworkTensor]:
    """Returns the values as network tensors of ``dtype`` and of one rank, ready to broadcast.

    Args:
        ctx: The conversion context.
        values: Network tensors, PyTorch tensors or numbers.
        dtype: The dtype to have.
    """
    rank = common_rank(values)
    if dtype is torch.float32 and not all(map(_is_near_half, values)):
        values = [upcast(ctx, value, dtype) for value in values]
    tensors = [operand(ctx, value, dtype, rank) for value in values]
    if supports(Capability.INFINITE_CONSTANTS):
        return tensors
    computed = [
        tensor for value, tensor in zip(values, tensors, strict=True) if is_network_tensor(value)
    ]
    return [
        computed_infinity(ctx, computed[0], infinity)
        if computed and (infinity := infinity_of(value))
        else tensor
        for value, tensor in zip(values, tensors, strict=True)
    ]


def infinity_of(value: object) -> float | None:
    """Returns the infinite number that ``value`` is, be it a number or a constant of one element, or ``None``."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return value if isinstance(value, float) and math.isinf(value) else None


def computed_infinity(
    ctx: ConversionContext, beside: NetworkTensor, infinity: float
) -> NetworkTensor:
    """Returns an infinite number for each element of a tensor, which TensorRT computes: the logarithm of 0.

    TensorRT 8.6 reads a constant of one element as 1e38 where it is infinite.

    Args:
        ctx: The conversion context.
        beside: A floating-point network tensor that is not constant. The result has its shape and dtype.
        infinity: ``math.inf`` or ``-math.inf``.
    """
    never = add(ctx, "elementwise", beside, beside, trt.ElementWiseOperation.LESS)
    zero = ctx.tensor(never, ctx.dtype_of(beside))
    logarithm = add(ctx, "unary", zero, trt.UnaryOperation.LOG)
    return logarithm if infinity < 0 else add(ctx, "unary", logarithm, trt.UnaryOperation.NEG)


def _is_near_half(value: object) -> bool:
    """Returns whether a value is no number, or one in the range of float16, infinities and NaN included."""
    if not isinstance(value, float) or not math.isfinite(value):
        return not isinstance(value, int) or abs(value) <= _HALF.max
    return value == 0 or _HALF.smallest_normal <= abs(value) <= _HALF.max


_HALF = torch.finfo(torch.float16)


def _makes_single(ctx: ConversionContext) -> bool:
    """Returns whether the node in conversion has no float16 result, so that its float32 tensors really are float32.

    A weakly typed network calls float16 Float. A converter that takes a tensor's dtype from such a network asks for
    float32, and computes float16.
    """
    values = None if ctx.node is None else ctx.node.meta.get("val")
    values = values if isinstance(values, (list, tuple)) else [values]
    return not any(getattr(value, "dtype", None) in (None, torch.float16) for value in values)


def upcast(ctx: ConversionContext, value: Value, dtype: torch.dtype) -> Value | NetworkTensor:
    """Returns a value; a network tensor that holds float16 values is cast for a computation in float32.

    Args:
        ctx: The conversion context.
        value: A network tensor, a PyTorch tensor or a number.
        dtype: The dtype to compute in.
    """
    if dtype is torch.float32 and is_network_tensor(value):
        return cast(ctx, value, dtype) if effective_dtype(ctx, value) is torch.float16 else value
    return value


def rank_of(value: Operand) -> int:
    """Returns the number of dimensions of a network tensor, a PyTorch tensor or a number."""
    return len(value.shape) if hasattr(value, "shape") else 0


def common_rank(values: Sequence[Operand]) -> int:
    """Returns the rank that the values broadcast to."""
    return max(map(rank_of, values))


def stand_in(ctx: ConversionContext, value: Operand) -> torch.Tensor | int | float | bool:
    """Returns what promotion needs of a value: a tensor of its dtype and rank, or a number.

    Args:
        ctx: The conversion context.
        value: A network tensor, a PyTorch tensor or a number.
    """
    if not is_network_tensor(value):
        return value
    symbolic_value = ctx.known_value(value)
    if isinstance(symbolic_value, torch.Tensor):
        return symbolic_value
    for symbolic, number in ((torch.SymBool, True), (torch.SymInt, 1), (torch.SymFloat, 1.0)):
        if isinstance(symbolic_value, symbolic):
            return number
    return torch.empty((1,) * len(value.shape), dtype=ctx.dtype_of(value), device="meta")


def result_type(ctx: ConversionContext, *values: Operand) -> torch.dtype:
    """Returns the dtype in which PyTorch computes with these one or two values.

    Args:
        ctx: The conversion context.
        *values: Network tensors, PyTorch tensors, numbers or sizes.
    """
    stand_ins = [stand_in(ctx, value) for value in values]
    if len(stand_ins) == 1:
        return torch.result_type(stand_ins[0], stand_ins[0])
    first, second = stand_ins
    return torch.result_type(first, second)


def output_dtype(ctx: ConversionContext, index: int | None = None) -> torch.dtype:
    """Returns the dtype of the result that PyTorch gives for the node in conversion.

    Args:
        ctx: The conversion context.
        index: For an op with several outputs, which one.
    """
    dtype: torch.dtype = output_value(ctx, index).dtype
    return dtype


def output_value(ctx: ConversionContext, index: int | None = None) -> Any:
    """Returns PyTorch's own result for the node in conversion: a fake tensor, or a symbolic number.

    Args:
        ctx: The conversion context.
        index: For an op with several outputs, which one.
    """
    value = node_of(ctx).meta.get("val")
    if value is None:
        raise ConversionError(_UNKNOWN_RESULT)
    return value if index is None else value[index]


def node_of(ctx: ConversionContext) -> Node:
    """Returns the node in conversion.

    Args:
        ctx: The conversion context.

    Raises:
        ConversionError: A converter was called by hand, without a node.
    """
    if ctx.node is None:
        raise ConversionError(_UNKNOWN_RESULT)
    return ctx.node


_UNKNOWN_RESULT = (
    "The converter needs PyTorch's dtype and shape: set ctx.node to a node with meta['val']."
)


def compute_dtype(dtype: torch.dtype, scalars: Sequence[Any] = ()) -> torch.dtype:
    """Returns the dtype to compute in for a result of ``dtype``.

    PyTorch computes half precision with numbers in float32. That only shows where a number is not
    representable in half precision.
    """
    if dtype in HALF_TYPES and not all(_is_exact(scalar, dtype) for scalar in scalars):
        return torch.float32
    return dtype


@functools.lru_cache(maxsize=1024)
def _is_exact(scalar: float, dtype: torch.dtype) -> bool:
    return scalar != scalar or float(torch.tensor(scalar, dtype=dtype)) == float(scalar)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which PyTorch accumulates: float32 for half precision, and any other dtype itself."""
    return torch.float32 if dtype in HALF_TYPES else dtype


def is_integer(dtype: torch.dtype) -> bool:
    """Returns whether a dtype holds integers (bool does not count)."""
    return not dtype.is_floating_point and dtype is not torch.bool


def reads_first_only(node: Node) -> bool:
    """Returns whether of an op's outputs only the first is read."""
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
