"""``torchtrt packs``: which packs are installed, which are in use, and why the others are not."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from torchtrt.cli.output import add_command, console, print_json, table
from torchtrt.packs import API_VERSION, Problem, current_packs, problems
from torchtrt.packs.environment import NO_LOAD
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.registry.listing import IN_USE, PackRow, list_packs
from torchtrt.targets import qualified_name

if TYPE_CHECKING:
    from torchtrt.cli.output import Commands


def add_packs_command(commands: Commands) -> None:
    """Adds the command to the parser."""
    summary = "list the installed packs, in use or not, and every problem with them"
    parser = add_command(commands, "packs", summary, run)
    use = "read installed metadata only and import no pack: works whatever a pack does"
    parser.add_argument(NO_LOAD, action="store_true", help=use)


def run(arguments: argparse.Namespace) -> int:
    """Prints the packs."""
    rows = list_packs(current_packs(), problems())
    if arguments.json:
        print_json(as_json(rows))
        return 0
    out = console()
    if not rows:
        out.print(
            "No converter packs are installed. `pip install torchtrt` brings the first ones.",
            markup=False,
        )
        return 0
    out.print(
        table(
            "Converter packs",
            ("pack", "from", "ops", "high", "status", "summary"),
            [_cells(row) for row in rows],
        )
    )
    for problem in problems():
        out.print(f"problem: {problem}", style="yellow", markup=False, highlight=False)
    for conflict in DYNAMO_CONVERTERS.conflicts():
        winner, *others = (candidate.pack.name for candidate in conflict.candidates)
        text = (
            f"conflict: {qualified_name(conflict.target)} is claimed with HIGH by {winner} and {', '.join(others)}; "
            f"{winner} is asked first. Set TORCHTRT_PACKS_PREFER to choose."
        )
        out.print(text, style="yellow", markup=False, highlight=False)
    missing = DYNAMO_CONVERTERS.missing_targets()
    if missing:
        out.print(
            f"not in this PyTorch: {', '.join(sorted(missing))}", markup=False, highlight=False
        )
    return 0


_IDENTITY = ("name", "distribution", "version", "location", "tier")
_COUNTS = ("ops", "high", "decompositions")


def as_json(rows: tuple[PackRow, ...]) -> dict[str, Any]:
    """Returns the packs as plain data, in pack order."""
    from torchtrt import __version__

    return {
        "torchtrt": __version__,
        "contract": ".".join(map(str, API_VERSION)),
        "packs": [
            {
                **{name: getattr(row.info, name) for name in _IDENTITY},
                "status": row.status,
                "reason": row.reason,
                "summary": row.summary,
                # null where nobody has counted: the pack was not imported
                **{name: getattr(row, name) if row.status == IN_USE else None for name in _COUNTS},
            }
            for row in rows
        ],
        "missing_ops": sorted(DYNAMO_CONVERTERS.missing_targets()),
        "conflicts": [
            {
                "op": qualified_name(conflict.target),
                "packs": [candidate.pack.name for candidate in conflict.candidates],
            }
            for conflict in DYNAMO_CONVERTERS.conflicts()
        ],
        "problems": [problem_as_json(problem) for problem in problems()],
    }


def problem_as_json(problem: Problem) -> dict[str, str]:
    """Returns a problem as plain data, without its traceback."""
    names = ("code", "pack", "distribution", "version", "location", "what", "hint")
    return {name: getattr(problem, name) for name in names}


def _cells(row: PackRow) -> tuple[object, ...]:
    counts = (row.ops, row.high) if row.status == IN_USE else ("-", "-")
    return (row.info.name, row.info.origin, *counts, row.state, row.summary)
