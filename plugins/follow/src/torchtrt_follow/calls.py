"""Calls of a followed model: what of their arguments a program is compiled for, and what may vary."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch.autograd import forward_ad

from torchtrt.errors import InputError, kind_of
from torchtrt.torch_internals import pytree
from torchtrt_compiler.inputs import Input
from torchtrt_compiler.seen_sizes import Bounds
from torchtrt_runtime.checks.tensors import check_strided
from torchtrt_runtime.checks.usage import autocast_dtypes
from torchtrt_runtime.torch_internals import is_tracing, peek_interpreter_stack

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_CONSTANTS = (
    type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


@dataclass(frozen=True)
class Call:
    """A call of a model.

    Attributes:
        args: The arguments by place. Those that are their parameter's default are left out.
        kwargs: The arguments by name, in the order of the parameters.
        key: What a program is compiled for: all but the sizes and the values of tensors. It has the same ``repr`` in
            each process.
        tensors: The tensors among the arguments, in their order.
        shapes: Their shapes.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: Any
    tensors: Sequence[torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]

    def with_tensors(self, values: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with other values in place of the tensors."""
        new = iter(values)
        return pytree.tree_map_only(torch.Tensor, lambda _: next(new), (self.args, self.kwargs))  # type: ignore[no-any-return]

    def __str__(self) -> str:
        forms = (_Text(f"{tensor.dtype}{list(tensor.shape)}"[6:]) for tensor in self.tensors)
        args, kwargs = self.with_tensors(forms)
        named = (f"{name}={value!r}" for name, value in kwargs.items())
        return f"({', '.join([*map(repr, args), *named])})"


class _Text(str):
    """A text without quotation marks inside of others."""

    __slots__ = ()
    __repr__ = str.__str__


class CallReader:
    """Reads calls of a model.

    Args:
        forward: The model's method.
        declared: For parameters, the dynamic sizes, as ``follow`` takes them.

    Raises:
        InputError: There is no such parameter.
    """

    def __init__(self, forward: Any, declared: Mapping[str, Any]) -> None:
        self._signature = inspect.signature(forward)
        self._parameters = self._signature.parameters
        self._declared = declared
        kinds = {parameter.kind for parameter in self._parameters.values()}
        unknown = sorted(declared.keys() - self._parameters.keys())
        if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise InputError(
                f"dynamic_shapes names {', '.join(map(repr, unknown))}, but the model takes {self._signature}."
            )

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Returns a call.

        Raises:
            TypeError: The model takes no such arguments.
            InputError: An argument is of a kind that no program takes.
        """
        bound = self._signature.bind(*args, **kwargs)
        is_needed = False  # for the place of a later argument
        for name, value in reversed(list(bound.arguments.items())):
            parameter = self._parameters[name]
            if not is_needed and _is_same(value, parameter.default):
                del bound.arguments[name]
            else:
                is_needed |= parameter.kind in _BY_PLACE
        tensors: list[torch.Tensor] = []
        parts = [_key(part, tensors) for part in (bound.args, bound.kwargs)]
        key = (*parts, autocast_dtypes(), torch.get_default_dtype(), torch.get_default_device())
        if not tensors:
            raise InputError("It has no tensor among its arguments.")
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        return Call(bound.args, bound.kwargs, key, tensors, shapes)

    def declared(self, call: Call) -> list[Bounds]:
        """Returns for each tensor of a call the sizes that were declared to vary.

        Raises:
            InputError: A declaration does not fit its argument.
        """
        arguments: dict[str, Any] = {}
        for name, value in self._signature.bind(*call.args, **call.kwargs).arguments.items():
            collects = self._parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            arguments |= value if collects else {name: value}
        leaves = pytree.tree_leaves_with_path(arguments)
        return [
            _bounds(leaf, _at(path, self._declared), f"the argument {pytree.keystr(path)}")
            for path, leaf in leaves
            if isinstance(leaf, torch.Tensor)
        ]


def _at(path: Iterable[Any], declared: Any) -> Any:
    """Returns the declaration for a part of the arguments. Declarations nest as these do."""
    for key in path:
        if isinstance(declared, Mapping):
            declared = declared.get(getattr(key, "key", getattr(key, "idx", None)))
        elif isinstance(declared, list | tuple) and hasattr(key, "idx"):
            declared = declared[key.idx] if key.idx < len(declared) else None
        elif declared is not None:
            raise InputError(f"dynamic_shapes gives {declared!r} for a container of tensors.")
    return declared


def _bounds(tensor: torch.Tensor, declared: Any, where: str) -> Bounds:
    """Returns the sizes of a tensor that were declared to vary, by dimension."""
    rank = tensor.dim()
    if isinstance(declared, Input):
        if len(declared.bounds[0]) != rank:
            raise InputError(
                f"dynamic_shapes gives {len(declared.bounds[0])} dimensions for {where}, which has {rank}."
            )
        declared = [
            sizes if sizes[0] != sizes[2] else None for sizes in zip(*declared.bounds, strict=True)
        ]
    dims = declared.items() if isinstance(declared, Mapping) else enumerate(declared or ())
    bounds = {}
    for dim, sizes in dims:
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise InputError(
                f"dynamic_shapes names dimension {dim!r} of {where}, which has {rank} dimensions."
            )
        if sizes is not None:
            bounds[dim % rank] = _range(sizes, where)
    return bounds


def _range(declared: Any, where: str) -> tuple[int, int, int]:
    """Returns the minimum, optimal and maximum size in a declaration."""
    sizes = declared
    if not isinstance(declared, tuple | list):  # a torch.export.Dim
        sizes = getattr(declared, "min", None), getattr(declared, "max", None)
    if len(sizes) not in (2, 3) or not all(isinstance(size, Integral) for size in sizes):
        raise InputError(
            f"dynamic_shapes gives {declared!r} for a dimension of {where}. Give (min, max), (min, opt, max), or "
            "torch.export.Dim(name, min=, max=)."
        )
    least, *between, most = map(int, sizes)
    usual = between[0] if between else most
    if not 0 <= least <= usual <= most:
        raise InputError(f"dynamic_shapes gives {declared!r} for {where}, which is no range.")
    return least, usual, most


def is_traced() -> bool:
    """Returns whether PyTorch looks into the model, and does not only call it: an engine shows nothing."""
    return (
        torch.compiler.is_compiling()
        or is_tracing()
        or forward_ad._current_level >= 0
        or peek_interpreter_stack() is not None
    )


def _is_same(value: Any, default: Any) -> bool:
    kind = type(value)
    is_equal = kind in _CONSTANTS and kind is type(default) and repr(value) == repr(default)
    return value is default or is_equal


def _key(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns what of an argument a program is compiled for, and appends its tensors.

    Raises:
        InputError: It is of a kind that no program takes.
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        if kind not in _PLAIN:
            raise InputError(f"It takes {kind_of(value)}.")
        check_strided(value)
        if not value.numel():
            raise InputError("It takes an empty tensor.")
        tensors.append(value)
        return value.dtype, value.device, value.dim()
    if kind in _CONSTANTS:
        return kind, repr(value)
    # The containers of most calls: flattening them takes longer.
    if kind in (list, tuple):
        return kind, *[_key(part, tensors) for part in value]
    if kind is dict:
        return kind, *[(repr(name), _key(part, tensors)) for name, part in value.items()]
    leaves, tree = pytree.tree_flatten(value)
    if tree.is_leaf():
        raise InputError(f"It takes {kind_of(value)}, which torch.export does not take.")
    return kind, str(tree), *[_key(leaf, tensors) for leaf in leaves]
