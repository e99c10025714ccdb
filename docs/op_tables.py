"""Writes the tables of all ops, and of their coverage, into their pages, where the site is built."""

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
from torchtrt_cli.coverage import coverages, totals
from torchtrt_compiler.coverage import (
    LABELS,
    NOT_EXPORTABLE,
    Coverage,
    OpCoverage,
    count,
    share,
)

ROOT = Path(__file__).parents[1]
MARK = "<!-- tables -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the text of a page, with the tables in place of the mark."""
    tables = {"ops.md": op_tables, "coverage.md": coverage_tables}.get(
        page.file.src_path
    )
    return markdown if tables is None else markdown.replace(MARK, "\n".join(tables()))


def op_tables() -> Iterator[str]:
    """Yields the lines of the tables of converters and decompositions, as the installed packs have them."""
    yield "## Converters\n\n| op | pack | converter | rejects |\n|---|---|---|---|"
    yield from _lines(_converter_rows())
    yield "\n## Decompositions\n\n| op | pack | function |\n|---|---|---|"
    yield from _lines(_decomposition_rows())


def coverage_tables() -> Iterator[str]:
    """Yields the lines of the tables of coverage, from the files of the installed packs."""
    parts = list(coverages().values())
    merged = {name: op for part in parts for name, op in part.ops.items()}
    coverage = Coverage(
        parts[0].torch, parts[0].versions, dict(sorted(merged.items()))
    )
    yield f"PyTorch {coverage.torch}, {len(coverage.ops)} ops:"
    yield f"\n| TensorRT | share | {' | '.join(LABELS.values())} |"
    yield "|---|---:|" + "---:|" * len(LABELS)
    for version, letters in totals(coverage):
        yield f"| `{version}` | **{share(letters)}** | {' | '.join(map(str, count(letters).values()))} |"
    yield f"\n| op | samples | {' | '.join(coverage.versions)} | why not the others |"
    yield "|---|---:|" + "---:|" * len(coverage.versions) + "---|"
    yield from _lines(_coverage_row(name, op) for name, op in coverage.ops.items())


def _coverage_row(name: str, op: OpCoverage) -> tuple[str, ...]:
    """Returns an op's row: its name, the number of its samples, the share of each version, and the reasons."""
    letters = list(map(op.letters, range(len(next(iter(op.samples.values()), ())))))
    reasons = [reason for reason, _ in op.reason_counts()]
    not_exportable = letters[0].count(NOT_EXPORTABLE)
    if not_exportable:
        reasons.append(f"torch.export refuses {not_exportable}")
    return (
        f"`{name}`",
        str(len(letters[0])),
        *map(share, letters),
        "<br>".join(reasons),
    )


def _lines(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


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
    decompositions = DYNAMO_CONVERTERS.decompositions()
    for target in sorted(decompositions, key=qualified_name):
        function, pack = decompositions[target]
        yield f"`{qualified_name(target)}`", pack.name, _link(function)


def _link(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(getattr(function, "func", function))
    file = Path(inspect.getfile(function)).resolve().relative_to(ROOT)
    return f"[`{function.__name__.strip('_')}`](../{file})"


def _reasons(candidate: Candidate) -> Iterator[str]:
    """Yields why a node may be rejected: by a TensorRT without a capability, or by a check."""
    for capability in candidate.support.requires:
        yield f"a TensorRT without {capability.title}"
    validator = candidate.support.capability_validator
    for check in validator.checks if isinstance(validator, RejectIf) else (validator,):
        # The introduction describes the common checks.
        if check.__module__ not in (
            "torchtrt_blocks.checks",
            "torchtrt_blocks.registration",
        ):
            yield from _messages(check)


def _messages(check: Callable[..., Any]) -> Iterator[str]:
    """Yields what a check can return: the texts in its source, with an ellipsis for what it fills in."""
    source = textwrap.dedent(
        inspect.getsource(inspect.unwrap(getattr(check, "func", check)))
    )
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
    """Yields the constant texts that an expression can have, from both sides of a condition or of ``or``."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…"
            for part in value.values
        )
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _texts(part)
