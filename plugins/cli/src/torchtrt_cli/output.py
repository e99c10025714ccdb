"""How answers are printed: tables for users, JSON for programs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

if TYPE_CHECKING:
    from torchtrt_runtime.tables import Listing

_stream: ContextVar[TextIO | None] = ContextVar("torchtrt_answers", default=None)


@contextmanager
def answers_to(stream: TextIO) -> Iterator[None]:
    """Prints answers to a stream in a ``with`` block, wherever standard output goes."""
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


@contextmanager
def told_alone() -> Iterator[None]:
    """Shows warnings in a ``with`` block without the line of code that they come from."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def answers() -> TextIO:
    """Returns the stream that answers are printed to."""
    return _stream.get() or sys.stdout


def console() -> Console:
    """Returns a console for answers, wide when it is not a terminal so that lines stay whole."""
    stream = answers()
    width = None if stream.isatty() else 200
    return Console(file=stream, width=width, markup=False, highlight=False)


def print_json(value: Any) -> None:
    """Prints a value as JSON that diffs well: indented, one entry per line."""
    print(json.dumps(value, indent=2, ensure_ascii=False), file=answers())


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Listing:
    """Returns a table to print, which no width breaks a name of."""
    from torchtrt_runtime.tables import Listing  # of a distribution that may be missing

    return Listing(title, headings, rows)
