"""Builds what the tests build with TensorRT for RTX, without a GPU, and compares its networks with the reference's.

``python -m tools.rtx_builds cases architectures samples --jobs 2 --dtype float16 --sizes varying --check``

The parts are the cases of all packs, the architectures of the tests, and the first samples of PyTorch's ops. An item
runs in a worker process with a time limit. Outcomes are appended as they come to a file for the present code, so that
an interrupted run goes on where it stopped. ``--again PATTERN`` runs items again whose outcome matches. ``--check``
then fails if the two TensorRTs differ in another way than docs/rtx.md says. ``--table`` prints what was refused, in
TensorRT's own words, where the networks differ, and the slowest builds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

import torchtrt
import torchtrt_rtx
from tools.sweep.sweeping import sweep
from torchtrt.packs import loaded_packs
from torchtrt.tensorrt.probes import answering_for
from torchtrt.tensorrt.selection import current
from torchtrt.testing import cases_of
from torchtrt_testing.building import BUILT, build, differences, export_case, in_dtype
from torchtrt_testing.cases import OpCase
from torchtrt_testing.verification.findings import LATE
from torchtrt_testing.verification.workers import Part, rows_of, work

ROOT = Path(__file__).parents[1]
REFERENCE = "reference@11.4.0"
"""The version of the reference whose interface TensorRT for RTX has."""
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
SIZES = ("varying", "fixed")
SAMPLES = 4
"""How many samples of an op are built."""
_LONGEST = 1500
"""The maximum number of characters of an outcome that are kept."""
_SLOW = 10.0
"""The seconds from which on the table lists an item."""
EXPECTED = {
    r"outputs whose sizes depend on data": "TensorRT for RTX has no NonZero layer",
    LATE: "its builder takes longer than the time limit",
}
"""For a pattern of outcomes in which the two differ: the reason, which docs/rtx.md gives too."""
NOT_EXPORTED = r"float16 varying wav2vec2$"
"""Architectures that torch.export does not trace: it cannot prove a guard on the length, in half precision alone."""


@functools.cache
def all_cases() -> tuple[OpCase, ...]:
    """Returns the cases of all packs, the first-party ones first."""
    importlib.import_module(
        "plugins.contrib.torchvision.tests.vision"
    )  # the ops, without the library
    return tuple(case for loaded in loaded_packs() for case in cases_of(loaded.info.name))


def chosen(case: OpCase, name: str) -> OpCase | None:
    """Returns a case in a dtype, or None; the cases in float32 are those as they are written, of their first dtype."""
    if case.rejected:
        return None
    if name == "float32":
        return replace(case, dtypes=case.dtypes[:1])
    return in_dtype(case, DTYPES[name])


def case_names() -> Iterator[str]:
    """Yields the cases: a dtype, whether sizes vary, the place of the case and its label."""
    for dtype in DTYPES:
        for size in SIZES:
            for index, case in enumerate(all_cases()):
                if chosen(case, dtype) is not None and (size == "fixed" or case.varies):
                    yield f"{dtype} {size} {index} {case.label}"


def exported_case(name: str) -> Iterator[ExportedProgram]:
    """Yields the program of a case."""
    dtype, sizes, index, _ = name.split(" ", 3)
    case = chosen(all_cases()[int(index)], dtype)
    assert case is not None
    yield export_case(case, sizes == "varying")


def architecture_names() -> Iterator[str]:
    """Yields the architectures: a dtype, whether sizes vary, and the name."""
    from tests.architectures.zoo import ZOO

    for dtype in DTYPES:
        for size in SIZES:
            yield from (f"{dtype} {size} {architecture.name}" for architecture in ZOO)


def exported_architecture(name: str) -> Iterator[ExportedProgram]:
    """Yields the program of an architecture whose weights and floating-point inputs have a dtype."""
    from tests.architectures.zoo import ZOO

    dtype, sizes, wanted = name.split(" ", 2)
    architecture = next(architecture for architecture in ZOO if architecture.name == wanted)
    yield architecture.export(DTYPES[dtype], sizes == "varying")


def sample_names() -> Iterator[str]:
    """Yields the samples: a dtype, that sizes are fixed, and the op."""
    from torchtrt_testing.op_info import ops

    for dtype in DTYPES:
        yield from (f"{dtype} fixed {op}" for op in ops())


def exported_samples(name: str) -> Iterator[ExportedProgram]:
    """Yields the programs of an op's first samples that PyTorch runs and exports."""
    from torchtrt_testing.op_info import samples_of
    from torchtrt_testing.outcome import export_sample

    dtype, _, op = name.split(" ", 2)
    for sample in samples_of(op, DTYPES[dtype])[:SAMPLES]:
        with contextlib.suppress(Exception):
            yield export_sample(sample)


