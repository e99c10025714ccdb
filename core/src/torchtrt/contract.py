"""A pack's description of one converter: the function, its calling convention, its validator and its abilities."""

from __future__ import annotations

import enum
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch.fx import Node

from torchtrt.capability import Capability
from torchtrt.errors import ConverterSignatureError
from torchtrt.targets import Target, qualified_name

Converter = Callable[..., Any]
"""A function that adds one op to a network, in one of the forms of ``CallingConvention``."""

Validator = Callable[..., Any]
"""A function ``(node, settings)`` or ``(node)`` that checks whether a converter can handle one node."""


class ConverterPriority(enum.Enum):
    """Where a converter goes among the candidates for its op: ``STANDARD`` to the back, ``HIGH`` to the front."""

    STANDARD = "standard"
    HIGH = "high"


class AutocastRule(enum.Enum):
    """In which precision an op computes where the setting ``autocast`` lowers a float32 model's.

    The rules are those of PyTorch's own autocast. An op without one computes in float32.

    Attributes:
        LOWER_PRECISION: In the lower precision, whatever its inputs are: matrix products, convolutions.
        PROMOTE: In the lower precision if all inputs are of it, in float32 otherwise: activations, views.
        FLOAT32: In float32: normalizations, exponentials, losses, reductions.
    """

    LOWER_PRECISION = "lower precision"
    PROMOTE = "promote"
    FLOAT32 = "float32"


class CallingConvention(enum.Enum):
    """How a converter is called, which its parameters determine.

    Attributes:
        SCHEMA: ``(ctx, ...)`` with the parameters of the op's schema, by name; the interpreter fills
            in defaults and makes network tensors of weights.
        CTX: ``(ctx, target, args, kwargs, name)`` with the conversion context.
        LEGACY: ``(net, target, args, kwargs, name)`` with the network.
    """

    SCHEMA = "schema"
    CTX = "ctx"
    LEGACY = "net"


@dataclass(frozen=True, slots=True)
class Reject:
    """A validator's "no" with its reason. It is false, so it can be returned in place of ``False``.

    Attributes:
        reason: Why the converter cannot handle the node, as a user should read it.
        advice: What that user can do so that it can; shown beside the reason.
    """

    reason: str
    advice: str = ""

    def __bool__(self) -> bool:
        return False


def accept_every_node(node: Node, settings: Any) -> bool:  # noqa: ARG001
    """Returns true: the validator of a converter that can handle every node of its op."""
    return True


def to_rejection(answer: object) -> Reject | None:
    """Returns what a validator's answer means: a rejection, or ``None`` where it accepts.

    ``True`` and ``None`` accept; ``False``, a ``Reject`` and a string, which is the reason, reject.

    Raises:
        TypeError: The answer is none of these.
    """
    if answer is True or answer is None:
        return None
    if isinstance(answer, Reject):
        if not isinstance(answer.reason, str) or not isinstance(answer.advice, str):
            raise TypeError(f"{answer!r:.200}, whose reason and advice are not both strings")
        return answer
    if isinstance(answer, str):
        return Reject(answer)
    if answer is False:
        return Reject("")
    message = f"a {type(answer).__name__} where True, False, None, Reject(...) or a reason is meant"
    raise TypeError(message)


class RejectIf:
    """A validator made of small checks: it rejects a node if one of them returns a reason.

    Args:
        *checks: Functions ``(node)`` or ``(node, settings)`` that return a reason, or ``None``.
            Their names are shown in listings.
        validator: One more, which may also answer with a bool: whether it accepts the node.
    """

    def __init__(self, *checks: Validator, validator: Validator | None = None) -> None:
        self.checks = checks if validator is None else (validator, *checks)
        self._validator = validator
        self._calls = tuple((check, _takes_settings(check)) for check in self.checks)

    def __call__(self, node: Node, settings: Any) -> Any:
        """Returns the first to_rejection, or ``None``."""
        for check, takes_settings in self._calls:
            answer = check(node, settings) if takes_settings else check(node)
            if answer is None:
                continue
            if isinstance(answer, bool) and check is not self._validator:
                raise TypeError(f"{answer} of {check_names(check)[0]}: a reason or None is meant")
            if answer is not True:
                return answer
        return None


def check_names(validator: Validator) -> tuple[str, ...]:
    """Returns the names of a validator's checks, as listings show them."""
    if isinstance(validator, RejectIf):
        return tuple(name for check in validator.checks for name in check_names(check))
    return (re.split("[:.]", qualified_function(validator))[-1].strip("_<>"),)


