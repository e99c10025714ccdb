"""The names and the parameters of functions that packs register.

``inspect.signature`` takes up to a hundred times as long as reading a code object, which nearly all functions have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def qualified_function(function: Callable[..., Any] | str) -> str:
    """Returns where a function is: ``"module:function"``."""
    if isinstance(function, str):
        return function
    function = inspect.unwrap(function)
    function = getattr(function, "func", function)  # functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or 'builtins'}:{name}"


def positional_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of a function's positional parameters."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is not None and not inspect.ismethod(function):
        return tuple(code.co_varnames[: code.co_argcount])
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(each.name for each in parameters if each.kind in positional)


def is_variadic(function: Callable[..., Any]) -> bool:
    """Returns whether a function takes ``*args`` or ``**kwargs``, or may do so."""
    code = getattr(inspect.unwrap(function), "__code__", None)
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


@functools.lru_cache(maxsize=256)
def keywords_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Returns the names of parameters without and with a default, but the first, and whether there is a ``**``."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        parameters = list(inspect.signature(function).parameters.values())[1:]
        rest = [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
        required = [each for each in parameters if each.default is inspect.Parameter.empty]
        return (
            tuple(each.name for each in required if each not in rest),
            tuple(each.name for each in parameters if each not in required),
            bool(rest),
        )
    names = code.co_varnames[1 : code.co_argcount]
    count = len(names) - len(getattr(function, "__defaults__", None) or ())
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    given = getattr(function, "__kwdefaults__", None) or {}
    return (
        (*names[:count], *(name for name in keywords if name not in given)),
        (*names[count:], *given),
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )
