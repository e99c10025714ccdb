"""Checks that a program in a file is data: PyTorch's reader evaluates some of its strings."""

from __future__ import annotations

import builtins
import enum
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchtrt.errors import UnreadableFileError
from torchtrt_runtime.serialization.program_sizes import check_symbol, check_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|")
_OP = re.compile(r"torch\.ops(\.\w+)+")


def check_program(data: Any) -> None:
    """Checks the program of a ``.pt2`` file before PyTorch reads it.

    SymPy evaluates what PyTorch gives it to parse as Python, and names become part of code that FX writes.

    Raises:
        UnreadableFileError: Something is neither a size nor an op nor a name, or a number is too large.
    """
    checked = set()
    for key, value in _items(data):
        if key == "range_constraints":
            for name in value:
                check_symbol(name)
        if key not in _CHECKS or value is None:
            continue
        if not isinstance(value, str):
            raise _refused("a text", repr(value))
        if (key, value) not in checked:
            checked.add((key, value))
            _CHECKS[key](value)


def check_tree(text: str) -> None:
    """Checks how inputs or outputs nest, as PyTorch writes it: its reader imports modules that the text names.

    Raises:
        UnreadableFileError: A dictionary has a key, or a default, that would be imported.
    """
    waiting: list[Any] = [text]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            try:
                inner = json.loads(value)
            except (ValueError, RecursionError):
                continue
            waiting += [inner] if isinstance(inner, (dict, list)) else []
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            if "__enum__" in value and not _is_imported_enum(str(value.get("fqn"))):
                raise UnreadableFileError(
                    f"The model takes or returns a dictionary with a key of {value.get('fqn')!r}, which is not known "
                    "here. Import its module before loading."
                )
            if "default_factory_module" in value and not _is_builtin_type(value):
                message = "A container in the file would import a module, which loading never does."
                raise UnreadableFileError(message)


def imported(name: str) -> Any:
    """Returns what ``"module:path"`` names in a module that is imported, or None."""
    module, _, path = name.partition(":")
    target: Any = sys.modules.get(module)
    for part in path.split("."):
        target = vars(target).get(part) if hasattr(target, "__dict__") else None
    return target


def _is_imported_enum(name: str) -> bool:
    class_ = imported(name)
    return isinstance(class_, type) and issubclass(class_, enum.Enum)


def _is_builtin_type(factory: dict[str, Any]) -> bool:
    name = factory.get("default_factory_name")
    return factory["default_factory_module"] == "builtins" and isinstance(
        vars(builtins).get(str(name)), type
    )


def _check_op(name: str) -> None:
    if not _OP.fullmatch(name):
        raise _refused("an op", name)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _refused("a name", name)


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "expr_str": check_text,
    "as_operator": _check_op,
    "name": _check_name,
    "in_spec": check_tree,
    "out_spec": check_tree,
}
"""The checks of texts, by their keys: PyTorch's reader evaluates them, or makes code of them."""


def _refused(what: str, value: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"The file has {value[:100]!r} for {what}, which is code. It is not what torchtrt.save writes."
    )


def _items(data: Any) -> Iterator[tuple[str, Any]]:
    """Yields every part of JSON but lists, under the key that it has."""
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, list):
            waiting.extend((key, part) for part in value)
            continue
        yield key, value
        if isinstance(value, dict):
            waiting.extend(value.items())
