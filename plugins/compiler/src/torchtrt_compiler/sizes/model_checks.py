"""Finds the lines of a model that only check sizes: the model itself refuses what such a check refuses."""

from __future__ import annotations

import ast
import functools
import linecache
import re


def is_check(line: str) -> bool:
    """Returns whether a line of a model asks about sizes in an assertion, or in an ``if`` that raises an error.

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
    checks = (node for node in ast.walk(tree) if isinstance(node, (ast.Assert, ast.If)))
    tests = (node.test for node in checks if isinstance(node, ast.Assert) or _raises(node))
    lines = (range(test.lineno, (test.end_lineno or test.lineno) + 1) for test in tests)
    return frozenset().union(*lines)


def _raises(node: ast.If) -> bool:
    return any(isinstance(statement, ast.Raise) for statement in (*node.body, *node.orelse))
