"""The report of a compilation as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchtrt.report import CompilationReport, TorchOp
from torchtrt_cli.advice import advice


def tables_of(report: CompilationReport) -> Iterator[RenderableType]:
    """Yields all that a report tells, in the order in which it is of interest."""
    yield converter_table(report)
    yield block_table(report)
    if report.passes:
        yield f"Passes over the graph: {', '.join(report.passes)}"
    yield from map(str, report.narrowed)
    yield from report.splits
    if report.in_torch:
        yield torch_table(report)
    if report.seconds:
        yield stage_table(report.seconds)


def converter_table(report: CompilationReport) -> Table:
    """Returns a table of which pack converted which ops, and in which dtypes they compute."""
    rows = (
        (
            row.op,
            row.count,
            ", ".join(row.dtypes),
            row.pack,
            row.converter.partition(".")[2] or row.converter,
        )
        for row in report.converted
    )
    headings = ("op", "nodes", "dtype", "pack", "converter")
    return _table(f"Converted for {report.tensorrt}", headings, rows)


def block_table(report: CompilationReport) -> Table:
    """Returns a table of the engines."""
    rows = (
        (block.name, block.nodes, block.layers, block.plan_bytes / 1e6) for block in report.blocks
    )
    return _table("Engines", ("block", "nodes", "layers", "MB"), rows)


def torch_table(report: CompilationReport) -> Table:
    """Returns a table of what stayed in PyTorch, equal reasons together, and what to do about it."""
    rows = ((each.op, count, each.reason, advice(each)) for each, count in torch_groups(report))
    return _table("In PyTorch", ("op", "nodes", "reason", "what to do"), rows)


def torch_groups(report: CompilationReport) -> list[tuple[TorchOp, int]]:
    """Returns for each op and reason one of the nodes that stayed in PyTorch and how many did, the most first."""
    groups = Counter((entry.op, entry.reason) for entry in report.in_torch)
    one = {(entry.op, entry.reason): entry for entry in report.in_torch}
    return [(one[group], count) for group, count in groups.most_common()]


def stage_table(seconds: Mapping[str, float]) -> Table:
    """Returns a table of how long each stage took."""
    rows = ((stage, duration * 1e3) for stage, duration in seconds.items())
    return _table("Time", ("stage", "ms"), rows)


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Returns a table, its numbers aligned to the right."""
    made = Table(title=Text(title), title_justify="left")
    cells = list(rows)
    for place, heading in enumerate(headings):
        is_number = bool(cells) and not isinstance(cells[0][place], str)
        made.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        # Text, because a reason or a name may look like rich's markup.
        texts = (f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row)
        made.add_row(*map(Text, texts))
    return made
