"""Calls of a followed model: what of their arguments a program is compiled for, and what may vary."""

from __future__ import annotations

import inspect
import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import get_autocast_dtype, is_autocast_enabled
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from torchtrt.errors import InputError, kind_of
from torchtrt_compiler.inputs import Input
from torchtrt_compiler.torch_internals import FakeTensor, is_functorch_wrapped_tensor
from torchtrt_runtime.torch_internals import is_tracing, peek_interpreter_stack

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_CONSTANTS = (
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
Bounds = Mapping[int, tuple[int, int, int]]
"""For dimensions of a tensor that vary: the minimum, optimal and maximum size."""


class UnsupportedCallError(Exception):
    """A call that only PyTorch can run, with the reason."""


@dataclass(frozen=True)
class Call:
    """A call of a model.

    Attributes:
        args: The arguments by place. Those that are their parameter's default are left out.
        kwargs: The arguments by name, in the order of the parameters.
        key: What a program is compiled for: all but the sizes and the values of tensors.
        shapes: The shapes of the tensors, in their order.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: Any
    shapes: tuple[tuple[int, ...], ...]

    def tensors(self) -> list[torch.Tensor]:
        """Returns the tensors among the arguments, in their order."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [each for each in leaves if isinstance(each, torch.Tensor)]

    def with_tensors(self, values: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with other values in place of the tensors."""
        args, kwargs = pytree.tree_map(
            lambda leaf: next(values) if isinstance(leaf, torch.Tensor) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return args, kwargs


class CallReader:
    """Reads calls of a model.

    Args:
        forward: The model's method.
        bounds: For parameters, the dynamic sizes, as ``follow`` takes them.

    Raises:
        InputError: There is no such parameter.
    """

    def __init__(self, forward: Any, bounds: Mapping[str, Any]) -> None:
        self.signature = inspect.signature(forward)
        self._bounds = bounds
        parameters = self.signature.parameters.values()
        collects = any(each.kind is each.VAR_KEYWORD for each in parameters)
        unknown = sorted(bounds.keys() - {each.name for each in parameters})
        if unknown and not collects:
            raise InputError(
                f"dynamic_shapes names {', '.join(map(repr, unknown))}, but the model takes {self.signature}."
            )

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Returns a call.

        Raises:
            TypeError: The model takes no such arguments.
            UnsupportedCallError: An argument is of a kind that no program takes.
        """
        bound = self.signature.bind(*args, **kwargs)
        for name in [*bound.arguments]:
            default = self.signature.parameters[name].default
            value = bound.arguments[name]
            if value is default or (
                type(value) in (bool, int, float, str) and _same(value, default)
            ):
                del bound.arguments[name]
        args, kwargs = bound.args, bound.kwargs
        shapes: list[tuple[int, ...]] = []
        key = (
            tuple(_key(each, shapes) for each in args),
            tuple((name, _key(each, shapes)) for name, each in kwargs.items()),
            surroundings(),
        )
        if not shapes:
            raise UnsupportedCallError("it has no tensor among its arguments")
        return Call(args, kwargs, key, tuple(shapes))

    def declared(self, call: Call) -> list[Bounds]:
        """Returns for each tensor of a call the sizes that were declared to vary.

        Raises:
            InputError: A declaration does not fit its argument.
        """
        bound = self.signature.bind(*call.args, **call.kwargs)
        found: list[Bounds] = []
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                for each, inner in value.items():
                    found += _bounds(inner, self._bounds.get(each), each)
            else:
                found += _bounds(value, self._bounds.get(name), name)
        return found


def surroundings() -> Any:
    """Returns the state of PyTorch that programs are exported in."""
    casts = tuple(
        get_autocast_dtype(device) if is_autocast_enabled(device) else None
        for device in ("cpu", "cuda")
    )
    return casts, torch.get_default_dtype()


def is_traced() -> bool:
    """Returns whether PyTorch looks into the model, and does not only call it: an engine shows nothing."""
    return (
        torch.compiler.is_compiling()
        or is_tracing()
        or forward_ad._current_level >= 0
        or peek_interpreter_stack() is not None
    )


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and repr(value) == repr(default)


def _key(value: Any, shapes: list[tuple[int, ...]]) -> Any:
    """Returns what of an argument a program is compiled for, and appends the shapes of its tensors.

    Raises:
        UnsupportedCallError: It is of a kind that no program takes.
    """
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        return _tensor_key(value, shapes)
    if type(value) in _CONSTANTS:
        return type(value), repr(value)
    if type(value) in (list, tuple):
        return type(value), tuple(_key(each, shapes) for each in value)
    if type(value) in (dict, OrderedDict):
        return type(value), tuple((repr(name), _key(each, shapes)) for name, each in value.items())
    leaves, tree = pytree.tree_flatten(value)
    if pytree.tree_structure(0) == tree:
        raise UnsupportedCallError(f"it takes {kind_of(value)}, which torch.export does not take")
    return type(value), str(tree), tuple(_key(each, shapes) for each in leaves)


def _tensor_key(tensor: torch.Tensor, shapes: list[tuple[int, ...]]) -> Any:
    if type(tensor) not in _PLAIN:
        raise UnsupportedCallError(f"it takes {kind_of(tensor)}")
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedCallError("it takes a tensor that is not strided")
    shape = tuple(tensor.shape)
    if 0 in shape:
        raise UnsupportedCallError("it takes an empty tensor")
    shapes.append(shape)
    return tensor.dtype, tensor.device, len(shape)


def is_seen_through(leaves: list[Any]) -> bool:
    """Returns whether a tensor among the arguments is one that PyTorch traces with."""
    return any(
        isinstance(leaf, FakeTensor)
        or (isinstance(leaf, torch.Tensor) and is_functorch_wrapped_tensor(leaf))
        for leaf in leaves
    )


def _bounds(value: Any, declared: Any, where: str) -> list[Bounds]:
    """Returns for each tensor of an argument the sizes that were declared to vary.

    Args:
        value: The argument: a tensor, a container, or anything else.
        declared: What was declared for it. Declarations of containers nest as these do.
        where: The name of the argument, with the way into its containers.
    """
    if isinstance(value, torch.Tensor):
        return [_tensor_bounds(value, declared, where)]
    tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    if declared is None:
        return [{} for _ in tensors]
    parts: list[tuple[Any, Any, str]] = []
    if isinstance(value, Mapping) and isinstance(declared, Mapping):
        parts = [(each, declared.get(name), f"{where}[{name!r}]") for name, each in value.items()]
    elif isinstance(value, list | tuple) and isinstance(declared, list | tuple):
        padded = itertools.chain(declared, itertools.repeat(None))
        each_declared = zip(value, padded, strict=False)
        parts = [
            (each, part, f"{where}[{place}]") for place, (each, part) in enumerate(each_declared)
        ]
    elif tensors:
        raise InputError(
            f"dynamic_shapes gives {kind_of(declared)} for {where!r}, which is {kind_of(value)}."
        )
    return [bounds for part in parts for bounds in _bounds(*part)]


def _tensor_bounds(tensor: torch.Tensor, declared: Any, where: str) -> Bounds:
    """Returns the sizes of a tensor that were declared to vary, by dimension."""
    if declared is None:
        return {}
    if not isinstance(declared, Input):
        return {dim: _range(each, where) for dim, each in _dims(declared, tensor, where)}
    rank = len(declared.bounds[0])
    if rank != tensor.dim():
        raise InputError(
            f"dynamic_shapes gives {rank} dimensions for {where!r}, which has {tensor.dim()}."
        )
    ranges = enumerate(zip(*declared.bounds, strict=True))
    return {dim: sizes for dim, sizes in ranges if sizes[0] != sizes[2]}


def _dims(declared: Any, value: torch.Tensor, where: str) -> list[tuple[int, Any]]:
    """Returns the dimensions that a declaration names, each with its declared range."""
    items = list(declared.items() if isinstance(declared, Mapping) else enumerate(declared))
    for dim, _ in items:
        if not isinstance(dim, int) or not -value.dim() <= dim < value.dim():
            raise InputError(
                f"dynamic_shapes names dimension {dim!r} of {where!r}, which has {value.dim()} dimensions."
            )
    return [(dim % value.dim(), each) for dim, each in items if each is not None]


def _range(declared: Any, where: str) -> tuple[int, int, int]:
    """Returns the minimum, optimal and maximum size in a declaration.

    Raises:
        InputError: It contains none.
    """
    least, most = getattr(declared, "min", None), getattr(declared, "max", None)
    sizes: Any = declared if isinstance(declared, tuple | list) else (least, most)
    if len(sizes) == 2:
        sizes = (sizes[0], None, sizes[1])
    sizes = [int(each) if isinstance(each, Integral) else each for each in sizes]
    if len(sizes) != 3 or not isinstance(sizes[0], int) or not isinstance(sizes[2], int):
        raise InputError(
            f"dynamic_shapes gives {declared!r} for a dimension of {where!r}. Give (min, max), (min, opt, max), or "
            "torch.export.Dim(name, min=, max=)."
        )
    least, usual, most = sizes
    usual = most if usual is None else usual
    if not 0 <= least <= usual <= most:
        raise InputError(f"dynamic_shapes gives {declared!r} for {where!r}, which is no range.")
    return least, usual, most


def text_of_call(call: Call) -> str:
    """Returns a call as it is written, with tensors by their shapes."""

    def text(value: Any) -> str:
        """Returns one argument as it is written."""
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name!r}: {text(each)}" for name, each in value.items()) + "}"
        if type(value) in (list, tuple):
            return f"[{', '.join(map(text, value))}]"
        return (
            repr(value)
            if isinstance(value, str | int | float | bool | None)
            else type(value).__name__
        )

    named = [f"{name}={text(each)}" for name, each in call.kwargs.items()]
    return f"({', '.join([*map(text, call.args), *named])})"
