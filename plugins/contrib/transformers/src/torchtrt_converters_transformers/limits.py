"""Python branches that limit values which are infinite, as values that are chosen.

Models of transformers ask in float16 whether all values are finite, and clamp them if not:
``if hidden.dtype == torch.float16 and not torch.isfinite(hidden).all(): hidden = torch.clamp(hidden, ...)``.
``torch.export`` has no value to answer with. The clamped value is computed in any case, and chosen by the answer.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchtrt_converters_transformers._pack import pack

_QUESTIONS = {("isfinite", "all"): True, ("isinf", "any"): False}
"""The questions, and whether ``not`` precedes them."""


@pack.export_context
@contextlib.contextmanager
def with_chosen_limits() -> Iterator[None]:
    """Chooses between values and their limits in a program."""
    with _ChosenLimits():
        yield


class _ChosenLimits(TorchFunctionMode):
    """Answers the question of a branch that only clamps, and chooses behind the clamp."""

    def __init__(self) -> None:
        super().__init__()
        self._needed: torch.Tensor | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of PyTorch."""
        if func is torch.Tensor.__bool__:
            is_negated = _asks_for_limits(_asking())
            if is_negated is not None:
                (answer,) = args
                self._needed = answer.logical_not() if is_negated else answer
                return not is_negated
        result = func(*args, **(kwargs or {}))
        if func is torch.clamp and self._needed is not None:
            needed, self._needed = self._needed, None
            return torch.where(needed, result, args[0])
        return result


def _asking() -> FrameType:
    """Returns the frame that reads a value: other modes may be between it and ours."""
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename == __file__ or frame.f_code.co_name == "__torch_function__"
    ):
        frame = frame.f_back
    return frame


def _asks_for_limits(frame: FrameType) -> bool | None:
    """Returns whether the condition of a frame's branch is negated; None if the branch does more than clamp."""
    branch = next(
        (
            branch
            for branch in _branches(frame.f_code.co_filename)
            if branch.test.lineno <= frame.f_lineno <= (branch.test.end_lineno or 0)
        ),
        None,
    )
    return None if branch is None else _limited(branch)


@functools.cache
def _branches(file: str) -> list[ast.If]:
    """Returns the branches in a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.If)]


def _limited(branch: ast.If) -> bool | None:
    """Returns whether a branch that clamps what it tests has a negated condition; None for any other."""
    asked, *others = [branch.test]
    if isinstance(branch.test, ast.BoolOp) and isinstance(branch.test.op, ast.And):
        *others, asked = branch.test.values
    if branch.orelse or not all(map(_is_about_dtype, others)):
        return None
    negated = isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not)
    question = asked.operand if isinstance(asked, ast.UnaryOp) else asked
    match question:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Attribute(attr=kind), args=[ast.Name(id=name)]),
                attr=reduced,
            ),
            args=[],
        ) if _QUESTIONS.get((kind, reduced)) is negated and _clamps(branch.body, name):
            return negated
    return None


def _is_about_dtype(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Attribute)
        and test.left.attr == "dtype"
    )


def _clamps(body: list[ast.stmt], name: str) -> bool:
    """Returns whether statements compute a bound without tensors, and then clamp a variable with it."""
    *before, last = body
    if not all(
        isinstance(statement, ast.Assign) and "finfo" in ast.unparse(statement)
        for statement in before
    ):
        return False
    match last:
        case ast.Assign(
            targets=[ast.Name(id=target)],
            value=ast.Call(func=ast.Attribute(attr="clamp"), args=[ast.Name(id=source)]),
        ):
            return target == source == name
    return False