def declared_dtypes(validator: Validator) -> tuple[str, ...]:
    """Returns the names of the dtypes that the checks with an attribute ``dtypes`` let pass; none without such."""
    checks = validator.checks if isinstance(validator, RejectIf) else (validator,)
    declared = [frozenset(check.dtypes) for check in checks if hasattr(check, "dtypes")]
    names = {str(dtype) for dtype in frozenset.intersection(*declared)} if declared else set()
    return tuple(sorted(name.removeprefix("torch.") for name in names))


def with_settings(validator: Validator) -> Validator:
    """Returns a validator as ``(node, settings)``.

    Raises:
        ConverterSignatureError: It can be called with neither one nor two arguments.
    """
    if _takes_settings(validator):
        return validator
    return functools.wraps(validator)(lambda node, settings: validator(node))  # noqa: ARG005


def _takes_settings(validator: Validator) -> bool:
    """Returns whether a validator takes the settings beside the node.

    Raises:
        ConverterSignatureError: It takes neither one nor two arguments.
    """
    if isinstance(validator, RejectIf) or _is_function_of(2, validator):
        return True
    if _is_function_of(1, validator):
        return False
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


def _is_function_of(count: int, validator: Validator) -> bool:
    """Returns whether a function is of a common form, in a hundredth of the time of inspect.signature."""
    code = getattr(validator, "__code__", None)
    return (
        code is not None
        and code.co_argcount == count
        and not code.co_kwonlyargcount
        and not code.co_flags & inspect.CO_VARARGS
        and not validator.__defaults__
        and not inspect.ismethod(validator)
        and not hasattr(validator, "__wrapped__")
    )


def _validator_message(validator: Validator) -> str:
    return (
        f"The validator {qualified_function(validator)} cannot be called with (node, settings) nor with (node). "
        "Write `def validator(node, settings)`."
    )


@dataclass(frozen=True, slots=True)
class ConverterSupport:
    """One converter and what it can handle.

    Attributes:
        converter_implementation: The function, or ``"module:function"`` to import it on first use.
        capability_validator: Checks whether the converter can handle one node.
        supports_dynamic_shapes: Whether the converter handles nodes with symbolic dimensions.
        requires_output_allocator: Whether an output's size depends on the data.
        keep_constants: Whether a ``SCHEMA`` converter receives weights as ``torch.Tensor``; without it
            they are network tensors. In the other conventions weights always are ``torch.Tensor``.
        tensorrt: The TensorRT versions that it works with, as ``">=10"``; all if empty.
        requires: The capabilities of TensorRT that it needs.
    """

    converter_implementation: Converter | str
    capability_validator: Validator = accept_every_node
    supports_dynamic_shapes: bool = False
    requires_output_allocator: bool = False
    keep_constants: bool = False
    tensorrt: str = ""
    requires: tuple[Capability, ...] = ()


_CTX_PARAMETERS = ("target", "args", "kwargs")
_FORMS = (
    "Write (ctx, target, args, kwargs, name), (net, target, args, kwargs, name), or (ctx, ...) with the parameters of "
    "the op's schema."
)


def calling_convention(converter: Converter) -> CallingConvention:
    """Returns how to call ``converter``, which the names of its parameters determine.

    Raises:
        ConverterSignatureError: They determine no convention.
    """
    first, *rest = _parameter_names(converter) or ("",)
    if first in ("net", "network"):
        convention = CallingConvention.LEGACY
    elif first == "ctx":
        classic = tuple(rest[:3]) == _CTX_PARAMETERS
        convention = CallingConvention.CTX if classic else CallingConvention.SCHEMA
    else:
        raise ConverterSignatureError(
            f"The calling convention of converter {qualified_function(converter)} is unknown: its first parameter "
            f"is {first!r}. {_FORMS}"
        )
    if (
        convention is not CallingConvention.SCHEMA
        and len(rest) != 4
        and not _is_variadic(converter)
    ):
        raise ConverterSignatureError(
            f"The converter {qualified_function(converter)} takes ({', '.join((first, *rest))}), which is no calling "
            f"convention. {_FORMS}"
        )
    return convention


