"""Builds every case of the packs with TensorRT for RTX, without a GPU, and compares its networks with the reference's.

``python -m tools.rtx_builds OUT.jsonl --jobs 2 --seconds 60 --dtype float16 --sizes varying``

A case runs in a worker process with a time limit. Outcomes are appended as they come, so that an interrupted run goes
on where it stopped; ``--again PATTERN`` runs items again whose outcome matches. ``--table`` prints what was refused, in
TensorRT's own words, where the networks differ, and the slowest builds.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import torchtrt
from tools.sweep import sweep
from torchtrt.testing import PackConformance, first_party_cases
from torchtrt_testing.building import BUILT, build, differences, export_case, in_dtype
from torchtrt_testing.cases import OpCase

ROOT = Path(__file__).parents[1]
REFERENCE = "reference@11.4.0"
"""The version of the reference whose interface TensorRT for RTX has."""
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
SIZES = ("varying", "fixed")
PART = "rtx"
_LONGEST = 1500
"""The most characters of an outcome that are kept."""
_SLOW = 10.0
"""The seconds from which on the table lists an item."""


@functools.cache
def all_cases() -> tuple[OpCase, ...]:
    """Returns the cases of all packs, the first-party ones first."""
    found = list(first_party_cases())
    for path in sorted(ROOT.glob("plugins/contrib/*/tests/test_*.py")):
        if "(PackConformance)" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found += _cases_of(name)
    name = "plugins.aten_experimental.tests.test_conformance"
    return (*found, *_cases_of(name))


def _cases_of(module_name: str) -> Iterator[OpCase]:
    """Yields the cases of the conformance tests in a module, with the libraries that they need imported."""
    module = importlib.import_module(module_name)
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, PackConformance) and value.pack:
            for library in value.imports:
                importlib.import_module(library)
            yield from value.cases


def chosen(case: OpCase, name: str) -> OpCase | None:
    """Returns a case in a dtype, or None; the cases in float32 are those as they are written, of their first dtype."""
    if case.rejected:
        return None
    if name == "float32":
        return replace(case, dtypes=case.dtypes[:1])
    return in_dtype(case, DTYPES[name])


def names(dtypes: Iterable[str] = DTYPES, sizes: Iterable[str] = SIZES) -> Iterator[str]:
    """Yields the items: a dtype, whether sizes vary, the place of the case and its label."""
    for dtype in dtypes:
        for size in sizes:
            for place, case in enumerate(all_cases()):
                if chosen(case, dtype) is not None and (size == "fixed" or case.varies):
                    yield f"{dtype} {size} {place} {case.label}"


def outcome(case: OpCase, varying: bool) -> dict[str, Any]:
    """Returns what became of a case: its outcome, seconds, bytes, and where the networks differ."""
    try:
        exported = export_case(case, varying)
    except Exception as error:
        text = " ".join(str(error).split())
        return {"outcome": f"not exported: {text[:_LONGEST]}"}
    with torchtrt.use_tensorrt("rtx"):
        ours = build(exported)
    with torchtrt.use_tensorrt(REFERENCE):
        theirs = build(exported)
    row: dict[str, Any] = {
        "outcome": ours.outcome[:_LONGEST],
        "reference": theirs.outcome[:_LONGEST],
        "build_seconds": round(ours.seconds, 2),
        "bytes": ours.plan_bytes,
    }
    if ours.outcome == theirs.outcome == BUILT:
        row["differences"] = list(differences(ours.networks, theirs.networks))[:5]
    return row


def check(asked: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the row of each item."""
    for name in asked:
        dtype, sizes, place, _ = name.split(" ", 3)
        case = chosen(all_cases()[int(place)], dtype)
        assert case is not None
        yield name, outcome(case, sizes == "varying")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns what the items became, and each outcome that is worth a look."""
    lines = ["| outcome | items |", "|---|---|"]
    counts: dict[str, int] = {}
    for row in rows:
        kind = row["outcome"].split(":")[0].split(" after")[0]
        counts[kind] = counts.get(kind, 0) + 1
    lines += [f"| {kind} | {count} |" for kind, count in sorted(counts.items())]
    odd = [row for row in rows if not row["outcome"].startswith((BUILT, "not exported"))]
    lines += ["", "Refused, and what the reference does", ""]
    for row in sorted(odd, key=lambda row: row["outcome"]):
        lines.append(f"- {row['item']}: {row['outcome'][:400]}")
        lines.append(f"  - the reference: {row.get('reference', 'not asked')[:200]}")
    lines += ["", f"Accepted by TensorRT for RTX and not by {REFERENCE}", ""]
    lines += [
        f"- {row['item']}: {row['reference'][:300]}"
        for row in rows
        if row["outcome"] == BUILT != row["reference"]
    ]
    lines += ["", f"Networks that differ: TensorRT for RTX and {REFERENCE}", ""]
    for row in rows:
        lines += [f"- {row['item']}: {each[:300]}" for each in row.get("differences", ())]
    slow = [row for row in rows if row.get("build_seconds", 0) > _SLOW]
    lines += ["", f"Builds of more than {_SLOW:.0f} s", ""]
    for row in sorted(slow, key=lambda row: -row["build_seconds"]):
        lines.append(f"- {row['item']}: {row['build_seconds']} s")
    return "\n".join(lines)


def latest(out: Path) -> list[dict[str, Any]]:
    """Returns the last row of each item in a file."""
    return list({row["item"]: row for row in sweep.rows(out)}.values())


def forget(out: Path, pattern: str) -> None:
    """Takes the rows out of a file whose outcome, or what the reference made of them, matches a pattern."""
    kept = [
        row
        for row in latest(out)
        if not re.search(pattern, f"{row['item']} {row['outcome']} | {row.get('reference')}")
    ]
    out.write_text("".join(json.dumps(row) + "\n" for row in kept))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.rtx_builds", description=__doc__)
    parser.add_argument("out", type=Path, help="the file of outcomes, JSON lines")
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--sizes", choices=SIZES, action="append")
    parser.add_argument("--only", default="", help="a regular expression: the items to run")
    parser.add_argument("--again", help="a regular expression: the outcomes to take out first")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="the time limit of an item")
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sweep.PARTS[PART] = sweep.Part(names, check)
    if options.work:
        warnings.simplefilter("ignore")
        sweep.work()
    elif options.table:
        print(table(latest(options.out)))
    else:
        if options.again:
            forget(options.out, options.again)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        wanted = names(options.dtype or DTYPES, options.sizes or SIZES)
        items = [f"{PART}:{name}" for name in wanted if re.search(options.only, name)]
        command = (sys.executable, "-m", "tools.rtx_builds", "-", "--work")
        sweep.sweep(options.out, items, options.jobs, options.seconds, command=command)


if __name__ == "__main__":
    main()
