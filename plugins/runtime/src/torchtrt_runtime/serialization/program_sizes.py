"""The sizes in an exported program's file: SymPy's text, which PyTorch's reader evaluates.

Writer and reader take such a text for the data of ``torchtrt.expressions.data``. Text that is no such data is neither
written nor given to PyTorch.
"""

from __future__ import annotations

import ast
import re

from torchtrt.errors import UnreadableFileError
from torchtrt.expressions.data import FUNCTIONS, Size, check_size

SYMBOL = re.compile(r"(?:s|zf)[0-9]{1,9}|(?:u|zuf)[0-9]{1,6}")
"""PyTorch's names of sizes and of floats, and of those that depend on data: its reader counts up to the last ones."""
UNREAD = frozenset(
    name
    for name in FUNCTIONS
    if name.startswith(("OpaqueUnaryFn", "BitwiseFn")) or name in ("Piecewise", "ExprCondPair")
)
"""Functions that PyTorch's reader lacks in any version from 2.9 on: it would make unknown functions of their names."""


def size_of(text: str) -> Size:
    """Returns a text of a program as data, in which ``[name, facts]`` stands for a symbol.

    Raises:
        UnreadableFileError: It is no size, or nests too deep.
    """
    try:
        return _data_of(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise _refused(text) from error


def check_text(text: str) -> None:
    """Checks that PyTorch's reader makes of a text the size that it is, and executes no code.

    Raises:
        UnreadableFileError: It has something else than functions of sizes, or a number that is too large.
    """
    size = size_of(text)
    check_size(size)
    if has_unread(size):
        raise _refused(text)


def check_symbol(name: str) -> None:
    """Checks the name of a symbol.

    Raises:
        UnreadableFileError: PyTorch has no such expression.
    """
    if not SYMBOL.fullmatch(name):
        raise _refused(name)


def has_unread(size: Size) -> bool:
    """Returns whether a size has a function that PyTorch's reader lacks."""
    match size:
        case ["symbol", _]:
            return False
        case [str(name), *operands]:
            return name in UNREAD or any(map(has_unread, operands))
    return False


def _refused(text: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"The file has {text[:100]!r} for a size, which is code. It is not what torchtrt.save writes."
    )


def _data_of(node: ast.AST) -> Size:
    """Returns a part of a text as data, and raises a ``ValueError`` if it is no size."""
    match node:
        case ast.Name(id="true" | "false" as name):
            return ["bool", name == "true"]
        case ast.Call(func=ast.Name(id="Integer"), args=[number], keywords=[]):
            return _integer(number)
        case ast.Call(func=ast.Name(id="Rational"), args=[left, right], keywords=[]):
            return ["rational", _integer(left), _integer(right)]
        case ast.Call(
            func=ast.Name(id="Float"),
            args=[ast.Constant(value=str(digits))],
            keywords=[ast.keyword(arg="precision", value=ast.Constant(value=53))],
        ):
            return ["float", float(digits)]
        case ast.Call(
            func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=facts
        ):
            check_symbol(name)
            return ["symbol", [name, {str(fact.arg): _fact(fact.value) for fact in facts}]]
        case ast.Call(func=ast.Name(id=name), args=operands, keywords=[]) if name in FUNCTIONS:
            return [name, *map(_data_of, operands)]
    raise ValueError(type(node).__name__)


def _integer(node: ast.AST) -> int:
    value = ast.literal_eval(node)
    if type(value) is not int:
        raise ValueError(value)
    return value


def _fact(node: ast.AST) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, bool):
        raise ValueError(type(node).__name__)
    return node.value
