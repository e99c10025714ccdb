"""Writes docs/ops.md: every op, whose converter it has and what that rejects. ``python -m tools.ops_page``."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from torchtrt.contract import RejectIf
from torchtrt.registry import DYNAMO_CONVERTERS, Candidate
from torchtrt.targets import qualified_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "ops.md"
INTRODUCTION = """# Every op

What the first-party packs convert, from the registry itself (`python -m tools.ops_page`). Several converters
of an op are in the order in which they are asked. A converter rejects a node for the reasons in the last
column, besides dtypes, ranks and empty tensors that TensorRT does not have; a rejected node is decomposed
if all of its parts convert, and else PyTorch runs it. [Coverage](coverage.md) says how each op does with
PyTorch's own samples. Every converter supports dynamic shapes.
"""


def page() -> str:
    """Returns the page as the installed packs have it."""
    parts = [
        INTRODUCTION,
        f"## Converters\n\n| op | pack | converter | rejects |\n|---|---|---|---|\n{_lines(_converter_rows())}\n",
        f"## Decompositions\n\n| op | pack | function |\n|---|---|---|\n{_lines(_decomposition_rows())}\n",
    ]
    return "\n".join(parts)


def _lines(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows
    )


def _converter_rows() -> Iterator[tuple[str, ...]]:
    for target in sorted(DYNAMO_CONVERTERS.unique_targets(), key=qualified_name):
        for candidate in DYNAMO_CONVERTERS.candidates(target):
            high = " (HIGH)" if candidate.priority.name == "HIGH" else ""
            yield (
                f"`{qualified_name(target)}`",
                candidate.pack.name + high,
                _link(candidate.converter),
                "; ".join(_reasons(candidate)),
            )


def _decomposition_rows() -> Iterator[tuple[str, ...]]:
    found = DYNAMO_CONVERTERS.decompositions()
    for target in sorted(found, key=qualified_name):
        function, pack = found[target]
        yield f"`{qualified_name(target)}`", pack.name, _link(function)


def _link(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)
    file = Path(inspect.getfile(function)).resolve().relative_to(ROOT)
    return f"[`{function.__name__.strip('_')}`](../{file})"


def _reasons(candidate: Candidate) -> Iterator[str]:
    for capability in candidate.support.requires:
        yield f"a TensorRT without {capability.title}"
    validator = candidate.support.capability_validator
    for check in validator.checks if isinstance(validator, RejectIf) else (validator,):
        if not check.__module__.endswith(
            "aten_core.impl.checks"
        ):  # what the introduction says of all
            yield from _messages(check)


def _messages(check: Callable[..., Any]) -> Iterator[str]:
    """Yields what a check can return: the texts in its source, with an ellipsis for what it fills in."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(check)))
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of a call
        return
    documentation = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    for node in ast.walk(tree):
        values = []
        if isinstance(node, ast.Return) and node.value is not None:
            values = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reject":
            values = list(node.args)
        for value in values:
            for text in _texts(value):
                if text not in documentation and " " in text:
                    yield text


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in value.values
        )
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _texts(part)


if __name__ == "__main__":
    PAGE.write_text(page())
