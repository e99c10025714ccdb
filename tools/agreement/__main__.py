"""``python -m tools.agreement record OUT.json | compare OUT.json | list``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tools.agreement import comparison, recording
from tools.agreement.cases import table
from tools.agreement.runner import run_case


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.agreement", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="run the table and write what became of each case")
    one.add_argument("out", type=Path)
    one.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    one.add_argument("--family", action="append", help="only this family; may be repeated")
    two = commands.add_parser("compare", help="compare a recording with the reference")
    two.add_argument("recording", type=Path, nargs="?", default=comparison.RECORDING)
    two.add_argument("--write-docs", action="store_true", help="put the figures into the docs")
    commands.add_parser("list", help="print the names of all cases")
    three = commands.add_parser("show", help="run single cases and print what became of them")
    three.add_argument("names", nargs="+")
    worker = commands.add_parser("worker")
    worker.add_argument("family")
    worker.add_argument("skipped", type=int)
    for command in (one, three, worker):
        command.add_argument("--reference", action="store_true", help="run on the reference")
    chosen = parser.parse_args(arguments)
    if chosen.command == "record":
        started = time.monotonic()
        version = recording.tensorrt(chosen.reference).__version__
        # A part of the table replaces that part of an earlier recording.
        outcomes = recording.read(chosen.out) if chosen.family and chosen.out.exists() else {}
        families = chosen.family or list(table())
        for part in recording.record(families, chosen.reference, chosen.jobs):
            outcomes.update(part)
            recording.write(chosen.out, version, outcomes)
        ran = sum(outcome.refused_at is None for outcome in outcomes.values())
        print(
            f"{len(outcomes)} cases on TensorRT {version}: {ran} ran, {len(outcomes) - ran} were refused, "
            f"{time.monotonic() - started:.0f} s"
        )
    elif chosen.command == "compare":
        return comparison.compare(chosen.recording, chosen.write_docs)
    elif chosen.command == "worker":
        recording.run_worker(chosen.family, chosen.reference, chosen.skipped)
    else:
        for case in (case for cases in table().values() for case in cases):
            if chosen.command == "list":
                print(case.name)
            elif case.name in chosen.names:
                print(case.name, run_case(recording.tensorrt(chosen.reference), case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
