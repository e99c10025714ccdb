"""The profile of a call as tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from torchtrt_runtime.reports.text_tables import Listing

SHOWN = 30
"""The maximum number of entries that are printed; ``--json`` has all."""


def tables_of(profile: Any, lines: Mapping[str, str] | None = None) -> Iterator[RenderableType]:
    """Yields the contents of a ``torchtrt_compiler.measuring.profiling.CallProfile``.

    Args:
        profile: The profile.
        lines: For nodes of the model's graph, the line of the model that made each.
    """
    yield Text(
        f"A call takes {profile.milliseconds:.3f} ms on {profile.device} with {profile.tensorrt} "
        f"(median of {profile.calls})."
    )
    if profile.has_inductor:
        yield Text("Inductor compiles what runs in PyTorch: its ops are measured as without.")
    parts = [entry for entry in profile.entries if entry.kind != "kernel"]
    total = sum(entry.milliseconds for entry in parts) or 1.0
    yield from _table("Where it goes", parts, total, lines or {})
    for engine_name, entries in itertools.groupby(
        sorted(
            (entry for entry in profile.entries if entry.kind == "kernel"),
            key=lambda entry: entry.runs_in,
        ),
        key=lambda entry: entry.runs_in,
    ):
        kernels = sorted(entries, key=lambda entry: -entry.milliseconds)
        of_all = sum(entry.milliseconds for entry in kernels) or 1.0
        yield from _table(f"Kernels of {engine_name}", kernels, of_all, {})


def _table(
    title: str, entries: list[Any], total: float, lines: Mapping[str, str]
) -> Iterator[RenderableType]:
    """Yields a table of the entries that took longest, and how many more there are."""
    headings = ("ms", "share", "runs", "engine", "layer, kernel or op", "line")
    rows: list[tuple[str, ...]] = [
        (
            f"{entry.milliseconds:.3f}",
            f"{entry.milliseconds / total:.0%}",
            str(entry.calls),
            entry.runs_in,
            entry.name,
            "; ".join(lines_of(entry.nodes, lines)),
        )
        for entry in entries[:SHOWN]
    ]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]  # type: ignore[assignment]
    yield Listing(title, headings, rows)
    if len(entries) > SHOWN:
        rest = sum(entry.milliseconds for entry in entries[SHOWN:])
        yield Text(
            f"{len(entries) - SHOWN} further take {rest:.3f} ms together; --json lists them."
        )


def lines_of(nodes: Iterable[str], lines: Mapping[str, str]) -> list[str]:
    """Returns the lines of the model that made some nodes, each line once."""
    return [line for line in dict.fromkeys(lines.get(node, "") for node in nodes) if line]
