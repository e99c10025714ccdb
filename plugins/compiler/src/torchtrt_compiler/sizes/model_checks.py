"""Finds the lines of a model that only check sizes: the model itself refuses what such a check refuses."""

from __future__ import annotations

import ast
import functools
import linecache
import re


def is_check(line: str) -> bool:
    """Returns whether a line of a model asks about sizes in an assertion, ``torch._check`` or an ``if`` that raises.

    Args:
        line: The line, as ``line_of`` returns it.
    """
    match = re.match(r'File "(.*)", line (\d+)', line)
    return match is not None and int(match[2]) in _lines_of_checks(match[1])


@functools.lru_cache(maxsize=64)
def _lines_of_checks(path: str) -> frozenset[int]:
    """Returns the numbers of the lines of a file that hold conditions of checks."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return frozenset()
    checks = filter(None, map(_checked, ast.walk(tree)))
    lines = (range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in checks)
    return frozenset().union(*lines)


def _checked(node: ast.AST) -> ast.expr | None:
    """Returns the condition that a node checks, or a call that checks one."""
    if isinstance(node, ast.Assert):
        return node.test
    if isinstance(node, ast.If):
        raises = any(isinstance(part, ast.Raise) for part in (*node.body, *node.orelse))
        return node.test if raises else None
    is_call = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch._check")
    return node if is_call else None  # type: ignore[return-value]
