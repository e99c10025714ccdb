"""Sizes, masks and forms that no case has, on the TensorRT in use; ``torchtrt verify`` runs the cases.

``TORCHTRT_TENSORRT=real python -m tools.sweep OUT.jsonl --jobs 14 --seconds 60 extremes attention steps``

Items run in worker processes with a time limit. Outcomes are appended as they come, and a second sweep goes on behind
them. ``--reversed`` begins at the other end. ``python -m tools.sweep OUT.jsonl --table`` summarizes a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchtrt_testing.verification.findings import AGREES, NotApplicableError, finding
from torchtrt_testing.verification.workers import Part, Row, groups, outcomes, rows_of, work

REAL = {"disable_tf32": True, "tactic_sources": 0, "optimization_level": 1}
"""Settings for a TensorRT without cuBLAS and cuDNN, which builds small networks in a second."""
WORK = (sys.executable, "-m", "tools.sweep", "-", "--work")
"""The command that starts a worker."""


def extremes() -> dict[str, Callable[[], None]]:
    """Returns every pack's cases whose sizes vary, with all of them 1, at their maximum, and from 1 to it."""
    from torchtrt.testing import first_party_cases

    return {
        f"{index} {case.label} {name}": functools.partial(_check_extreme, case, name)
        for index, case in enumerate(first_party_cases())
        if case.varies and not case.rejected
        for name in ("one", "maximum", "from-one")
    }


def _check_extreme(case: Any, name: str) -> None:
    """Checks a case at sizes that it does not name, where eager PyTorch takes them.

    Raises:
        AssertionError: The results differ.
        NotApplicableError: Eager PyTorch or the program does not take these sizes.
    """
    import torch

    from torchtrt.errors import InputError
    from torchtrt_testing.checking import check_where_exact
    from torchtrt_testing.tensors import MINIMUM

    low, usual, high = zip(*case.dimensions.values(), strict=True)
    points = {"one": [(1, 1, 1)] * len(low), "maximum": [(size,) * 3 for size in high]}
    points["from-one"] = [(1, middle, most) for middle, most in zip(usual, high, strict=True)]
    sizes = dict(zip(case.dimensions, points[name], strict=True))
    extreme = dataclasses.replace(case, dimensions=sizes, ops=())  # some vanish at fixed sizes
    try:
        with torch.no_grad():
            extreme.model()(*extreme.inputs(MINIMUM))
    except Exception as error:
        raise NotApplicableError(f"eager PyTorch refuses these sizes: {error}") from error
    try:
        check_where_exact(extreme, REAL, varying=name == "from-one")
    except InputError as error:
        raise NotApplicableError(f"the program does not take these sizes: {error}") from error


def attention() -> dict[str, Callable[[], None]]:
    """Returns attention with every kind of mask, for few and many queries and keys, widths, dtypes and places."""
    from tools.sweep import attention as grid

    return {
        configuration.label: functools.partial(configuration.check, REAL)
        for configuration in grid.GRID
    }


def steps() -> dict[str, Callable[[], None]]:
    """Returns a step of a language model in several forms, which should be one engine each."""
    from tools.sweep import steps as grid

    return {
        configuration.label: functools.partial(configuration.check, REAL)
        for configuration in grid.GRID
    }


def one_by_one(part: Callable[[], dict[str, Callable[[], None]]]) -> Part:
    """Returns the part of what is checked by functions without arguments, which raise where it is wrong."""
    checks = functools.cache(part)

    def check(names: list[str]) -> Iterator[tuple[str, Row]]:
        for name in names:
            outcome = finding(functools.partial(_agrees, checks()[name]))
            yield name, {"outcome": outcome.kind, "message": outcome.message}

    return Part(checks, check)


def _agrees(check: Callable[[], None]) -> str:
    check()
    return AGREES


PARTS = {
    "extremes": one_by_one(extremes),
    "attention": one_by_one(attention),
    "steps": one_by_one(steps),
}


def sweep(  # noqa: PLR0913  (the options of the command)
    out: Path,
    items: Iterable[str],
    parts: Mapping[str, Part],
    jobs: int,
    seconds: float,
    command: Sequence[str],
    total: float | None = None,
) -> None:
    """Runs the items that the file has no outcome of, and adds a row to it for each.

    Args:
        out: The file.
        items: The items to run, ``part:name``.
        parts: The parts by name.
        jobs: The number of workers.
        seconds: The longest time that a worker may take until its next outcome.
        command: The command that starts a worker.
        total: The seconds after which the sweep stops; no limit if omitted.
    """
    done = {row["item"] for row in rows_of(out)}
    left = groups((item for item in items if item not in done), parts)
    with out.open("a") as file:
        for row in outcomes(left, command, jobs=jobs, seconds=seconds, total=total):
            file.write(json.dumps(row) + "\n")
            file.flush()


def table(out: Path) -> str:
    """Returns how many items of each part agree with PyTorch, and the outcomes of the others."""
    counts: dict[str, Counter[str]] = {}
    for row in rows_of(out):
        counts.setdefault(row["item"].split(":")[0], Counter())[row["outcome"]] += 1
    lines = ["| part | items | agree | otherwise |", "|---|---|---|---|"]
    for part, kinds in counts.items():
        others = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common() if kind != AGREES)
        lines.append(f"| {part} | {sum(kinds.values())} | {kinds[AGREES]} | {others} |")
    return "\n".join(lines)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.sweep", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=60, help="the time limit of an outcome")
    parser.add_argument("--total", type=float, help="when to stop")
    parser.add_argument("--reversed", action="store_true", help="begin with the last item")
    parser.add_argument(
        "--optimization-level",
        type=int,
        default=REAL["optimization_level"],
        help="TensorRT's: 0 times no kernels, so that many jobs do not wait for each other's",
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="summarize the file")
    options = parser.parse_intermixed_args()
    REAL["optimization_level"] = options.optimization_level
    if options.work:
        warnings.simplefilter("ignore")
        work(PARTS)
    elif options.table:
        print(table(options.out))
    else:
        items = [f"{part}:{name}" for part in options.parts for name in PARTS[part].names()]
        command = (*WORK, f"--optimization-level={options.optimization_level}")
        ordered = reversed(items) if options.reversed else items
        sweep(options.out, ordered, PARTS, options.jobs, options.seconds, command, options.total)