def _parameter_names(function: Converter) -> tuple[str, ...]:
    """Returns the names of a function's positional parameters."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is not None and not inspect.ismethod(function):
        # inspect.signature takes ten times as long.
        return tuple(code.co_varnames[: code.co_argcount])
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(each.name for each in parameters if each.kind in positional)


def _is_variadic(function: Converter) -> bool:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is None or bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))


class SchemaArguments:
    """Binds a node's arguments to the parameters of a ``SCHEMA`` converter.

    Every argument of the schema is a parameter of the same name (a Python keyword with an underscore behind it), or
    goes into ``**rest``. A parameter that the schema lacks must have a default: so one function can serve ops that
    differ. Ops without a schema, Python functions on sizes and higher-order ops, are bound by position.

    Args:
        converter: The converter.
        target: The op.

    Raises:
        ConverterSignatureError: A parameter is not in the schema, or an argument of the schema is not taken.
    """

    __slots__ = ("_names", "_target")

    def __init__(self, converter: Converter, target: Target) -> None:
        self._target = target
        self._names: tuple[str, ...] | None = None
        schema = getattr(target, "_schema", None)
        if schema is None:
            return
        names = tuple(_as_parameter(argument.name) for argument in schema.arguments)
        required, optional, takes_rest = _keywords(converter)
        for name in required:
            if name not in names:
                self._refuse(
                    converter, target, f"has no argument {name!r}, which the converter takes"
                )
        for name in () if takes_rest else names:
            if name not in required and name not in optional:
                text = f"has the argument {name!r}, which the converter does not take"
                self._refuse(converter, target, f"{text}; name it, or take the rest with **_")
        self._names = names

    @staticmethod
    def _refuse(converter: Converter, target: Target, what: str) -> None:
        schema = target._schema  # type: ignore[attr-defined]
        raise ConverterSignatureError(
            f"The converter {qualified_function(converter)} does not fit {qualified_name(target)}: the op {what}.\n"
            f"  schema  {schema}"
        )

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns what to call the converter with, behind the context."""
        if self._names is None:
            return tuple(args), dict(kwargs)
        bound = {_as_parameter(name): value for name, value in _schema_defaults(self._target)}
        bound.update(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            bound[_as_parameter(name)] = value
        return (), bound


def _as_parameter(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


@functools.lru_cache(maxsize=256)
def _keywords(converter: Converter) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Returns the names of a converter's parameters without and with a default, and whether it has ``**``."""
    code = getattr(converter, "__code__", None)
    if code is None or hasattr(converter, "__wrapped__"):
        parameters = list(inspect.signature(converter).parameters.values())[1:]
        rest = [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
        required = [each for each in parameters if each.default is inspect.Parameter.empty]
        return (
            tuple(each.name for each in required if each not in rest),
            tuple(each.name for each in parameters if each not in required),
            bool(rest),
        )
    names = code.co_varnames[1 : code.co_argcount]  # inspect.signature takes ten times as long
    count = len(names) - len(getattr(converter, "__defaults__", None) or ())
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    given = getattr(converter, "__kwdefaults__", None) or {}
    return (
        (*names[:count], *(name for name in keywords if name not in given)),
        (*names[count:], *given),
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )


def with_table_value(converter: Converter, value: Any) -> Converter:
    """Returns a converter with a value for its keyword-only parameter, which a table gives it.

    The result is a function with the same code and name, so that a call costs nothing more.

    Raises:
        ConverterSignatureError: The converter is no plain function, or has none or several such parameters.
    """
    code: Any = getattr(converter, "__code__", None)
    count = 0 if code is None or hasattr(converter, "__wrapped__") else code.co_kwonlyargcount
    if count != 1:
        raise ConverterSignatureError(
            f"The converter {qualified_function(converter)} is registered with a table, whose values go to its "
            f"keyword-only parameter, and it has {count} of these. Write `def convert(ctx, self, *, value)`."
        )
    function: Any = converter
    copy = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = {code.co_varnames[code.co_argcount]: value}
    copy.__doc__, copy.__qualname__ = function.__doc__, function.__qualname__
    copy.__annotations__, copy.__module__ = function.__annotations__, function.__module__
    return copy


def looks_like_converter(value: object) -> bool:
    """Returns whether a function is of a converter's form, as one that a decorator was given in place of an op."""
    return isinstance(value, FunctionType) and _parameter_names(value)[:1] in (("ctx",), ("net",))


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


def qualified_function(function: Callable[..., Any] | str) -> str:
    """Returns where a function is: ``"module:function"``."""
    if isinstance(function, str):
        return function
    function = inspect.unwrap(function)
    function = getattr(function, "func", function)  # functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or 'builtins'}:{name}"
