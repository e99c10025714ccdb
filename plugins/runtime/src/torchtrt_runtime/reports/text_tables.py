"""Tables for users. Names stay whole, so that they can be searched."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Listing:
    """A table, its numbers aligned to the right; where it is too wide for whole names, each row's fields in lines."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yields whichever fits."""
        widths = self._widths(options.max_width - 3 * len(self.headings) - 1)  # without the lines
        yield Text(self._text(options.max_width)) if widths is None else self._table(widths)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Returns how wide the table is."""
        return Measurement.get(console, options, self._table([None] * len(self.headings)))

    def _widths(self, available: int) -> list[int] | None:
        """Returns the width of each column, at least that of its longest word; ``None`` where that does not fit."""
        columns = [
            [name, *map(_shown, cells)]
            for name, *cells in zip(self.headings, *self.rows, strict=True)
        ]
        widths = [
            max(cell_len(word) for cell in cells for word in (*cell.split(), ""))
            for cells in columns
        ]
        wanted = [max(map(cell_len, cells)) for cells in columns]
        spare = available - sum(widths)
        if spare < 0:
            return None
        # Columns that want little get all of it; the others share the rest.
        missing = sorted(
            (most - least, index)
            for index, (least, most) in enumerate(zip(widths, wanted, strict=True))
        )
        for position, (lacks, index) in enumerate(missing):
            extra = min(lacks, spare // (len(missing) - position))
            widths[index] += extra
            spare -= extra
        return widths

    def _table(self, widths: Sequence[int | None]) -> Table:
        """Returns the table as rich shows it, with numbers to the right."""
        made = Table(title=Text(self.title), title_justify="left")
        for index, heading in enumerate(self.headings):
            cells = [row[index] for row in self.rows]
            numeric = bool(cells) and all(
                cell == "-" or not isinstance(cell, str) for cell in cells
            )
            justify: Literal["left", "right"] = "right" if numeric else "left"
            made.add_column(heading, justify=justify, overflow="fold", width=widths[index])
        for row in self.rows:
            # Text, because a reason or a name may look like rich's markup.
            made.add_row(*(Text(_shown(cell)) for cell in row))
        return made

    def _text(self, width: int) -> str:
        rows = (_fields(zip(self.headings, row, strict=True), width) for row in self.rows)
        return "\n\n".join((self.title, *rows, ""))


def as_html(part: Listing | str) -> str:
    """Returns a table, or a line, as HTML."""
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    rows = [
        "".join(f"<td>{html.escape(_shown(cell))}</td>".replace("\n", "<br>") for cell in row)
        for row in part.rows
    ]
    headings = "".join(f"<th>{html.escape(heading)}</th>" for heading in part.headings)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<table>\n<caption>{html.escape(part.title)}</caption>\n"
        f"<thead><tr>{headings}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )


def _shown(cell: object) -> str:
    return f"{cell:,.1f}" if isinstance(cell, float) else str(cell)


def _fields(row: Iterable[tuple[str, object]], width: int) -> str:
    """Returns a row as ``name: cell``, as many on a line as fit; what is longer is wrapped between words.

    A cell without an entry is left out, and a line of a cell stays a line.
    """
    lines: list[str] = []
    is_open = False
    for name, cell in row:
        field = f"{name}: {_shown(cell)}"
        if cell in ("", "-"):
            continue
        if is_open and "\n" not in field and len(lines[-1]) + 3 + len(field) <= width:
            lines[-1] += f"   {field}"
            continue
        first, *others = field.splitlines()
        wrapped = [
            part
            for indent, line in (("  ", first), *(("      ", line.strip()) for line in others))
            for part in textwrap.wrap(
                line, width, initial_indent=indent, subsequent_indent="      ",
                break_long_words=False, break_on_hyphens=False,
            )
        ]  # fmt: skip
        lines += wrapped
        is_open = len(wrapped) == 1
    return "\n".join(lines)
