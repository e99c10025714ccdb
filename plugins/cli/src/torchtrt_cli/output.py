"""How answers are printed: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_stream: ContextVar[TextIO | None] = ContextVar("torchtrt_answers", default=None)


@contextmanager
def answers_to(stream: TextIO) -> Iterator[None]:
    """Prints answers to a stream in a ``with`` block, wherever standard output goes."""
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


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


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Table | str:
    """Returns a table, its integers aligned to the right, or as text where it would be too wide."""
    made = Table(title=Text(title), title_justify="left")
    for index, heading in enumerate(headings):
        numeric = bool(rows) and all(
            isinstance(row[index], int) or row[index] == "-" for row in rows
        )
        made.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # Text, because a reason or a name may look like rich's markup.
        made.add_row(*(Text(str(cell)) for cell in row))
    out = console()
    if Measurement.get(out, out.options.update(max_width=10_000), made).minimum <= out.width:
        return made
    cells = [
        zip(headings, row, strict=True) for row in rows
    ]  # each on a line, so that no name breaks
    texts = ["\n".join(f"  {name}: {cell}" for name, cell in row if cell != "") for row in cells]
    return "\n\n".join((title, *texts, ""))
