"""Evaluators: what TorchScript computes without tensors, computed when the model is compiled.

A number, list, tuple or dictionary of the graph is a Python value here. Sizes may be symbolic, and then so is what is
computed from them. A number that is read out of a tensor stays ``Undecided``.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchtrt.callers import warn_caller
from torchtrt.errors import ExportError, TorchTRTError
from torchtrt_compiler.python_reads import note_stride_read
from torchtrt_torchscript.number_evaluators import (
    Evaluator,
    boolean,
    maximum,
    minimum,
    negated,
    of_numbers,
    of_undecided,
    reading,
    scalar,
    square_root,
    sym_float,
    sym_int,
    sym_max,
)
from torchtrt_torchscript.numbers import (
    DependsOnDataError,
    Undecided,
    Uninitialized,
    holding,
    is_symbolic,
)
from torchtrt_torchscript.operators import MEMORY_FORMATS, SCALAR_TYPES
from torchtrt_torchscript.source_location import source_line
from torchtrt_torchscript.torch_internals import ScriptNode


class RaisedError(TorchTRTError, RuntimeError):
    """The model's own ``raise`` was reached while it was compiled: it refuses these inputs."""


def _size(tensor: Tensor, dim: int | None = None) -> Any:
    return list(tensor.shape) if dim is None else tensor.shape[dim]


def _stride(node: ScriptNode, tensor: Tensor, dim: int | None = None) -> Any:
    _note_read(node)
    return list(tensor.stride()) if dim is None else tensor.stride(dim)


def _is_contiguous(node: ScriptNode, tensor: Tensor, memory_format: int = 0) -> bool:
    _note_read(node)
    return tensor.is_contiguous(memory_format=MEMORY_FORMATS[memory_format])


def _storage_offset(node: ScriptNode, tensor: Tensor) -> Any:
    _note_read(node, reads_offset=True)
    return tensor.storage_offset()


def _note_read(node: ScriptNode, reads_offset: bool = False) -> None:
    """Notes that the model reads strides: calls must have inputs in the memory of the examples."""
    line = source_line(node)
    if (
        f"{os.sep}torch{os.sep}" not in line.partition("\n")[0]
    ):  # PyTorch's own code has one result for all strides
        note_stride_read(line, reads_offset)


def _length(values: Any) -> Any:
    return values.shape[0] if isinstance(values, Tensor) else len(values)


def _slice(values: Any, *bounds: Any) -> Any:
    return values[slice(*bounds)]


