"""Runs the table, or a part of it, in processes of its own, so that a crash of one case loses no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.agreement.case import Case
from tools.agreement.cases import table
from tools.agreement.outcome import Outcome, decode, encode
from tools.agreement.runner import run_case

REFERENCE_VERSION = "8.6.0"
_ROOT = Path(__file__).parents[2]
_SECONDS_PER_CASE = 60


def tensorrt(on_reference: bool) -> Any:
    """Returns the reference, or whichever TensorRT ``import tensorrt`` finds."""
    if on_reference:
        import torchtrt_reference as reference

        return reference.load(REFERENCE_VERSION)
    import tensorrt as trt

    return trt


def record(families: Sequence[str], on_reference: bool, jobs: int) -> Iterator[dict[str, Outcome]]:
    """Yields the outcomes of each of these families, by case name."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda family: _record_family(family, on_reference), families)


def run_worker(family: str, on_reference: bool, skipped: int) -> None:
    """Runs a family from its case number ``skipped`` on; writes a line before and after each case."""
    # TensorRT's own C++ messages go to the real standard output, so lines get a descriptor of their own.
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    trt = tensorrt(on_reference)
    for case in table()[family][skipped:]:
        lines.write(json.dumps({"start": case.name}) + "\n")
        signal.alarm(_SECONDS_PER_CASE)  # ends the process, also from within a call that hangs
        outcome = run_case(trt, case)
        lines.write(json.dumps({"name": case.name, "outcome": encode(outcome)}) + "\n")
        if outcome.refused_at is not None and not on_reference and not _gpu_works():
            os._exit(3)  # the CUDA context is lost; the next process gets a new one


def _gpu_works() -> bool:
    import torch

    try:
        torch.zeros(1, device="cuda").add_(1).cpu()
    except RuntimeError:
        return False
    return True


def _record_family(family: str, on_reference: bool) -> dict[str, Outcome]:
    cases, outcomes = table()[family], {}
    started = time.monotonic()
    while len(outcomes) < len(cases):
        done = _run_process(family, on_reference, len(outcomes), cases)
        outcomes.update(done)
    print(f"{family}: {len(cases)} cases, {time.monotonic() - started:.1f} s", file=sys.stderr)
    return outcomes


def _run_process(
    family: str, on_reference: bool, skipped: int, cases: Sequence[Case]
) -> dict[str, Outcome]:
    """Returns the outcomes of a family from a process of its own, which may crash or hang."""
    command = [sys.executable, "-m", "tools.agreement", "worker", family, str(skipped)]
    command += ["--reference"] if on_reference else []
    process = subprocess.run(command, cwd=_ROOT, capture_output=True)
    end = "timeout" if process.returncode == -signal.SIGALRM else "crash"
    outcomes = {}
    lines = [
        json.loads(line) for line in process.stdout.decode().splitlines() if line.endswith("}")
    ]
    for line in lines:
        if "outcome" in line:
            outcomes[line["name"]] = decode(line["outcome"])
    if len(outcomes) + skipped < len(cases):
        lost = cases[skipped + len(outcomes)].name
        tail = process.stderr.decode(errors="replace").strip().splitlines()[-1:]
        if not lines:
            message = f"The process for the family {family!r} ran no case: {tail}"
            raise RuntimeError(message)
        if lines[-1].get("start") == lost:
            outcomes[lost] = Outcome(end, " ".join(tail)[:200])
    return outcomes


def write(path: Path, version: str, outcomes: dict[str, Outcome]) -> None:
    """Writes a recording: a JSON object with one line per case."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(encode(outcome), separators=(',', ':'))}"
        for name, outcome in sorted(outcomes.items())
    ]
    path.write_text(
        f'{{"tensorrt":{json.dumps(version)},"cases":{{\n' + ",\n".join(lines) + "\n}}\n"
    )


def read(path: Path) -> dict[str, Outcome]:
    """Returns a recording's outcomes by case name."""
    return {
        name: decode(encoded) for name, encoded in json.loads(path.read_text())["cases"].items()
    }
