"""Checks that a program in a file is data: PyTorch's reader evaluates some of its strings."""

from __future__ import annotations

import ast
import builtins
import enum
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from torchtrt.errors import UnreadableFileError
from torchtrt_runtime.serialization.number_sizes import (
    SYMBOL_BITS,
    bits_of_number,
    bits_of_result,
)
from torchtrt_runtime.serialization.sympy_json import KINDS

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|")
_OP = re.compile(r"torch\.ops(\.\w+)+")
_SYMBOL = re.compile(r"(s|u|z|f|zf|zuf)[0-9]+")
_FUNCTIONS = {"Float", "Integer", "Piecewise", "Rational", "RoundDecimal", "Symbol", *KINDS} | {
    *("IsNonOverlappingAndDenseIndicator", "true", "false", "True", "False", "int_oo", "oo"),
}


def check_program(data: Any) -> None:
    """Checks the program of a ``.pt2`` file before PyTorch reads it.

    SymPy evaluates what PyTorch gives it to parse as Python, and names become part of code that FX writes.

    Raises:
        UnreadableFileError: A string is neither arithmetic nor an op nor a name, or a number is too large.
    """
    for key, value in _strings(data):
        if key == "expr_str":
            _check_arithmetic(value)
        if key == "as_operator" and not _OP.fullmatch(value):
            raise _refused("an op", value)
        if key == "name" and not _NAME.fullmatch(value):
            raise _refused("a name", value)
        if key in ("in_spec", "out_spec"):
            check_tree(value)


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
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found


def _is_imported_enum(name: str) -> bool:
    found = imported(name)
    return isinstance(found, type) and issubclass(found, enum.Enum)


def _is_builtin_type(factory: dict[str, Any]) -> bool:
    name = factory.get("default_factory_name")
    return factory["default_factory_module"] == "builtins" and isinstance(
        vars(builtins).get(str(name)), type
    )


def _refused(what: str, value: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"The file has {value[:100]!r} for {what}, which is code. It is not what torchtrt.save writes."
    )


def _strings(data: Any) -> Iterator[tuple[str, str]]:
    """Yields every string under the key that it has."""
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((key, each) for each in value)
        elif isinstance(value, str):
            yield key, value


def _check_arithmetic(text: str) -> None:
    """Checks that text is arithmetic on symbols and numbers of usual sizes, which is safe to evaluate.

    Raises:
        UnreadableFileError: It is not.
    """
    try:
        _check_node(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, UnreadableFileError):
            raise
        raise _refused("a size", text) from error


def _check_node(node: ast.AST) -> int:
    """Returns how many bits the number of an expression can have.

    Raises:
        ValueError: It is no arithmetic, or the number is too large.
    """
    match node:
        case ast.Name(id=name) if name in _FUNCTIONS or _SYMBOL.fullmatch(name):
            return SYMBOL_BITS
        case ast.Constant(value=bool() | int() | float() as value):
            return bits_of_number(value)
        case ast.Constant(value=str(value)) if _SYMBOL.fullmatch(value):  # Symbol('s77')
            return SYMBOL_BITS
        case ast.Call(func=ast.Name(id=name) as function, args=arguments, keywords=keywords):
            _check_node(function)
            arguments = [*arguments, *(each.value for each in keywords)]
            return bits_of_result(name, map(_check_node, arguments))
        case ast.BinOp(left=left, op=operator, right=right):
            name = type(operator).__name__
            return bits_of_result(name, (_check_node(left), _check_node(right)))
        case ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.Tuple():
            operands = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
            return bits_of_result(type(node).__name__, map(_check_node, operands))
    raise ValueError(type(node).__name__)
