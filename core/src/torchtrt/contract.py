"""What a pack says about one converter: the function, its validator, its priority and what it can handle."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from torchtrt.errors import ConverterSignatureError

Converter = Callable[..., Any]
"""A function ``(ctx, target, args, kwargs, name)`` that adds one op to a network."""

Validator = Callable[..., Any]
"""A function ``(node, settings)`` or ``(node)`` that says whether a converter can handle one node."""


class ConverterPriority(enum.Enum):
    """Where a converter goes among the candidates for its op: ``STANDARD`` to the back, ``HIGH`` to the front."""

    STANDARD = "standard"
    HIGH = "high"


class CallingConvention(enum.Enum):
    """What a converter's first argument is; the others are always ``target, args, kwargs, name``."""

    LEGACY = "net"
    CTX = "ctx"


@dataclass(frozen=True, slots=True)
class Reject:
    """A validator's "no" with its reason. It is false, so it can be returned in place of ``False``.

    Attributes:
        reason: Why the converter cannot handle the node, as a person should read it.
    """

    reason: str

    def __bool__(self) -> bool:
        return False


def accept_every_node(node: Node, settings: Any) -> bool:  # noqa: ARG001
    """Returns true: the validator of a converter that can handle every node of its op."""
    return True


@dataclass(frozen=True, slots=True)
class ConverterSupport:
    """One converter and what it can handle.

    Attributes:
        converter_implementation: The function, or ``"module:function"`` to import it on first use.
        capability_validator: Says whether the converter can handle one node.
        supports_dynamic_shapes: Whether the converter handles nodes with symbolic dimensions.
        requires_output_allocator: Whether an output's size depends on the data.
    """

    converter_implementation: Converter | str
    capability_validator: Validator = accept_every_node
    supports_dynamic_shapes: bool = False
    requires_output_allocator: bool = False


_CONVENTIONS = {
    "ctx": CallingConvention.CTX,
    "net": CallingConvention.LEGACY,
    "network": CallingConvention.LEGACY,
}


def calling_convention(converter: Converter) -> CallingConvention:
    """Returns how ``converter`` wants to be called, told from the name of its first parameter.

    Raises:
        ConverterSignatureError: The name does not tell.
    """
    first = _first_parameter(converter)
    convention = _CONVENTIONS.get(first)
    if convention is None:
        message = (
            f"The calling convention of converter {qualified_function(converter)} cannot be told: its first parameter "
            f"is {first!r}. Write (ctx, target, args, kwargs, name) for the conversion context, or (net, target, args, "
            "kwargs, name) for the bare network."
        )
        raise ConverterSignatureError(message)
    return convention


def _first_parameter(function: Converter) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None and code.co_argcount and not inspect.ismethod(function):
        return str(code.co_varnames[0])  # inspect.signature takes ten times as long
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        return ""


def takes_settings(validator: Validator) -> bool:
    """Returns whether ``validator`` is called with ``(node, settings)``; otherwise it is called with ``(node)``.

    Raises:
        ConverterSignatureError: It can be called with neither.
    """
    if _is_function_of_two(validator):
        return True
    try:
        signature = inspect.signature(validator)
    except (TypeError, ValueError) as error:
        raise ConverterSignatureError(_validator_message(validator)) from error
    for argument_count in (2, 1):
        try:
            signature.bind(*range(argument_count))
        except TypeError:
            continue
        return argument_count == 2
    raise ConverterSignatureError(_validator_message(validator))


def _is_function_of_two(validator: Validator) -> bool:
    """Returns whether a function is of the common form, in a hundredth of the time of inspect.signature."""
    code = getattr(validator, "__code__", None)
    return (
        code is not None
        and code.co_argcount == 2
        and not code.co_kwonlyargcount
        and not inspect.ismethod(validator)
        and not hasattr(validator, "__wrapped__")
    )


def _validator_message(validator: Validator) -> str:
    return (
        f"The validator {qualified_function(validator)} cannot be called with (node, settings) nor with (node). "
        "Write `def validator(node, settings)`."
    )


def qualified_function(function: Callable[..., Any] | str) -> str:
    """Returns where a function is: ``"module:function"``."""
    if isinstance(function, str):
        return function
    function = inspect.unwrap(function)
    function = getattr(function, "func", function)  # functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or 'builtins'}:{name}"
