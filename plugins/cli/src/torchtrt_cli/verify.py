"""``torchtrt verify``: everything with a known answer on the TensorRT in use, and a report of what disagrees."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchtrt.tensorrt.selection import describe
from torchtrt.testing import verify
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.settings import parse_settings

INTERRUPTED = 130
"""The exit status after Ctrl-C, as of other programs."""
_LINES = 20
"""How many lines of progress a run prints where no terminal shows a bar."""


def run(arguments: argparse.Namespace) -> int:
    """Verifies the TensorRT in use; returns 1 if something disagrees, or if no engine ran."""
    options = [word for text in arguments.set for word in ("--set", text)]
    options += [word for library in arguments.imports for word in ("--import", library)]
    chosen = {"parts": arguments.parts} if arguments.parts else {}
    print(f"Verifying {describe()}.", file=sys.stderr)
    with _Shown() as shown:
        report = verify(
            arguments.output,
            **chosen,
            packs=arguments.packs,
            ops=arguments.ops,
            cases=arguments.cases,
            workers=arguments.workers,
            time_limit=arguments.time_limit,
            case_time_limit=arguments.case_time_limit,
            settings=parse_settings(arguments.set),
            libraries=arguments.imports,
            options=options,
            progress=shown.advance,
        )
    if arguments.json:
        print_json(report.to_json())
    else:
        _show(report, arguments)
    if report.stopped == "interrupted":
        return INTERRUPTED
    return 0 if report.is_right else 1


def _show(report: Any, arguments: argparse.Namespace) -> None:
    """Prints the counts, the disagreements, and where the report is."""
    out = console()
    counts = report.counts()
    kinds = list(dict.fromkeys(kind for count in counts.values() for kind in count))
    rows = [
        (part, sum(outcomes.values()), *(outcomes[kind] for kind in kinds))
        for part, outcomes in sorted(counts.items())
    ]
    if rows:
        out.print(table(report.machine["tensorrt"], ("part", "cases", *kinds), rows))
    for row in report.disagreements:
        out.print(f"{row['item']}: {_outcome(row)}")
        if "reference" in row:
            out.print(f"    {report.machine['reference']}: {_outcome(row['reference'])}")
        out.print(f"    {report.command(row)}")
    out.print(report.summary())
    if not arguments.cases:
        out.print(f"The report is in {arguments.output}: report.md and report.json.")


def _outcome(row: Any) -> str:
    return ": ".join(filter(None, (row["outcome"], row["message"])))


class _Shown:
    """Progress on standard error: a bar on a terminal, and otherwise a line from time to time."""

    def __init__(self) -> None:
        self._disagreements = 0
        self._printed = 0
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("starting", total=None)

    def __enter__(self) -> _Shown:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, done: int, total: int, row: Any) -> None:
        """Shows that a case has run."""
        self._disagreements += row["disagrees"]
        text = f"{self._disagreements} disagree"
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=done, total=total, description=text)
        elif done * _LINES // total > self._printed:
            self._printed = done * _LINES // total
            print(f"{done} of {total} cases, {text}", file=sys.stderr)
