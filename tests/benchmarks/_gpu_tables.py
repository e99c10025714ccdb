"""The tables of a run of ``gpu.py``: of times, and of what compiling took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tests.benchmarks._measure import circumstances
from tests.benchmarks.published import MODELS

COLUMNS = {
    "eager": "eager",
    "eager_graph": "eager, graph",
    "compiled": "`torch.compile`",
    "reduced": "`torch.compile` reduce-overhead",
    "onnx": "ONNX parser, graph",
    "ours": "ours",
    "ours_graph": "ours, graph",
    "tuned": "ours, tuned",
}
LEVEL = 1.01
"""What takes at most so many times as long as the fastest is as fast."""
WRONG = 0.05
"""The relative error beyond which an engine computes something else."""


def collect(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns what was measured of each model."""
    rows: dict[str, dict[str, Any]] = {}
    for line in (folder / "results.jsonl").read_text().splitlines():
        entry = json.loads(line)
        _, _, label = entry["name"].partition(":")
        rows.setdefault(label, {}).update(entry["answer"])
    order = [f"{model.name}, batch {batch}" for model in MODELS.values() for batch in model.batches]
    return {label: rows[label] for label in order if label in rows}


def table(rows: Mapping[str, dict[str, Any]]) -> str:
    """Returns the table of all columns, the fastest of each row in bold."""
    lines = _head("model", *COLUMNS.values(), "relative error")
    for label, row in rows.items():
        right = [
            column
            for column in COLUMNS
            if column in row and not (column == "onnx" and row["onnx_error"] > WRONG)
        ]
        best = min((row[column][0] for column in right), default=0.0)
        cells = []
        for column in COLUMNS:
            if column not in row:
                cells.append("-")
                continue
            median, low, high = row[column]
            text = f"{median:#.3g}"
            if column in right and median <= LEVEL * best:
                text = f"**{text}**"
            text += f" ({low:#.3g} to {high:#.3g})" if high > 1.1 * low else ""
            cells.append(text if column in right else f"{text}, with wrong values")
        cells.append(f"{row['error']:.1e}" if "error" in row else "-")
        lines.append(_row(label, *cells))
    return "\n".join(lines)


def stages(rows: Mapping[str, dict[str, Any]]) -> str:
    """Returns the table of the seconds that each stage of compiling took, and of the size of what came of it."""
    compiled = {label: row for label, row in rows.items() if "stages" in row}
    seconds = [row["stages"] for row in compiled.values()]
    names = [name for name in dict.fromkeys(chain(*seconds)) if name != "exporting"]  # done before
    lines = _head("model", *names, "engine")
    for label, row in compiled.items():
        seconds = (f"{row['stages'].get(name, 0):.2f} s" for name in names)
        lines.append(_row(label, *seconds, f"{row['plan']:.0f} MiB"))
    return "\n".join(lines)


def _head(*names: str) -> list[str]:
    return [_row(*names), "|---" * len(names) + "|"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def section(rows: Mapping[str, dict[str, Any]]) -> str:
    """Returns the part of ``docs/benchmarks.md`` about a run."""
    positions = sorted({row["on"] for row in rows.values() if "on" in row})
    return f"""{circumstances()} {"; ".join(positions)}.

Milliseconds a call, medians of eleven rounds, with the lowest and the highest where these are a tenth apart; bold is
the fastest of a row, and what is within 1 % of it. *Graph* is a CUDA graph, ours by `cuda_graphs=True` with a result
held until the next is there, as in a loop; *tuned* is `tune=True` and `cuda_graphs="overwrite"`.

{table(rows)}

What compiling ours took, and how large the engine is:

{stages(rows)}
"""
