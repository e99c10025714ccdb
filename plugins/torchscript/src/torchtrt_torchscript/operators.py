"""From the nodes of a TorchScript graph to PyTorch's operators, and TorchScript's numbers for dtypes to dtypes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchtrt.torch_internals import OpOverload
from torchtrt_torchscript.graphs import NO_SCHEMA, overload_of, parsed_schema
from torchtrt_torchscript.numbers import as_number, held_number, is_undecided
from torchtrt_torchscript.torch_internals import ScriptNode, operation_overload

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
MEMORY_FORMATS = (
    torch.contiguous_format,
    torch.preserve_format,
    torch.channels_last,
    torch.channels_last_3d,
)
"""PyTorch's memory formats in the order in which TorchScript numbers them."""


def find_operator(node: ScriptNode) -> Callable[..., Any] | None:
    """Returns the operator that a node calls, taking the node's inputs in order.

    ``None`` if it is an instruction of TorchScript's interpreter, which PyTorch does not dispatch.
    """
    schema = node.schema()
    return None if schema == NO_SCHEMA else _operator(schema)


def find_interpreted(node: ScriptNode) -> Callable[..., Any] | None:
    """Returns the function of TorchScript's interpreter that a node calls, if it takes and makes no tensors."""
    schema = node.schema()
    return None if schema == NO_SCHEMA else _interpreted(schema)


@functools.cache
def _interpreted(text: str) -> Callable[..., Any] | None:
    """Returns PyTorch's function for a schema, or ``None`` if it writes, returns tensors, or is unknown to PyTorch."""
    schema = parsed_schema(text)
    if "..." in text:
        return None  # its other arguments are in its node only
    parts = (*schema.arguments, *schema.returns)
    if any(part.alias_info is not None and part.alias_info.is_write for part in parts):
        return None
    if any(re.search(r"\b(Tensor|Any|t|__torch__)\b", str(part.type)) for part in parts):
        return None
    try:
        resolved = operation_overload(schema.name, schema.overload_name)
    except RuntimeError:
        return None
    return resolved[0] if resolved else None


VIEWS_BY_LAYOUT = frozenset(
    f"aten::{name}" for name in ("contiguous", "reshape", "reshape_as", "flatten", "ravel", "to")
)
"""Operators whose result is a view or a copy, by where the elements are in memory."""


class Element(NamedTuple):
    """A part of a tensor whose place depends on data. TorchScript takes it as a view; here it is a copy.

    Attributes:
        dim: The dimension.
        start: A 0-d tensor: where the part starts. It may count from the end.
        length: The size of the part; ``None`` for one element, without the dimension.
    """

    dim: int
    start: torch.Tensor
    length: int | None

    def read(self, source: torch.Tensor) -> torch.Tensor:
        """Returns a copy of the part."""
        part = torch.index_select(source, self.dim, self._indices(source))
        return part.squeeze(self.dim) if self.length is None else part

    def write(self, source: torch.Tensor, part: torch.Tensor) -> None:
        """Writes the part."""
        rows = part.unsqueeze(self.dim) if self.length is None else part
        source.index_copy_(self.dim, self._indices(source), rows)

    def _indices(self, source: torch.Tensor) -> torch.Tensor:
        length = 1 if self.length is None else self.length
        indices = self.start.reshape(1) + torch.arange(length, device=source.device)
        return torch.where(indices < 0, indices + source.shape[self.dim], indices)


def element_of(kind: str, args: Sequence[Any]) -> Element | None:
    """Returns which part of its first argument a node takes at a place that depends on data; ``None`` for others."""
    if kind == "aten::select" and is_undecided(args[2]):
        return Element(args[1], args[2].tensor, None)
    if (
        kind == "aten::narrow"
        and isinstance(args[2], torch.Tensor)
        and held_number(args[2]) is None
    ):
        return Element(args[1], args[2].reshape(()).clone(), args[3])
    return None


