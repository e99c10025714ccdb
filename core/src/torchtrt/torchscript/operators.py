"""From the nodes of a TorchScript graph to PyTorch's operators, and TorchScript's numbers for dtypes to dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

SCALAR_TYPES: tuple[torch.dtype | None, ...] = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    None,  # complex of half precision
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.qint8,
    torch.quint8,
    torch.qint32,
    torch.bfloat16,
)
"""PyTorch's dtypes in the order of ``c10::ScalarType``: TorchScript writes a dtype as its place here."""
_LAYOUTS = (torch.strided,)
_MEMORY_FORMATS = (
    torch.contiguous_format,
    torch.preserve_format,
    torch.channels_last,
    torch.channels_last_3d,
)


def find_operator(node: torch._C.Node) -> Callable[..., Any] | None:
    """Returns the operator that a node calls, taking the node's inputs in order.

    ``None`` if it is an instruction of TorchScript's interpreter, which PyTorch does not dispatch.
    """
    schema = node.schema()
    return None if schema == "(no schema)" else _operator(schema)


def makes_tensors(node: torch._C.Node) -> bool:
    """Returns whether a node's result is a tensor, several, or a list of them."""
    return any("Tensor" in str(value.type()) for value in node.outputs())


def overload_of(schema: str) -> OpOverload | None:
    """Returns the operator of a schema such as ``"aten::relu(Tensor self) -> Tensor"``, or ``None``."""
    parsed = torch._C.parse_schema(schema)
    qualified = ".".join(filter(None, (parsed.name, parsed.overload_name)))
    if not torch._C._dispatch_has_kernel(qualified):
        return None
    namespace, _, name = parsed.name.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        overload = getattr(packet, parsed.overload_name or "default")
    except AttributeError:
        return None
    return overload if isinstance(overload, OpOverload) else None


def _narrow(tensor: torch.Tensor, dim: int, start: Any, length: int) -> torch.Tensor:
    places = start.reshape(1) + torch.arange(length, device=tensor.device)
    size = tensor.shape[dim]
    return torch.index_select(tensor, dim, torch.where(places < 0, places + size, places))


def _to_device_and_dtype(
    tensor: torch.Tensor, device: Any, dtype: int | None, non_blocking: bool, copy: bool
) -> torch.Tensor:
    kind = tensor.dtype if dtype is None else SCALAR_TYPES[dtype]
    return tensor.to(device or tensor.device, kind, non_blocking, copy)


def _convolution(*args: Any) -> torch.Tensor:
    result: torch.Tensor = torch.ops.aten.convolution.default(*args[:9])  # the rest is for cuDNN
    return result


_BY_OTHER_OPERATORS: dict[str, Callable[..., Any]] = {
    "aten::_convolution": _convolution,
    "aten::_convolution.deprecated": _convolution,
    "aten::narrow.Tensor": _narrow,
    "aten::to.prim_Device": _to_device_and_dtype,
    "aten::to.prim_dtype": lambda tensor, dtype, non_blocking, copy: _to_device_and_dtype(
        tensor, None, dtype, non_blocking, copy
    ),
}
"""Operators of TorchScript's interpreter alone, and those that PyTorch cannot export as they are."""


@functools.cache
def _operator(schema: str) -> Callable[..., Any] | None:
    other = _BY_OTHER_OPERATORS.get(schema.partition("(")[0])
    if other is not None:
        return other
    overload = overload_of(schema)
    if overload is None:
        return None
    parameters = [
        (argument.name, argument.kwarg_only, _conversion(str(argument.real_type)))
        for argument in overload._schema.arguments
    ]

    def call(*values: Any) -> Any:
        args, kwargs = [], {}
        for value, (name, keyword, convert) in zip(values, parameters, strict=True):
            converted = convert(value)
            if keyword:
                kwargs[name] = converted
            else:
                args.append(converted)
        return overload(*args, **kwargs)

    return call


def _conversion(kind: str) -> Callable[[Any], Any]:
    if "ScalarType" in kind:
        return lambda value: SCALAR_TYPES[value] if isinstance(value, int) else value
    if "Layout" in kind:
        return lambda value: _LAYOUTS[value] if isinstance(value, int) else value
    if "MemoryFormat" in kind:
        return lambda value: _MEMORY_FORMATS[value] if isinstance(value, int) else value
    return as_number


def as_number(value: Any) -> Any:
    """Returns an undecided number as PyTorch's own symbolic one, where an operator wants numbers."""
    from torchtrt.torchscript.evaluators import Undecided

    if isinstance(value, Undecided):
        return value.tensor.item()
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_number, value))
    return value
