"""``torchtrt converters [OP]``: which converters there are, in the order in which they are asked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torchtrt.contract import check_names
from torchtrt.registry import DYNAMO_CONVERTERS, Candidate
from torchtrt.registry.listing import notes, shadowed_by
from torchtrt.targets import parse_targets, qualified_name
from torchtrt_cli.output import Commands, add_command, console, print_json, table

CandidatesByName = Mapping[str, Sequence[Candidate]]


def add_converters_command(commands: Commands) -> None:
    """Adds the command to the parser."""
    summary = "list the converters of all ops, or of one"
    parser = add_command(commands, "converters", summary, run)
    examples = "an op in any spelling: aten.gelu, aten::add.Tensor"
    parser.add_argument("op", nargs="?", metavar="OP", help=examples)


def run(arguments: argparse.Namespace) -> int:
    """Prints the converters."""
    found = all_candidates() if arguments.op is None else candidates_for(arguments.op)
    if arguments.json:
        print_json({name: candidates_as_json(candidates) for name, candidates in found.items()})
    elif found:
        console().print(candidate_table(found))
    if arguments.op is not None and not found:
        print(f"torchtrt: No pack has a converter for {arguments.op}.", file=sys.stderr)
        return 1
    return 0


def all_candidates() -> CandidatesByName:
    """Returns the candidates for every op that has any, by name."""
    targets = {qualified_name(target): target for target in DYNAMO_CONVERTERS.unique_targets()}
    return {name: DYNAMO_CONVERTERS.candidates(targets[name]) for name in sorted(targets)}


def candidates_for(op: str) -> CandidatesByName:
    """Returns the candidates for an op in any spelling; a packet stands for all its overloads that have any.

    Raises:
        UnknownTargetError: There is no such op.
    """
    named = sorted((qualified_name(target), target) for target in parse_targets(op))
    found = {name: DYNAMO_CONVERTERS.candidates(target) for name, target in named}
    return {name: candidates for name, candidates in found.items() if candidates}


def candidate_table(found: CandidatesByName) -> Any:
    """Returns a table of candidates, in the order in which they are asked."""
    rows = [
        (
            name if position == 0 else "",
            position + 1,
            candidate.priority.name,
            candidate.pack.name,
            candidate.pack.origin,
            candidate.qualified_function,
            ", ".join(notes(candidates, position)),
        )
        for name, candidates in found.items()
        for position, candidate in enumerate(candidates)
    ]
    headings = ("op", "turn", "priority", "pack", "from", "converter", "notes")
    return table("Converters, in the order in which they are asked", headings, rows)


def candidates_as_json(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Returns an op's candidates as plain data, in order."""
    return [
        {
            "pack": candidate.pack.name,
            "distribution": candidate.pack.distribution,
            "version": candidate.pack.version,
            "priority": candidate.priority.name,
            "converter": candidate.qualified_function,
            "supports_dynamic_shapes": candidate.support.supports_dynamic_shapes,
            "requires_output_allocator": candidate.support.requires_output_allocator,
            "checks": list(check_names(candidate.support.capability_validator))
            if candidate.validate is not None
            else [],
            "shadowed_by": None if shadow is None else shadow + 1,
        }
        for position, candidate in enumerate(candidates)
        for shadow in (shadowed_by(candidates, position),)
    ]