def outcome(programs: Iterable[ExportedProgram]) -> dict[str, Any]:
    """Returns the row of some programs: outcome, seconds, bytes, what was compared, and where the networks differ.

    The outcome is that of the first program that one TensorRT builds and the other does not, or else of the last one.
    ``declared`` counts the programs whose networks differ only by the capabilities that TensorRT for RTX declares.
    """
    row: dict[str, Any] = {
        "outcome": "not exported", "reference": "not exported", "build_seconds": 0.0, "bytes": 0, "networks": 0,
        "layers": 0, "tensors": 0, "declared": 0, "differences": [],
    }  # fmt: skip
    try:
        for exported in programs:
            if _add(row, exported):
                break
    except Exception as error:
        row["outcome"] = f"not exported: {_shortened(str(error))}"
    return row


def _add(row: dict[str, Any], exported: ExportedProgram) -> bool:
    """Adds what becomes of a program to a row; returns whether the two TensorRTs disagree."""
    with torchtrt.use_tensorrt("rtx"):
        ours = build(exported)
    with torchtrt.use_tensorrt(REFERENCE):
        theirs = build(exported)
    row["outcome"], row["reference"] = _shortened(ours.outcome), _shortened(theirs.outcome)
    row["build_seconds"] = round(max(row["build_seconds"], ours.seconds), 2)
    row["bytes"] += ours.plan_bytes
    for layers, outputs in ours.networks:
        row["networks"] += 1
        row["layers"] += len(layers)
        row["tensors"] += len(outputs) + sum(len(tensors) for _, tensors in layers)
    mismatches, declared = _differences(exported, ours.networks, theirs.networks)
    row["differences"] += mismatches[:5]
    row["declared"] += declared
    return (ours.outcome == BUILT) is not (theirs.outcome == BUILT)


def _differences(
    exported: ExportedProgram, ours: Sequence[Any], theirs: Sequence[Any]
) -> tuple[list[str], bool]:
    """Returns where networks of TensorRT for RTX and the reference differ, and whether declared capabilities do it.

    A program's second compilation may compute a size in another way than its first one, so both are second ones here.
    """
    if not list(differences(ours, theirs)):
        return [], False
    with torchtrt.use_tensorrt("rtx"):
        again, module = build(exported).networks, current()
    mismatches = list(differences(again, theirs))
    if not mismatches:
        return [], False
    with torchtrt.use_tensorrt(REFERENCE), answering_for(module):
        alike = build(exported).networks
    return ([], True) if not list(differences(again, alike)) else (mismatches, False)


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


