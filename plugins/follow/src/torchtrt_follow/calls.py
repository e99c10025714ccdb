"""Calls of a followed model: what of their arguments a program is compiled for, and what may vary."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import get_autocast_dtype, is_autocast_enabled
from torch.autograd import forward_ad

from torchtrt.errors import InputError, kind_of
from torchtrt.torch_internals import pytree
from torchtrt_compiler.seen_sizes import Bounds
from torchtrt_follow.sizes import declared_bounds
from torchtrt_runtime.torch_internals import is_tracing, peek_interpreter_stack

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_CONSTANTS = (
    bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


class UnsupportedCallError(Exception):
    """A call that only PyTorch can run, with the reason."""


@dataclass(frozen=True)
class Call:
    """A call of a model.

    Attributes:
        args: The arguments by place. Those that are their parameter's default are left out.
        kwargs: The arguments by name, in the order of the parameters.
        key: What a program is compiled for: all but the sizes and the values of tensors.
        tensors: The tensors among the arguments, in their order.
        shapes: Their shapes.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: Any
    tensors: Sequence[torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]

    def with_tensors(self, values: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with other values in place of the tensors."""
        args, kwargs = pytree.tree_map(
            lambda leaf: next(values) if isinstance(leaf, torch.Tensor) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return args, kwargs

    def __str__(self) -> str:
        named = [f"{name}={_text_of(value)}" for name, value in self.kwargs.items()]
        return f"({', '.join([*map(_text_of, self.args), *named])})"


class CallReader:
    """Reads calls of a model.

    Args:
        forward: The model's method.
        declared: For parameters, the dynamic sizes, as ``follow`` takes them.

    Raises:
        InputError: There is no such parameter.
    """

    def __init__(self, forward: Any, declared: Mapping[str, Any]) -> None:
        self.signature = inspect.signature(forward)
        self._declared = declared
        parameters = self.signature.parameters.values()
        collects = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        unknown = sorted(declared.keys() - {parameter.name for parameter in parameters})
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
        for name, value in list(bound.arguments.items()):
            if _is_same(value, self.signature.parameters[name].default):
                del bound.arguments[name]
        args, kwargs = bound.args, bound.kwargs
        tensors: list[torch.Tensor] = []
        key = (
            tuple(_key(argument, tensors) for argument in args),
            tuple((name, _key(argument, tensors)) for name, argument in kwargs.items()),
            _modes(),
        )
        if not tensors:
            raise UnsupportedCallError("it has no tensor among its arguments")
        return Call(args, kwargs, key, tensors, tuple(tuple(tensor.shape) for tensor in tensors))

    def declared(self, call: Call) -> list[Bounds]:
        """Returns for each tensor of a call the sizes that were declared to vary.

        Raises:
            InputError: A declaration does not fit its argument.
        """
        arguments: dict[str, Any] = {}
        for name, value in self.signature.bind(*call.args, **call.kwargs).arguments.items():
            kind = self.signature.parameters[name].kind
            arguments |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return [
            bounds
            for name, value in arguments.items()
            for bounds in declared_bounds(value, self._declared.get(name), name)
        ]


def _modes() -> Any:
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


def _is_same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    is_plain = type(value) in (bool, int, float, str)
    return is_plain and type(value) is type(default) and repr(value) == repr(default)


def _key(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns what of an argument a program is compiled for, and appends its tensors.

    Raises:
        UnsupportedCallError: It is of a kind that no program takes.
    """
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _tensor_key(value)
    if type(value) in _CONSTANTS:
        return type(value), repr(value)
    if type(value) in (list, tuple):
        return type(value), tuple(_key(part, tensors) for part in value)
    if type(value) in (dict, OrderedDict):
        return type(value), tuple((repr(name), _key(part, tensors)) for name, part in value.items())
    leaves, tree = pytree.tree_flatten(value)
    if tree.is_leaf():
        raise UnsupportedCallError(f"it takes {kind_of(value)}, which torch.export does not take")
    return type(value), str(tree), tuple(_key(leaf, tensors) for leaf in leaves)


def _tensor_key(tensor: torch.Tensor) -> Any:
    if type(tensor) not in _PLAIN:
        raise UnsupportedCallError(f"it takes {kind_of(tensor)}")
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedCallError("it takes a tensor that is not strided")
    if not tensor.numel():
        raise UnsupportedCallError("it takes an empty tensor")
    return tensor.dtype, tensor.device, tensor.dim()


def _text_of(value: Any) -> str:
    """Returns an argument as it is written, with tensors by their shapes."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_text_of(part)}' for name, part in value.items())}}}"
    if type(value) in (list, tuple):
        return f"[{', '.join(map(_text_of, value))}]"
    return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
