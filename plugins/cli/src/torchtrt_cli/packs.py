"""``torchtrt packs``: which packs are installed, which are in use, and why the others are not."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torchtrt import __version__
from torchtrt.errors import TorchTRTError
from torchtrt.packs import API_VERSION, TENSORRTS, Problem, current_packs, loaded_packs, problems
from torchtrt.packs.environment import NO_LOAD
from torchtrt.packs.load import call_hook
from torchtrt.packs.pieces import installed
from torchtrt.packs.problem import describe as describe_error
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.registry.listing import IN_USE, PackRow, list_packs
from torchtrt.tensorrt.selection import describe
from torchtrt_cli.converters import conflict_as_json
from torchtrt_cli.output import Commands, add_command, console, print_json, table


def add_packs_command(commands: Commands) -> None:
    """Adds the command to the parser."""
    summary = "list the installed packs, in use or not, and every problem with them"
    parser = add_command(commands, "packs", summary, run)
    use = "read installed metadata only and import no pack: works whatever a pack does"
    parser.add_argument(NO_LOAD, action="store_true", help=use)


def add_doctor_command(commands: Commands) -> None:
    """Adds the command to the parser."""
    summary = "look for everything that is wrong here, asking the packs too, and say what to do"
    add_command(commands, "doctor", summary, doctor)


def run(arguments: argparse.Namespace) -> int:
    """Prints the packs."""
    _show(arguments.json, problems(), {})
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Prints the packs, what they find wrong, and the versions in use; returns 1 if anything is wrong."""
    found = (*problems(), *_checked())
    tensorrts = [each.info.origin for each in installed(TENSORRTS).values()]
    if importlib.util.find_spec("tensorrt"):
        tensorrts.append(f"tensorrt {importlib.metadata.version('tensorrt')}")
    versions = {"Python": platform.python_version(), "PyTorch": torch.__version__}
    try:
        versions["TensorRT"], usable = describe(), True
    except TorchTRTError as error:
        versions["TensorRT"], usable = str(error), False
    _show(arguments.json, found, {**versions, "TensorRTs installed": ", ".join(tensorrts)})
    return 0 if usable and not (found or DYNAMO_CONVERTERS.conflicts()) else 1


def _checked() -> Iterator[Problem]:
    """Yields what the packs in use find wrong themselves."""
    for loaded in loaded_packs():
        try:
            for problem in call_hook(loaded.check, pack=loaded.pack) or ():
                yield problem.about(loaded.info)
        except Exception as error:
            what = f"torchtrt_check raised {describe_error(error)}"
            yield Problem(what, "Report this to the pack's authors.", "hook-failed").about(
                loaded.info
            )


def _show(json: bool, found: Sequence[Problem], versions: Mapping[str, str]) -> None:
    rows = list_packs(current_packs(), found)
    if json:
        print_json(as_json(rows, found) | ({"versions": versions} if versions else {}))
        return
    out = console()
    for name, version in versions.items():
        out.print(f"{name}: {version}")
    headings = ("pack", "from", "ops", "high", "status", "summary")
    cells = [_cells(row) for row in rows]
    nothing = "No converter packs are installed. `pip install torchtrt` brings the first ones."
    out.print(table("Converter packs", headings, cells) if rows else nothing)
    for problem in found:
        out.print(f"problem: {problem}", style="yellow")
    for conflict in DYNAMO_CONVERTERS.conflicts():
        out.print(f"conflict: {conflict}", style="yellow")
    if missing := DYNAMO_CONVERTERS.missing_targets():
        out.print(f"not in this PyTorch: {', '.join(sorted(missing))}")


_IDENTITY = ("name", "distribution", "version", "location", "tier")
_COUNTS = ("ops", "high", "decompositions")


def as_json(rows: Sequence[PackRow], found: Sequence[Problem]) -> dict[str, Any]:
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
                # null where nobody has counted: the pack was not imported
                **{name: getattr(row, name) if row.status == IN_USE else None for name in _COUNTS},
            }
            for row in rows
        ],
        "missing_ops": sorted(DYNAMO_CONVERTERS.missing_targets()),
        "conflicts": [conflict_as_json(conflict) for conflict in DYNAMO_CONVERTERS.conflicts()],
        "problems": [problem_as_json(problem) for problem in found],
    }


def problem_as_json(problem: Problem) -> dict[str, str]:
    """Returns a problem as plain data, without its traceback."""
    names = ("code", "pack", "distribution", "version", "location", "what", "hint")
    return {name: getattr(problem, name) for name in names}


def _cells(row: PackRow) -> tuple[object, ...]:
    counts = (row.ops, row.high) if row.status == IN_USE else ("-", "-")
    return (row.info.name, row.info.origin, *counts, row.state, row.summary)