def part(
    names: Callable[[], Iterable[str]], programs: Callable[[str], Iterable[ExportedProgram]]
) -> Part:
    """Returns a part of the sweep: the names of items, and the programs of each."""

    def check(asked: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in asked:
            yield name, outcome(programs(name))

    return Part(names, check)


PARTS = {
    "cases": part(case_names, exported_case),
    "architectures": part(architecture_names, exported_architecture),
    "samples": part(sample_names, exported_samples),
}


def run(out: Path, items: Iterable[str], jobs: int, seconds: float) -> None:
    """Builds items that the file has no outcome of; see ``tools.sweep.sweeping.sweep``."""
    command = (sys.executable, "-m", "tools.rtx_builds", "--work")
    sweep(out, items, PARTS, jobs, seconds, command)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns what the items became, and each outcome that is worth a look."""
    lines = ["| outcome | items |", "|---|---|"]
    counts: dict[str, int] = {}
    for row in rows:
        kind = row["outcome"].split(":")[0].split(" after")[0]
        counts[kind] = counts.get(kind, 0) + 1
    lines += [f"| {kind} | {count} |" for kind, count in sorted(counts.items())]
    totals = (sum(row.get(name, 0) for row in rows) for name in ("networks", "layers", "tensors"))
    declared = sum(row.get("declared", 0) for row in rows)
    lines += ["", "Compared: {} networks, {} layers, {} tensors".format(*totals)]
    lines += ["", f"Programs that differ by declared capabilities alone: {declared}"]
    lines += ["", f"Built by one of TensorRT for RTX and {REFERENCE}", ""]
    for row in sorted(filter(disagrees, rows), key=lambda row: row["outcome"]):
        lines.append(f"- {row['item']}: {row['outcome'][:400]}")
        lines.append(f"  - the reference: {row.get('reference', 'not asked')[:400]}")
    lines += ["", "Built by neither", ""]
    for row in sorted(rows, key=lambda row: row["outcome"]):
        if not row["outcome"].startswith((BUILT, "not exported")) and not disagrees(row):
            lines.append(f"- {row['item']}: {row['outcome'][:300]}")
    lines += ["", f"Networks that differ: TensorRT for RTX and {REFERENCE}", ""]
    for row in rows:
        lines += [
            f"- {row['item']}: {difference[:300]}" for difference in row.get("differences", ())
        ]
    slow = [row for row in rows if row.get("build_seconds", 0) > _SLOW]
    lines += ["", f"Builds of more than {_SLOW:.0f} s", ""]
    for row in sorted(slow, key=lambda row: -row["build_seconds"]):
        lines.append(f"- {row['item']}: {row['build_seconds']} s")
    return "\n".join(lines)


def disagrees(row: dict[str, Any]) -> bool:
    """Returns whether one TensorRT builds what the other does not."""
    return (row["outcome"] == BUILT) is not (row.get("reference") == BUILT)


def faults(rows: Sequence[dict[str, Any]], items: Sequence[str]) -> list[str]:
    """Returns in words what became of items otherwise than docs/rtx.md says.

    Args:
        rows: The last row of each item that has an outcome.
        items: The items to check, ``part:dtype sizes name``.
    """
    rows_by_item = {row["item"]: row for row in rows}
    built: dict[str, bool] = {}
    faulty = []
    for item in items:
        row = rows_by_item.get(item, {"item": item, "outcome": "it has no outcome"})
        kind = " ".join(item.split(" ")[:2])
        built[kind] = built.get(kind, False) or row["outcome"] == BUILT
        if fault := _fault(row):
            faulty.append(f"{item}: {fault}")
    empty = [f"{kind}: nothing was built" for kind, is_built in built.items() if not is_built]
    return faulty + empty


def _fault(row: dict[str, Any]) -> str | None:
    """Returns what is wrong with a row, or None."""
    outcome, reference = row["outcome"], row.get("reference", "not asked")  # the worker ended
    if expected(row):
        return None
    if disagrees(row) or reference == "not asked":
        return f"TensorRT for RTX: {outcome}; the reference: {reference}"
    if row["item"].startswith("architectures:") and outcome != BUILT:
        return f"every architecture should be built; this one is not: {outcome}"
    return "; ".join(row.get("differences", ())) or None


def expected(row: dict[str, Any]) -> str | None:
    """Returns why an item may differ from the reference or the other architectures, or None."""
    if row["outcome"] == BUILT:
        return None
    if re.search(NOT_EXPORTED, row["item"]):
        return "torch.export does not trace it"
    return next(
        (reason for pattern, reason in EXPECTED.items() if re.search(pattern, row["outcome"])), None
    )


def present_code() -> str:
    """Returns a text that changes with the code of the project, PyTorch and TensorRT for RTX."""
    digest = hashlib.sha256(f"{torch.__version__} {torchtrt_rtx.VERSIONS}".encode())
    for folder in ("core", "plugins", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def latest(out: Path) -> list[dict[str, Any]]:
    """Returns the last row of each item in a file."""
    return list({row["item"]: row for row in rows_of(out)}.values())


def forget(out: Path, pattern: str) -> None:
    """Takes the rows out of a file whose outcome, or what the reference made of them, matches a pattern."""
    kept = [
        row
        for row in latest(out)
        if not re.search(pattern, f"{row['item']} {row['outcome']} | {row.get('reference')}")
    ]
    out.write_text("".join(json.dumps(row) + "\n" for row in kept))


def check(out: Path, items: Sequence[str]) -> None:
    """Prints how many items were built, and how many not for an expected reason.

    Raises:
        SystemExit: With each fault of the items.
    """
    of_items = set(items)
    rows = [row for row in latest(out) if row["item"] in of_items]
    if faulty := faults(rows, items):
        sys.exit("\n".join([f"{len(faulty)} faults in the builds of {len(items)} items:", *faulty]))
    built = sum(row["outcome"] == BUILT for row in rows)
    print(f"Of {len(items)} items, {built} were built, with the networks of {REFERENCE}.")
    for reason, count in Counter(filter(None, map(expected, rows))).items():
        print(f"{count} were not built: {reason}.")


def main() -> None:
    """Runs the command line."""
    options = arguments()
    if options.work:
        warnings.simplefilter("ignore")
        work(PARTS)
        return
    out = options.out or ROOT / ".cache" / "rtx-builds" / f"{present_code()}.jsonl"
    if options.table:
        print(table(latest(out)))
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        forget(out, options.again)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    items = wanted(options)
    run(out, items, options.jobs, options.seconds)
    if options.check:
        check(out, items)


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.rtx_builds", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", help=f"what to build: {', '.join(PARTS)}; all if omitted"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="the file of outcomes, JSON lines; if omitted, one in .cache for the present code",
    )
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--sizes", choices=SIZES, action="append")
    parser.add_argument(
        "--only", default="", help="a regular expression: the items to run, 'part:dtype sizes name'"
    )
    parser.add_argument("--again", help="a regular expression: the outcomes to take out first")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="the time limit of an item")
    parser.add_argument(
        "--check", action="store_true", help="fail where an outcome differs from the reference's"
    )
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    return options


def wanted(options: argparse.Namespace) -> list[str]:
    """Returns the items that the options choose."""
    dtypes, sizes = options.dtype or DTYPES, options.sizes or SIZES
    items = [
        f"{part}:{name}"
        for part in options.parts or PARTS
        for name in PARTS[part].names()
        if name.split(" ")[0] in dtypes and name.split(" ")[1] in sizes
    ]
    return [item for item in items if re.search(options.only, item)]


if __name__ == "__main__":
    main()
