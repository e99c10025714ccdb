"""The command of the search."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tools.program_search.checking import Outcome, check, reproduction, shortest
from tools.program_search.programs import KINDS, program

_LONGEST = 120
"""The maximum number of seconds that a program may take."""


def main() -> None:
    """Searches until the time is over, or prints what was found."""
    parser = argparse.ArgumentParser(
        description=__import__("tools.program_search").program_search.__doc__
    )
    parser.add_argument("out", type=Path, help="the file of outcomes, one a line")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--seed", type=int, action="append", help="only this seed, and print its program"
    )
    parser.add_argument("--kind", choices=KINDS, default="usual", help="the kind of programs")
    parser.add_argument("--table", action="store_true", help="print what became of the programs")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if options.table:
        print_table(list(outcomes(options.out)))
        return
    if options.seed:
        for seed in options.seed:
            print(json.dumps(search(seed, options.kind, is_loud=True)["outcome"]))
        return
    end = time.monotonic() + options.seconds
    done = [outcome["seed"] for outcome in outcomes(options.out)]
    seed = max(done, default=options.first - 1) + 1
    while time.monotonic() < end:
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, "outcome": ["crashed", ""]}) + "\n")
            file.flush()
            file.write(json.dumps(search(seed, options.kind)) + "\n")
        seed += 1
    print_table(list(outcomes(options.out)))


def search(seed: int, kind: str = "usual", is_loud: bool = False) -> dict[str, Any]:
    """Returns the outcome of a seed of a kind of program; prints a reproduction of what it finds."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(_LONGEST)
    text, made = "", None
    try:
        made = program(seed, kind)
        outcome = check(made)
        if outcome.is_finding:
            signal.alarm(10 * _LONGEST)
            made = shortest(made, outcome)
            outcome = check(made)
        if outcome.is_finding or is_loud:
            text = reproduction(made, outcome)
            print(f"# seed {seed}\n{text}\n", flush=True)
    except TimeoutError:
        outcome = Outcome("slow")
    finally:
        signal.alarm(0)
    version = made.version if made else ""
    return {"seed": seed, "version": version, "outcome": list(outcome), "program": text}


def _too_long(*_: object) -> None:
    raise TimeoutError


def outcomes(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the last outcome of each seed in a file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    yield from {row["seed"]: row for row in map(json.loads, lines)}.values()


def print_table(rows: list[dict[str, Any]]) -> None:
    """Prints how many programs had which outcome, and each kind of finding once."""
    for kind, count in Counter(row["outcome"][0] for row in rows).most_common():
        print(f"{count:6} {kind}")
    for version, count in Counter(row.get("version", "") for row in rows).most_common():
        print(f"{count:6} for {version}")
    details = Counter(f"{row['outcome'][0]}: {row['outcome'][1][:150]}" for row in rows)
    for detail, count in details.most_common():
        if not detail.startswith(("right", "unstable", "invalid")):
            print(f"{count:6} {detail}")


if __name__ == "__main__":
    main()
