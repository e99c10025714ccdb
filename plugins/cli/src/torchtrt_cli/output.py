"""How answers are printed: tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def console() -> Console:
    """Returns a console on standard output, wide when it is not a terminal so that lines stay whole."""
    return Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)


def add_command(
    commands: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Adds a command with the flags that all have, and returns its parser."""
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print JSON, the same for same packs")
    use = "import a library first, for the ops that it registers; may be given several times"
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="LIBRARY", help=use
    )
    parser.set_defaults(run=run)
    return parser


def print_json(value: Any) -> None:
    """Prints a value as JSON that diffs well: indented, one entry per line."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


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
