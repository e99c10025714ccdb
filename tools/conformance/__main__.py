"""``python -m tools.conformance run | show OP``."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tools.conformance import golden
from tools.conformance.running import Found, run
from torchtrt_cli import main as torchtrt
from torchtrt_compiler.coverage import CRASHED, REJECTED, WRONG, share
from torchtrt_reference import VERSIONS
from torchtrt_testing.op_info import ops


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="run samples and record what became of them")
    one.add_argument("--op", action="append", help="only ops of this name, with * and ?")
    one.add_argument("--version", action="append", choices=VERSIONS)
    one.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    one.add_argument("--all", action="store_true", help="print every sample that is not correct")
    one.add_argument(
        "--write", action="store_true", help="keep the outcomes of ops without a worse one"
    )
    one.add_argument("--accept-worse", action="store_true", help="keep them even then")
    two = commands.add_parser("show", help="print what is kept of an op")
    two.add_argument("op")
    chosen = parser.parse_args(arguments)
    if chosen.command == "show":
        return torchtrt(["coverage", chosen.op])
    patterns = chosen.op or ["*"]
    names = [
        name for name in ops() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
    if not names:
        print(
            f"PyTorch has no samples of an op named {' or '.join(patterns)}: its cases are its test."
        )
        return 0
    versions = tuple(chosen.version or VERSIONS)
    if chosen.write and versions != VERSIONS:
        parser.error("--write needs all versions")
    started = time.monotonic()
    entries = []
    for entry in run(names, versions, chosen.jobs):
        entries.append(entry)
        _tell(entry, chosen.all)
    _summarize(entries, versions)
    seconds = time.monotonic() - started
    print(f"{_counted(entries, 'sample')} of {_counted(names, 'op')} in {seconds:.0f} s")
    return golden.keep(entries, chosen.accept_worse) if chosen.write else 0


def _counted(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _tell(entry: Found, all_of_them: bool) -> None:
    op, dtype, index, sample, by_version = entry
    if by_version is None:
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for version, outcome in by_version.items():
        if outcome.kind in (WRONG, CRASHED) or (outcome.kind == REJECTED and all_of_them):
            groups.setdefault((outcome.kind, outcome.reason), []).append(version)
    for (kind, reason), versions in groups.items():
        print(f"{kind} {op} {dtype} #{index} {sample[:200]} @{','.join(versions)}: {reason}")


def _summarize(entries: list[Found], versions: tuple[str, ...]) -> None:
    """Prints why samples were rejected, the most frequent reason first, and the share of correct ones by version."""
    reasons: Counter[str] = Counter()
    letters = dict.fromkeys(versions, "")
    for *_, by_version in entries:
        for version, outcome in (by_version or {}).items():
            letters[version] += outcome.kind
            if outcome.kind == REJECTED:
                reasons[outcome.reason] += 1
    for reason, count in reasons.most_common(200):
        print(f"{count:6d} {reason}")
    for version in versions:
        counts = Counter(letters[version])
        print(f"{version}: {share(letters[version])} correct; {dict(counts)}")


if __name__ == "__main__":
    sys.exit(main())