def _narrow(tensor: torch.Tensor, dim: int, start: Any, length: int) -> torch.Tensor:
    fixed_start = held_number(start)
    if fixed_start is not None:
        return torch.narrow(tensor, dim, fixed_start, length)
    return Element(dim, start.reshape(()), length).read(tensor)


def _select(tensor: torch.Tensor, dim: int, index: Any) -> torch.Tensor:
    if is_undecided(index):
        return Element(dim, index.tensor, None).read(tensor)
    return torch.select(tensor, dim, index)


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
    "aten::select.int": _select,
    "aten::to.prim_Device": _to_device_and_dtype,
    "aten::to.prim_dtype": lambda tensor, dtype, non_blocking, copy: _to_device_and_dtype(
        tensor, None, dtype, non_blocking, copy
    ),
}
"""Operators of TorchScript's interpreter alone, and those that PyTorch cannot export as they are."""


@functools.cache
def _operator(schema: str) -> Callable[..., Any] | None:
    """Returns the function for a schema of TorchScript, or ``None`` where PyTorch has no such overload."""
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
    of_tensors = _overload_of_tensors(overload)

    def call(*values: Any) -> Any:
        if of_tensors is not None and any(map(is_undecided, values)):
            return of_tensors(*values)
        args, kwargs = [], {}
        for value, (name, keyword, convert) in zip(values, parameters, strict=True):
            converted = convert(value)
            if keyword:
                kwargs[name] = converted
            else:
                args.append(converted)
        return overload(*args, **kwargs)

    return call


def _overload_of_tensors(overload: OpOverload) -> Callable[..., Any] | None:
    """Returns what an operator does with undecided numbers: the overload that takes 0-d tensors in their place.

    Such as ``add.Tensor`` for ``add.Scalar``. ``None`` if there is none.
    """
    for name in overload.overloadpacket.overloads():
        sibling = getattr(overload.overloadpacket, name)
        mine, theirs = overload._schema.arguments, sibling._schema.arguments
        if [argument.name for argument in mine] != [argument.name for argument in theirs]:
            continue
        kinds = [
            (str(first.type), str(second.type)) for first, second in zip(mine, theirs, strict=True)
        ]
        replaced = [first != second for first, second in kinds]
        if any(replaced) and all(
            first == second or ("number" in first and "Tensor" in second) for first, second in kinds
        ):
            return functools.partial(_call_with_tensors, sibling, replaced)
    return None


def _call_with_tensors(sibling: OpOverload, replaced: list[bool], *values: Any) -> Any:
    """Calls the op that takes tensors where the op of the model takes numbers.

    Args:
        sibling: The op to call.
        replaced: For each argument, whether ``sibling`` takes a tensor instead of a number.
        values: The arguments in the order of the schema. One at least is a tensor.
    """
    tensor = next(value for value in values if isinstance(value, torch.Tensor))
    args, kwargs = [], {}
    for value, is_replaced, argument in zip(
        values, replaced, sibling._schema.arguments, strict=True
    ):
        operand = as_number(value)
        if is_replaced and value is not None:
            operand = value.tensor if is_undecided(value) else torch.tensor(value)
            # Next to a tensor, a number decides the result's kind but not its precision.
            number = torch.ones((), dtype=operand.dtype).item()
            operand = operand.to(torch.result_type(tensor, number))
        if argument.kwarg_only:
            kwargs[argument.name] = operand
        else:
            args.append(operand)
    return sibling(*args, **kwargs)


def _conversion(kind: str) -> Callable[[Any], Any]:
    if "ScalarType" in kind:
        return lambda value: SCALAR_TYPES[value] if isinstance(value, int) else value
    if "Layout" in kind:
        return lambda value: _LAYOUTS[value] if isinstance(value, int) else value
    if "MemoryFormat" in kind:
        return lambda value: MEMORY_FORMATS[value] if isinstance(value, int) else value
    return as_number
