"""The names and the parameters of functions that packs register.

``inspect.signature`` takes up to a hundred times as long as reading a code object, which nearly all functions have.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeGuard


def qualified_function(function: Callable[..., Any]) -> str:
    """Returns where a function is: ``"module:function"``."""
    function = inspect.unwrap(function)
    function = getattr(function, "func", function)  # functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or 'builtins'}:{name}"


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function behind decorators, or behind a ``functools.partial`` with keywords alone."""
    function = inspect.unwrap(function)
    return function.func if _has_keywords_alone(function) else function


def _has_keywords_alone(function: Callable[..., Any]) -> TypeGuard[functools.partial[Any]]:
    return isinstance(function, functools.partial) and not function.args


def with_value(function: Callable[..., Any], name: str, value: Any) -> Callable[..., Any]:
    """Returns a function with a value for one of its parameters, under its own name."""
    bound = functools.update_wrapper(functools.partial(function, **{name: value}), function)
    del bound.__wrapped__  # whose signature has the parameter still
    return bound


def positional_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of a function's positional parameters."""
    function = _plain(function)
    code = getattr(function, "__code__", None)
    if code is not None and not inspect.ismethod(function):
        return tuple(code.co_varnames[: code.co_argcount])
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)


def is_variadic(function: Callable[..., Any]) -> bool:
    """Returns whether a function takes ``*args`` or ``**kwargs``, or may do so."""
    code = getattr(_plain(function), "__code__", None)
    return code is None or bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))


def takes_exactly(count: int, function: Callable[..., Any]) -> bool:
    """Returns whether a function surely takes this number of arguments: it is plain, with no defaults."""
    code = getattr(function, "__code__", None)
    return (
        code is not None
        and code.co_argcount == count
        and not code.co_kwonlyargcount
        and not code.co_flags & inspect.CO_VARARGS
        and not function.__defaults__
        and not inspect.ismethod(function)
        and not hasattr(function, "__wrapped__")
    )


class Keywords(NamedTuple):
    """The parameters of a function but the first, which may be given by name.

    Attributes:
        required: The names of those without a default.
        optional: The names of those with a default.
        takes_rest: Whether ``**`` collects further ones.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_rest: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all."""
        return (*self.required, *self.optional)


@functools.lru_cache(maxsize=256)
def keywords_of(function: Callable[..., Any]) -> Keywords:
    """Returns the parameters of a function but the first."""
    if _has_keywords_alone(function):
        return _without(keywords_of(function.func), function.keywords)
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return _keywords_of_signature(inspect.signature(function))
    positional = code.co_varnames[1 : code.co_argcount]
    required_count = len(positional) - len(getattr(function, "__defaults__", None) or ())
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    with_default = getattr(function, "__kwdefaults__", None) or {}
    return Keywords(
        required=(
            *positional[:required_count],
            *(name for name in keyword_only if name not in with_default),
        ),
        optional=(*positional[required_count:], *with_default),
        takes_rest=bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )


def _without(keywords: Keywords, names: Collection[str]) -> Keywords:
    required, optional = (
        tuple(name for name in group if name not in names)
        for group in (keywords.required, keywords.optional)
    )
    return Keywords(required, optional, keywords.takes_rest)


def _keywords_of_signature(signature: inspect.Signature) -> Keywords:
    """Returns what ``keywords_of`` returns, for a function whose own code does not show its parameters."""
    parameters = list(signature.parameters.values())[1:]
    rest = [
        parameter for parameter in parameters if parameter.kind is inspect.Parameter.VAR_KEYWORD
    ]
    required = [
        parameter for parameter in parameters if parameter.default is inspect.Parameter.empty
    ]
    return Keywords(
        required=tuple(parameter.name for parameter in required if parameter not in rest),
        optional=tuple(parameter.name for parameter in parameters if parameter not in required),
        takes_rest=bool(rest),
    )


_CONSTANT = re.compile(r"(?<![\w.])(torch\.)?Tensor\b|\bOperand\b")
"""An annotation with ``torch.Tensor``, as written or as Python shows it. ``Operand`` is one of the names for it."""


@functools.lru_cache(maxsize=4096)
def network_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Returns the parameters of a converter, but the first, whose annotation does not have ``torch.Tensor``."""
    plain = _plain(function)
    try:
        hints = typing.get_type_hints(plain)
    except Exception:  # a name that only type checkers import
        hints = getattr(plain, "__annotations__", {})
    names = keywords_of(function).names
    return frozenset(name for name in names if not _CONSTANT.search(str(hints.get(name))))
