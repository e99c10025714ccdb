"""The report of a verification: ``report.json`` for programs, ``report.md`` for people."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtrt_testing.verification.findings import COMPUTED, KINDS, Finding, disagrees
from torchtrt_testing.verification.items import Item
from torchtrt_testing.verification.workers import Row

FORMAT = 1
"""The number of the form of ``report.json``."""
JSON, PAGE = "report.json", "report.md"


@dataclass(frozen=True)
class VerificationReport:
    """The outcome of a verification.

    A row has its ``item``, ``pack``, ``ops`` and ``dtype``. The ``outcome`` has a ``message`` and ``seconds``.
    ``disagrees`` is a bool. ``reference`` is the outcome on the reference, unless that is the TensorRT in use.

    Attributes:
        machine: What outcomes depend on: versions, hardware, packs and settings.
        rows: A row for each item that ran.
        left: The IDs of the items that did not run.
        missing: The packs whose cases cannot be imported, with the reason.
        selection: The options that chose the items; empty for all of them.
        repeat: The command that repeats one case, without its ID.
        stopped: Why items did not run: ``"interrupted"``, ``"time limit"``, or nothing.
    """

    machine: Mapping[str, Any]
    rows: Sequence[Row]
    left: Sequence[str]
    missing: Mapping[str, str]
    selection: str
    repeat: str
    stopped: str = ""

    @property
    def disagreements(self) -> list[Row]:
        """The rows to look at."""
        return [row for row in self.rows if row["disagrees"]]

    @property
    def is_right(self) -> bool:
        """Whether nothing disagrees, and engines computed something."""
        return not self.disagreements and any(row["outcome"] in COMPUTED for row in self.rows)

    def counts(self) -> dict[str, Counter[str]]:
        """Returns how many items of each part had which outcome."""
        counts: dict[str, Counter[str]] = {}
        for row in self.rows:
            counts.setdefault(row["item"].partition(":")[0], Counter())[row["outcome"]] += 1
        return counts

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain data."""
        return {
            "format": FORMAT,
            "machine": dict(self.machine),
            "counts": {part: dict(counts) for part, counts in sorted(self.counts().items())},
            "selection": self.selection,
            "missing": dict(self.missing),
            "not run": len(self.left),
            "stopped": self.stopped,
            "disagreements": [{**row, "repeat": self.command(row)} for row in self.disagreements],
            "outcomes": {row["item"]: row["outcome"] for row in self.rows},
        }

    def command(self, row: Row) -> str:
        """Returns the command that repeats one case."""
        return f"{self.repeat} --case {shlex.quote(row['item'])}"

    def write(self, folder: Path) -> None:
        """Writes both files into a folder."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False)
        (folder / JSON).write_text(text + "\n", encoding="utf-8")
        (folder / PAGE).write_text(self.to_markdown(), encoding="utf-8")

    def to_markdown(self) -> str:
        """Returns the page."""
        machine = {
            name: value
            for name, value in self.machine.items()
            if value and not isinstance(value, Mapping)
        }
        for name in ("settings", "packs"):
            pairs = self.machine[name].items()
            machine[name] = ", ".join(f"{key} {value}" for key, value in pairs) or "none"
        lines = [f"# Verification of {self.machine['tensorrt']}", "", self.summary(), ""]
        lines += ["| | |", "|---|---|"]
        lines += [f"| {name} | {_cell(value)} |" for name, value in machine.items()]
        lines += ["", *self._count_lines()]
        if self.missing:
            lines += ["", "Cases that cannot be imported:", ""]
            lines += [f"- {pack}: {_cell(reason)}" for pack, reason in self.missing.items()]
        lines += ["", f"## Disagreements ({len(self.disagreements)})", ""]
        for row in self.disagreements:
            lines += [*self._lines_of(row), ""]
        return "\n".join(lines).rstrip() + "\n"

    def summary(self) -> str:
        """Returns a sentence about the whole."""
        ran, wrong = len(self.rows), len(self.disagreements)
        among = f" with {self.selection}" if self.selection else ""
        text = f"{ran} of {ran + len(self.left)} cases{among} ran, and {wrong} of them disagree."
        return f"{text} The run was stopped: {self.stopped}." if self.stopped else text

    def _count_lines(self) -> list[str]:
        counts = self.counts()
        kinds = [kind for kind in KINDS if any(count[kind] for count in counts.values())]
        lines = [f"| part | {' | '.join(('cases', *kinds))} |", "|---" * (len(kinds) + 2) + "|"]
        for part, outcomes in sorted(counts.items()):
            numbers = (sum(outcomes.values()), *(outcomes[kind] for kind in kinds))
            lines.append(f"| {part} | {' | '.join(map(str, numbers))} |")
        return lines

    def _lines_of(self, row: Row) -> list[str]:
        lines = [f"### `{row['item']}`", ""]
        lines += [f"- {', '.join(row['ops'])}, {row['dtype']}, {row['pack'] or 'several packs'}"]
        lines += [f"- {self.machine['tensorrt']}: {_cell(finding_of(row))}"]
        if "reference" in row:
            lines += [f"- {self.machine['reference']}: {_cell(finding_of(row['reference']))}"]
        return [*lines, f"- `{self.command(row)}`"]


def finding_of(row: Row) -> Finding:
    """Returns the outcome in a row."""
    return Finding(row["outcome"], row.get("message", ""))


def described(row: Row, item: Item) -> Row:
    """Returns a row of a worker with the pack, the ops and the dtype of its item, and whether it is to be reported."""
    reference = finding_of(row["reference"]) if "reference" in row else None
    is_wrong = disagrees(finding_of(row), reference)
    return {
        **row, "disagrees": is_wrong, "pack": item.pack, "ops": list(item.ops), "dtype": item.dtype
    }  # fmt: skip


def _cell(value: object) -> str:
    """Returns a text for a line of a page: one line, and nothing that Markdown reads as a column or as HTML."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
