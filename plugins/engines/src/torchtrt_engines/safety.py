"""Checks that a program in a file is data: PyTorch's reader evaluates some of its strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from torchtrt.errors import UnreadableFileError
from torchtrt_engines.expressions import KINDS

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|")
_SYMBOL = re.compile(r"(s|u|z|f|zf|zuf)[0-9]+")
_FUNCTIONS = {"Float", "Integer", "Piecewise", "Rational", "RoundDecimal", "Symbol", *KINDS} | {
    *("IsNonOverlappingAndDenseIndicator", "true", "false", "True", "False", "int_oo", "oo"),
}
_NODES = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.keyword, ast.Tuple),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def check_program(data: Any) -> None:
    """Checks the program of a ``.pt2`` file before PyTorch reads it.

    SymPy evaluates what PyTorch gives it to parse as Python, and names become part of code that FX writes.

    Raises:
        UnreadableFileError: A string is neither arithmetic nor a name.
    """
    for key, value in _strings(data):
        if key == "expr_str" and not _is_arithmetic(value):
            raise _refused("a size", value)
        if key == "name" and not _NAME.fullmatch(value):
            raise _refused("a name", value)


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


def _is_arithmetic(text: str) -> bool:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.Name) and not (node.id in _FUNCTIONS or _SYMBOL.fullmatch(node.id)):
            return False
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            return False
        if isinstance(node, ast.Constant) and not (
            isinstance(node.value, (bool, int, float))
            or (isinstance(node.value, str) and _SYMBOL.fullmatch(node.value))  # Symbol('s77')
        ):
            return False
    return True
