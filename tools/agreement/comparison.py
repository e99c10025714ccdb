"""Compares a recording with the reference, and puts the figures into the docs."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tools.agreement import recording
from tools.agreement.cases import table
from tools.agreement.disagreements import REASONS
from tools.agreement.outcome import Outcome, difference

RECORDING = Path(__file__).with_name("observed_8_6_0.json")
DOCUMENT = Path(__file__).parents[2] / "docs" / "agreement.md"
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


def differences(recorded: Mapping[str, Outcome]) -> dict[str, dict[str, str | None]]:
    """Returns, for each family and each of its recorded cases, how the reference differs; None if it agrees."""
    by_family: dict[str, dict[str, str | None]] = {}
    jobs = min(8, os.cpu_count() or 1)
    parts = recording.record(list(table()), on_reference=True, jobs=jobs)
    for (family, cases), part in zip(table().items(), parts, strict=True):
        by_family[family] = {
            case.name: difference(case, part[case.name], recorded[case.name])
            for case in cases
            if case.name in recorded
        }
    return by_family


def compare(path: Path, write_docs: bool) -> int:
    """Prints agreement per family and each disagreement; returns 1 if one is not in the list of known ones."""
    by_family = differences(recording.read(path))
    figures = _figures(by_family)
    print(figures)
    differing = {
        name: how for by_case in by_family.values() for name, how in by_case.items() if how
    }
    for name, how in differing.items():
        print(f"{name}: the reference {how}{' (known)' if name in REASONS else ''}")
    if write_docs:
        _write(figures, differing)
    return int(not set(differing) <= set(REASONS))


def _figures(by_family: Mapping[str, Mapping[str, str | None]]) -> str:
    """Returns a table of how many cases of each family agree, as Markdown."""
    rows = ["| family | cases | agree |", "|---|---:|---:|"]
    for family, by_case in by_family.items():
        rows.append(
            f"| {family} | {len(by_case)} | {sum(how is None for how in by_case.values())} |"
        )
    every = [how for by_case in by_family.values() for how in by_case.values()]
    agreeing = sum(how is None for how in every)
    share = agreeing / len(every) if every else 0.0
    rows.append(f"| **all** | **{len(every)}** | **{agreeing} ({share:.1%})** |")
    unrecorded = sum(map(len, table().values())) - len(every)
    if unrecorded:
        rows += ["", f"{unrecorded} further cases of the table are not recorded yet."]
    return "\n".join(rows)


def _write(figures: str, differing: Mapping[str, str]) -> None:
    """Writes the figures and the networks that differ into the page."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    after = rest.split(_END)[1]
    reasons: dict[str, list[str]] = {}
    for name in differing:
        reasons.setdefault(REASONS.get(name, "Under work."), []).append(f"`{name}`")
    # No-break spaces keep names whole while their lines are wrapped.
    listed = [
        textwrap.fill(
            f"- {reason} {', '.join(name.replace(' ', _NO_BREAK) for name in names)}",
            width=120,
            subsequent_indent="  ",
            break_on_hyphens=False,
        ).replace(_NO_BREAK, " ")
        for reason, names in reasons.items()
    ]
    explanations = (
        "\n".join(["", "Where the reference differs, and why:", "", *listed]) if listed else ""
    )
    DOCUMENT.write_text(
        f"{before}{_BEGIN}\n{figures}\n{explanations}\n{_END}{after}".replace("\n\n\n", "\n\n"),
        encoding="utf-8",
    )