def _round_to_zero_floordiv(first: int, second: int) -> int:
    return -(-first // second) if (first < 0) != (second < 0) else first // second


def _range_length(low: Any, high: Any, step: int) -> Any:
    if all(isinstance(value, int) for value in (low, high, step)):
        return len(range(low, high, step))
    length = -((low - high) // step) if step > 0 else -((high - low) // -step)
    return sym_max(length, 0)


def _constant_tensor(data: Any, dtype: int | None, device: Any, *_: Any) -> Tensor:
    """Returns a number or a tensor as a new tensor, as ``torch.tensor`` does."""
    kind = None if dtype is None else SCALAR_TYPES[dtype]
    if isinstance(data, Undecided):
        is_fraction = kind is None and data.tensor.is_floating_point()
        return data.tensor.to(torch.get_default_dtype() if is_fraction else kind, copy=True)
    if isinstance(data, Tensor):
        return data.clone() if kind is None else data.to(kind)
    if isinstance(data, (bool, int)) or (isinstance(data, float) and kind in _EXACT):
        # A constant that is lifted, as torch.tensor makes it, cannot be in a branch that writes.
        tensor = torch.full((), data, dtype=kind, device=device)
        return holding(tensor, _rounded(data, tensor.dtype))
    if not _any_symbolic(data):
        return torch.tensor(data, dtype=kind, device=device)
    if isinstance(data, list):
        pieces = [_constant_tensor(value, dtype, device) for value in data]
        return torch.stack(pieces)
    if kind is None:
        kind = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
    return torch.full((), data, dtype=kind, device=device)


_EXACT = (None, torch.float32, torch.float64)
"""The dtypes that fractions are rounded to here as PyTorch does it."""


def _rounded(data: Any, dtype: torch.dtype) -> Any:
    """Returns a number as a tensor of a dtype holds it."""
    if not dtype.is_floating_point:
        return bool(data) if dtype is torch.bool else int(data)
    return ctypes.c_float(data).value if dtype is torch.float32 else float(data)


def _number_as_tensor(value: Any) -> Tensor:
    if isinstance(value, Undecided):
        return value.tensor.clone()
    if isinstance(value, float):
        return torch.full((), value, dtype=torch.float64)
    tensor = _constant_tensor(value, None, None)
    is_size = isinstance(value, (torch.SymInt, torch.SymFloat))
    return holding(tensor, value) if is_size else tensor


def _any_symbolic(data: Any) -> bool:
    if isinstance(data, list):
        return any(map(_any_symbolic, data))
    return isinstance(data, (torch.SymInt, torch.SymFloat, Undecided, Tensor))


def _dictionary(*items: Any) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _raise(*args: Any) -> None:
    message = f"The model raises while it is compiled for these inputs: {args[0] if args else ''}"
    raise RaisedError(message.strip())


def _warn(message: str, *_: Any) -> None:
    warn_caller(f"The model warns: {message}")


class Instance:
    """An object of a class that TorchScript compiled: its attributes. They are known while a model is compiled."""

    def __init__(self) -> None:
        self._attributes: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Returns an attribute."""
        return self._attributes[name]

    def set(self, name: str, value: Any) -> None:
        """Sets an attribute."""
        self._attributes[name] = value


def _enter(node: ScriptNode, _: Any) -> None:
    """Enters or leaves a ``with`` block. Those of PyTorch, such as ``torch.no_grad()``, mean nothing to an engine."""
    name = str(node.input().type())
    if not name.startswith("__torch__.torch."):
        message = f"A with block of {name.removeprefix('__torch__.')} cannot be compiled.\n{source_line(node)}"
        raise ExportError(message)


def _tuple_slice(node: ScriptNode, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[node.i("beg") : node.i("end")]


def _is_instance(node: ScriptNode, value: Any) -> bool:
    """Whether a value is of one of the node's types: a check of optionals and unions."""
    return any(_is_of_type(value, kind) for kind in node.tys("types"))


def _is_of_type(value: Any, kind: Any) -> bool:
    """Returns whether a value is of a type of TorchScript."""
    name = kind.kind()
    if isinstance(value, Undecided):
        return bool(_TYPES_OF_NUMBERS.get(value.tensor.dtype) == name)
    if name == "NoneType":
        return value is None
    python: Any = {
        "TensorType": Tensor,
        "IntType": (int, torch.SymInt),
        "FloatType": (float, torch.SymFloat),
        "BoolType": (bool, torch.SymBool),
        "StringType": str,
        "ListType": list,
        "DictType": dict,
        "TupleType": tuple,
    }.get(name)
    if python is None:
        return False
    return isinstance(value, python) and not (name == "IntType" and isinstance(value, bool))


_TYPES_OF_NUMBERS = {
    torch.int64: "IntType",
    torch.float64: "FloatType",
    torch.bool: "BoolType",
}


def _device(text: str, index: int | None = None) -> torch.device:
    return torch.device(text) if index is None else torch.device(text, index)


def _text(write: Callable[..., str]) -> Evaluator:
    """Makes an evaluator that writes numbers into text: only those that are known have digits."""

    def evaluate(*args: Any) -> str:
        if is_symbolic(args):
            raise DependsOnDataError
        return write(*args)

    return evaluate


def _percent_format(text: str, *values: Any) -> str:
    return text % (values[0] if len(values) == 1 and isinstance(values[0], tuple) else values)


FUNCTIONS: dict[str, Evaluator] = {
    "aten::exp": of_undecided(torch.exp),
    "aten::expm1": of_undecided(torch.expm1),
    "aten::log": of_undecided(
        lambda value, *base: torch.log(value) / torch.log(*base) if base else torch.log(value)
    ),
    "aten::log1p": of_undecided(torch.log1p),
    "aten::log10": of_undecided(torch.log10),
    "aten::sin": of_undecided(torch.sin),
    "aten::cos": of_undecided(torch.cos),
    "aten::tan": of_undecided(torch.tan),
    "aten::asin": of_undecided(torch.asin),
    "aten::acos": of_undecided(torch.acos),
    "aten::atan": of_undecided(torch.atan),
    "aten::atan2": of_undecided(torch.atan2),
    "aten::sinh": of_undecided(torch.sinh),
    "aten::cosh": of_undecided(torch.cosh),
    "aten::tanh": of_undecided(torch.tanh),
    "aten::asinh": of_undecided(torch.asinh),
    "aten::acosh": of_undecided(torch.acosh),
    "aten::atanh": of_undecided(torch.atanh),
    "aten::erf": of_undecided(torch.erf),
    "aten::fabs": of_undecided(torch.abs),
    "aten::fmod": of_undecided(torch.fmod),
    "aten::copysign": of_undecided(torch.copysign),
    "aten::degrees": of_undecided(torch.rad2deg),
    "aten::radians": of_undecided(torch.deg2rad),
    "aten::round": of_undecided(torch.round),
    "aten::floor": of_undecided(torch.floor, torch.int64, math.floor),
    "aten::ceil": of_undecided(torch.ceil, torch.int64, math.ceil),
    "aten::isnan": of_undecided(torch.isnan, torch.bool),
    "aten::isinf": of_undecided(torch.isinf, torch.bool),
    "aten::isfinite": of_undecided(torch.isfinite, torch.bool),
}
"""The functions of mathematics, of numbers that are not known; of others TorchScript computes them itself."""

EVALUATORS: dict[str, Evaluator] = {
    # Numbers
    "aten::add": of_numbers(operator.add),
    "aten::sub": of_numbers(operator.sub),
    "aten::mul": of_numbers(operator.mul),
    "aten::div": of_numbers(operator.truediv),
    "aten::floordiv": of_numbers(operator.floordiv),
    "aten::remainder": of_numbers(operator.mod),
    "aten::fmod": of_numbers(math.fmod),
    "aten::pow": of_numbers(operator.pow),
    "aten::neg": of_numbers(operator.neg),
    "aten::abs": of_numbers(abs),
    "prim::abs": of_numbers(abs),
    "aten::eq": of_numbers(operator.eq),
    "aten::ne": of_numbers(operator.ne),
    "aten::lt": of_numbers(operator.lt),
    "aten::le": of_numbers(operator.le),
    "aten::gt": of_numbers(operator.gt),
    "aten::ge": of_numbers(operator.ge),
    "aten::__and__": of_numbers(operator.and_),
    "aten::__or__": of_numbers(operator.or_),
    "aten::__xor__": of_numbers(operator.xor),
    "aten::__lshift__": of_numbers(operator.lshift),
    "aten::__rshift__": of_numbers(operator.rshift),
    "aten::__not__": of_numbers(negated),
    "aten::__round_to_zero_floordiv": of_numbers(_round_to_zero_floordiv),
    "aten::__range_length": _range_length,
    "aten::__derive_index": of_numbers(lambda index, start, step: start + index * step),
    "prim::min": of_numbers(minimum),
    "prim::max": of_numbers(maximum),
    "aten::sqrt": of_numbers(square_root),
    "aten::Int": reading(torch.int64, sym_int),
    "aten::IntImplicit": reading(torch.int64, sym_int),
    "aten::Float": reading(torch.float64, sym_float),
    "aten::FloatImplicit": reading(torch.float64, sym_float),
    "aten::Bool": reading(torch.bool, boolean),
    "aten::ScalarImplicit": scalar,
    "aten::item": scalar,
    "prim::unchecked_cast": lambda value: value,
    "prim::unchecked_unwrap_optional": lambda value: value,
    "aten::_unwrap_optional": lambda value: value,
    "prim::Uninitialized": lambda: Uninitialized,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    # What is known of tensors
    "aten::size": _size,
    "prim::shape": _size,
    "aten::numel": Tensor.numel,
    "aten::dim": Tensor.dim,
    "aten::len": _length,
    "prim::dtype": lambda tensor: SCALAR_TYPES.index(tensor.dtype),
    "prim::device": lambda tensor: tensor.device,
    "prim::layout": lambda _: 0,
    "prim::is_cuda": lambda tensor: tensor.is_cuda,
    # PyTorch's modules check both before they take a fused kernel that only PyTorch has.
    "prim::requires_grad": lambda tensor: tensor.requires_grad,
    "aten::is_grad_enabled": lambda: True,
    "prim::data": lambda tensor: tensor,
    "aten::is_floating_point": torch.is_floating_point,
    "aten::is_complex": torch.is_complex,
    "prim::is_nested": lambda _: False,
    "aten::device": _device,
    # Tensors of numbers
    "aten::tensor": _constant_tensor,
    "aten::as_tensor": _constant_tensor,
    "prim::NumToTensor": _number_as_tensor,
    # Lists, tuples, dictionaries and strings
    "prim::ListConstruct": lambda *items: list(items),
    "prim::ListUnpack": lambda items: items[0] if len(items) == 1 else tuple(items),
    "prim::TupleConstruct": lambda *items: items,
    "prim::TupleUnpack": lambda items: items[0] if len(items) == 1 else tuple(items),
    "prim::TupleIndex": operator.getitem,
    "prim::DictConstruct": _dictionary,
    "prim::rangelist": lambda count: list(range(count)),
    "aten::__getitem__": operator.getitem,
    "aten::_set_item": operator.setitem,
    "aten::__contains__": operator.contains,
    "aten::slice": _slice,
    "aten::list": list,
    "aten::append": lambda values, item: values.append(item) or values,
    "aten::extend": lambda values, items: values.extend(items),
    "aten::insert": lambda values, index, item: values.insert(index, item),
    "aten::pop": lambda values, *index: values.pop(*index),
    "aten::clear": lambda values: values.clear(),
    "aten::reverse": lambda values: values.reverse(),
    "aten::copy": lambda values: values.copy(),
    "aten::sort": lambda values, reverse=False: values.sort(reverse=reverse),
    "aten::remove": lambda values, item: values.remove(item),
    "aten::index": lambda values, item: values.index(item),
    "aten::count": lambda values, item: values.count(item),
    "aten::add_": lambda values, items: values.extend(items) or values,
    "aten::keys": lambda values: list(values.keys()),
    "aten::values": lambda values: list(values.values()),
    "aten::items": lambda values: list(values.items()),
    "aten::get": lambda values, key, default=None: values.get(key, default),
    "aten::setdefault": lambda values, key, default: values.setdefault(key, default),
    "aten::update": lambda values, others: values.update(others),
    "aten::Delete": operator.delitem,
    "aten::str": _text(str),
    "aten::format": _text(lambda text, *values: text.format(*values)),
    "aten::percentFormat": _text(_percent_format),
    "prim::CreateObject": Instance,
    # What a compiled model does not do
    "aten::warn": _warn,
    "prim::Print": lambda *_: None,
    "prim::RaiseException": _raise,
    "aten::wait": lambda value: value,  # what was forked has run already
    "prim::annotate": lambda value: value,
    "prim::TimePoint": lambda: 0,
    "prim::profile": lambda *values: values[0] if values else None,
}
"""The evaluator of each kind of node. Where PyTorch has an op of the kind that makes a tensor, that is called."""

NODE_EVALUATORS: dict[str, Callable[..., Any]] = {
    "aten::is_contiguous": _is_contiguous,
    "aten::stride": _stride,
    "aten::storage_offset": _storage_offset,
    "prim::Enter": _enter,
    "prim::Exit": _enter,
    "prim::TupleSlice": _tuple_slice,
    "prim::isinstance": _is_instance,
}
"""Evaluators that need the node too, for its attributes; it comes first."""

ABOUT_TENSORS = frozenset(
    (
        "aten::size",
        "aten::numel",
        "aten::dim",
        "aten::len",
        "aten::device",
        "aten::is_floating_point",
        "aten::is_complex",
        "aten::is_contiguous",
        "prim::shape",
        "prim::dtype",
        "prim::device",
        "prim::layout",
        "prim::is_cuda",
        "prim::requires_grad",
        "prim::is_nested",
    )
)
"""Evaluators of facts about tensors that need not be read."""
