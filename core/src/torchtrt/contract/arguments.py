"""The arguments of a node by the names in its op's schema: for converters, and for validators."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Node

from torchtrt.contract.converters import Converter
from torchtrt.contract.functions import (
    is_variadic,
    keywords_of,
    network_parameters,
    positional_names,
    qualified_function,
)
from torchtrt.errors import ConverterSignatureError
from torchtrt.targets import Target, qualified_name
from torchtrt.torch_internals import pytree


class SchemaArguments:
    """Binds a node's arguments to the parameters of a ``SCHEMA`` converter.

    Every argument of the schema is a parameter of the same name (a Python keyword with an underscore behind it), or
    goes into ``**rest``. A parameter that the schema lacks must have a default: so one function can serve ops that
    differ. Ops without a schema, Python functions on sizes and higher-order ops, are bound by position.

    Weights are PyTorch tensors in ``**rest`` and in parameters whose annotation has ``torch.Tensor``. Elsewhere they
    become network tensors.

    Args:
        converter: The converter.
        target: The op.

    Raises:
        ConverterSignatureError: A parameter is not in the schema, or an argument of the schema is not taken.
    """

    __slots__ = ("_converter", "_names", "_target")

    def __init__(self, converter: Converter, target: Target) -> None:
        self._converter = converter
        self._target = target
        self._names: tuple[str, ...] | None = None
        schema = getattr(target, "_schema", None)
        if schema is None:
            return
        names = tuple(_as_parameter(argument.name) for argument in schema.arguments)
        keywords = keywords_of(converter)
        for name in keywords.required:
            if name not in names:
                text = f"has no argument {name!r}, which the converter takes"
                raise _misfit("converter", converter, target, text)
        for name in () if keywords.takes_rest else names:
            if name not in keywords.names:
                text = f"has the argument {name!r}, which the converter does not take"
                text += "; name it, or take the rest with **_"
                raise _misfit("converter", converter, target, text)
        self._names = names

    def bind(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        network_tensor: Callable[[torch.Tensor], Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns what to call the converter with, behind the context.

        Args:
            args: The positional arguments of the node; weights are PyTorch tensors.
            kwargs: The keyword arguments of the node.
            network_tensor: Makes a network tensor of a weight.
        """
        names = network_parameters(self._converter)
        if self._names is None:
            values = zip(positional_names(self._converter)[1:], args, strict=False)
            named = [_converted(network_tensor, value, name in names) for name, value in values]
            return (*named, *args[len(named) :]), dict(kwargs)
        bound = {_as_parameter(name): value for name, value in _schema_defaults(self._target)}
        bound.update(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            bound[_as_parameter(name)] = value
        converted = {
            name: _converted(network_tensor, value, name in names) for name, value in bound.items()
        }
        return (), converted


def _converted(
    network_tensor: Callable[[torch.Tensor], Any], value: Any, becomes_network_tensor: bool
) -> Any:
    if not becomes_network_tensor or value is None or isinstance(value, (int, float, str)):
        return value
    return pytree.tree_map_only(torch.Tensor, network_tensor, value)


def _misfit(
    kind: str, function: Callable[..., Any], target: Any, what: str
) -> ConverterSignatureError:
    """Returns the error for a function whose parameters are not those of its op."""
    return ConverterSignatureError(
        f"The {kind} {qualified_function(function)} does not fit {qualified_name(target)}: the op {what}.\n"
        f"  schema  {target._schema}"
    )


def _as_parameter(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def check_decomposition(
    function: Callable[..., Any], target: Any, *, with_defaults: bool = False
) -> None:
    """Checks that a decomposition can be called as its op.

    Args:
        function: The decomposition.
        target: The op.
        with_defaults: Whether a call may have the arguments for which the schema has defaults.

    Raises:
        ConverterSignatureError: It cannot.
    """
    schema = getattr(target, "_schema", None)
    if schema is None or is_variadic(function):
        return
    arguments = schema.arguments
    always = [argument.name for argument in arguments if not argument.has_default_value()]
    passed = [argument.name for argument in arguments if with_defaults or argument.name in always]
    by_name = {argument.name for argument in arguments if argument.kwarg_only}
    count = sum(name not in by_name for name in passed)
    names, keywords = positional_names(function), keywords_of(function)
    filled = {*names[: sum(name not in by_name for name in always)], *by_name.intersection(always)}
    lacking = [name for name in passed if name in by_name and name not in keywords.names]
    required = [name for name in keywords.required if name not in filled]
    if len(names) < count:
        what = f"has {count} positional arguments, and the function takes {len(names)}"
    elif lacking:
        what = f"has the argument {lacking[0]!r}, which the function does not take"
    elif required and len(names) > len(arguments):
        what = f"has {len(arguments)} arguments, and the function takes {len(names)}"
    elif required:
        what = f"may be called without {required[0]!r}, for which the function has no default"
    else:
        return
    raise _misfit("decomposition", function, target, what)


def arguments_of(node: Node) -> Any:
    """Returns a node's arguments as attributes named as in the op's schema, defaults filled in.

    For validators: tensors are graph nodes, see ``value_of``.
    """
    return named_arguments(node.target, node.args, node.kwargs)


def named_arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns an op's arguments as attributes named as in its schema, defaults filled in."""
    values = dict(_schema_defaults(target))
    values.update(zip(values, args, strict=False))
    values.update(kwargs)
    return SimpleNamespace(**values)


@functools.lru_cache(maxsize=4096)
def _schema_defaults(target: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((argument.name, argument.default_value) for argument in target._schema.arguments)


def value_of(argument: Any) -> Any:
    """Returns PyTorch's value of a node's argument: a fake tensor, a symbolic size, or the argument itself."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def constant_of(argument: Any) -> torch.Tensor | None:
    """Returns the tensor that an argument of a node is, as a weight or a buffer; ``None`` for what is computed."""
    if isinstance(argument, Node) and argument.op == "get_attr":
        argument = attrgetter(str(argument.target))(argument.graph.owning_module)
    return argument if isinstance(argument, torch.Tensor) else None
