"""``torchtrt packs``: which packs are installed, which are in use, and why the others are not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchtrt import __version__
from torchtrt.packs.info import API_VERSION
from torchtrt.packs.listing import DISABLED, IN_USE, PackRow, list_packs
from torchtrt.packs.problem import Problem
from torchtrt.packs.scan import scan
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.parser import NO_LOAD

if TYPE_CHECKING:
    from torchtrt.packs.load import Watch
    from torchtrt.registry import Conflict


_NAMED = 3
"""How many ops of a pack are named; more are counted."""


@dataclass(frozen=True)
class Installed:
    """The installed packs, as far as they could be determined.

    Attributes:
        rows: Every installed pack, in pack order.
        problems: What is wrong.
        conflicts: The ops that two third parties claim with HIGH.
        missing: The names of ops that this PyTorch does not have, each with the names of the packs that convert it.
    """

    rows: Sequence[PackRow]
    problems: Sequence[Problem]
    conflicts: Sequence[Conflict] = ()
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)


def run(arguments: argparse.Namespace) -> int:
    """Prints the packs."""
    if arguments.available or arguments.search is not None:
        from torchtrt_cli.catalogue import show as show_catalogue  # of another distribution

        return show_catalogue(arguments)
    installed = unloaded(f"not loaded, because of {NO_LOAD}") if arguments.no_load else loaded()
    if arguments.json:
        print_json(as_json(installed))
    else:
        show(installed)
    return 0


def unloaded(reason: str, status: str = DISABLED) -> Installed:
    """Returns what the installed metadata alone contains; neither PyTorch nor a pack is imported."""
    scanned = scan()
    rows = [PackRow(extension.info, status, reason) for extension in scanned.packs]
    return Installed(rows, scanned.problems)


def loaded(watch: Watch = nullcontext) -> Installed:
    """Returns the packs of this process, loading them, each within ``watch(its info)``, if they are not."""
    from torchtrt.packs.state import current_packs, load_packs, problems
    from torchtrt.registry import DYNAMO_CONVERTERS

    load_packs(watch)
    conflicts, missing = DYNAMO_CONVERTERS.conflicts(), DYNAMO_CONVERTERS.missing_targets()
    recorded = problems()
    return Installed(list_packs(current_packs(), recorded), recorded, conflicts, missing)


def show(installed: Installed) -> None:
    """Prints the packs and everything that is wrong with them."""
    out = console()
    headings = (
        *("pack", "version", "converters", "HIGH", "decompositions", "passes"),
        *("status", "summary"),
    )
    nothing = "No converter packs are installed. torchtrt-all brings the first ones."
    cells = [_cells(row) for row in installed.rows]
    out.print(table("Converter packs", headings, cells) if cells else nothing)
    for problem in installed.problems:
        out.print(f"problem: {problem}", style="yellow")
    for conflict in installed.conflicts:
        out.print(f"conflict: {conflict}", style="yellow")
    if installed.missing:
        for line in _told_missing(installed.missing):
            out.print(line)


def _told_missing(missing: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields facts about ops that are not here: about each of a library that is, and then about those of others."""
    from torchtrt.errors import UnknownTargetError
    from torchtrt.registry.table import ops_by_pack
    from torchtrt.targets import parse_target
    from torchtrt.torch_internals import registered_ops

    libraries = {name.partition("::")[0] for name in registered_ops()}
    later = {}
    for name, packs in sorted(missing.items()):
        if name.partition(".")[0] not in libraries:
            later[name] = packs
            continue
        try:
            parse_target(name)
        except UnknownTargetError as error:
            yield f"{', '.join(packs)}: {error}"
    parts = [
        f"{', '.join(names) if len(names) <= _NAMED else f'{len(names)} ops'} of {pack}"
        for pack, names in ops_by_pack(later).items()
    ]
    if parts:
        yield f"not in this PyTorch: {'; '.join(parts)}"
        yield "(ops of libraries that are not imported: --import LIBRARY imports one, --json names all)"


_IDENTITY = ("name", "distribution", "version", "location", "tier")
_COUNTS = ("ops", "converters", "high", "decompositions", "passes")


def as_json(installed: Installed) -> dict[str, Any]:
    """Returns the packs as plain data, in pack order."""
    return {
        "torchtrt": __version__,
        "contract": ".".join(map(str, API_VERSION)),
        "packs": [
            {
                **{name: getattr(row.info, name) for name in _IDENTITY},
                "status": row.status,
                "reason": row.reason,
                "summary": row.summary,
                # null where nothing was counted: the pack was not imported
                **{name: getattr(row, name) if row.status == IN_USE else None for name in _COUNTS},
            }
            for row in installed.rows
        ],
        "missing_ops": {name: list(packs) for name, packs in sorted(installed.missing.items())},
        "conflicts": [conflict_as_json(conflict) for conflict in installed.conflicts],
        "problems": [problem_as_json(problem) for problem in installed.problems],
    }


def conflict_as_json(conflict: Conflict) -> dict[str, Any]:
    """Returns a conflict as plain data: the op, what is claimed, and by whom, the winner first."""
    from torchtrt.targets import qualified_name

    return {
        "op": qualified_name(conflict.target),
        "kind": conflict.kind,
        "packs": [candidate.pack.name for candidate in conflict.candidates],
    }


def problem_as_json(problem: Problem) -> dict[str, str]:
    """Returns a problem as plain data, without its traceback."""
    names = ("code", "pack", "distribution", "version", "location", "what", "hint")
    return {name: getattr(problem, name) for name in names}


def _cells(row: PackRow) -> tuple[object, ...]:
    # A dash where there is none: a pack of decompositions alone has nothing to do with converters.
    counts = (count or "-" for count in (row.converters, row.high, row.decompositions, row.passes))
    # The name of a pack states its distribution, which would make the table too wide for a terminal. To uninstall a
    # pack, a user needs it.
    in_use = row.status == IN_USE and row.info.distribution
    version = row.info.version if in_use else row.info.origin
    return (row.info.name, version, *counts, row.state, row.summary)
