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
        return node.test if _decides(node.test, False) else None
    if isinstance(node, ast.If):
        for branch, outcome in ((node.body, True), (node.orelse, False)):
            if any(isinstance(part, ast.Raise) for part in branch):
                return node.test if _decides(node.test, outcome) else None
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch._check"):
        return node if all(_decides(argument, False) for argument in node.args) else None
    return None


def _decides(condition: ast.expr, outcome: bool) -> bool:
    """Returns whether each part of a condition decides alone that it has an outcome: each of ``and`` that it is false.

    A guard is about one part. In ``assert n > 3 or m > 1``, the model takes what the first one refuses.
    """
    match condition:
        case ast.BoolOp(op=kind, values=parts):
            is_decided = isinstance(kind, ast.Or) is outcome
            return is_decided and all(_decides(part, outcome) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return _decides(part, not outcome)
        case ast.Compare(ops=[ast.In()]):  # equal to one of several
            return outcome
        case ast.Compare(ops=[ast.NotIn()]):
            return not outcome
        case ast.Compare(ops=[_, _, *_]):
            return not outcome
        case ast.Call(func=ast.Name(id="any" | "all" as name)):
            return (name == "any") is outcome
    return not isinstance(condition, ast.IfExp)
