"""``torchtrt converters [OP]``: the converters, decompositions and passes there are, in their order."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torchtrt.contract import check_names, qualified_function
from torchtrt.registry import (
    DYNAMO_CONVERTERS,
    Candidate,
    DecompositionCandidate,
    PackInfo,
    PackPass,
    lowering_passes,
)
from torchtrt.registry.listing import notes, shadowed_by
from torchtrt.targets import parse_targets, qualified_name
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.packs import conflict_as_json

CandidatesByName = Mapping[str, Sequence[Candidate]]


def run(arguments: argparse.Namespace) -> int:
    """Prints the converters and decompositions, of all ops with the passes too."""
    op = arguments.op
    found = all_candidates() if op is None else candidates_for(op)
    decompositions = decompositions_for(op)
    conflicts = [
        each
        for each in DYNAMO_CONVERTERS.conflicts()
        if op is None or each.target in parse_targets(op)
    ]
    passes = lowering_passes() if op is None else ()
    if arguments.json:
        print_json(
            {
                "converters": {name: candidates_as_json(found[name]) for name in found},
                "decompositions": {
                    name: decompositions_as_json(decompositions[name]) for name in decompositions
                },
                "passes": [
                    {
                        **pack_as_json(each.pack),
                        "pass": each.name,
                        "function": qualified_function(each.function),
                    }
                    for each in passes
                ],
                "conflicts": [conflict_as_json(conflict) for conflict in conflicts],
            }
        )
    else:
        out = console()
        for shown in (
            candidate_table(found),
            decomposition_table(decompositions),
            pass_table(passes),
        ):
            if shown is not None:
                out.print(shown)
        for conflict in conflicts:
            out.print(f"conflict: {conflict}", style="yellow")
    if op is not None and not found and not decompositions:
        print(f"torchtrt: No pack has a converter for {op}.", file=sys.stderr)
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


def decompositions_for(op: str | None) -> Mapping[str, Sequence[DecompositionCandidate]]:
    """Returns the decompositions of an op in any spelling, or of all, by name and in order."""
    found = DYNAMO_CONVERTERS.decomposition_candidates()
    targets = found if op is None else parse_targets(op)
    by_name = {qualified_name(target): found[target] for target in targets if target in found}
    return {name: by_name[name] for name in sorted(by_name)}


def candidate_table(found: CandidatesByName) -> Any:
    """Returns a table of candidates, in the order in which they are tried, or nothing."""
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
    return (
        table("Converters, in the order in which they are tried", headings, rows) if rows else None
    )


def decomposition_table(found: Mapping[str, Sequence[DecompositionCandidate]]) -> Any:
    """Returns a table of decompositions, or nothing. The first one of an op is used."""
    rows = [
        (
            name if place == 0 else "",
            place + 1,
            each.priority.name,
            each.pack.name,
            each.pack.origin,
            each.qualified_function,
            "shadowed by 1." if place else "",
        )
        for name, decompositions in found.items()
        for place, each in enumerate(decompositions)
    ]
    headings = ("op", "turn", "priority", "pack", "from", "function", "notes")
    return table("Decompositions; the first of an op is used", headings, rows) if rows else None


def pass_table(passes: Sequence[PackPass]) -> Any:
    """Returns a table of passes over the graph, in the order in which they run, or nothing."""
    rows = [
        (place + 1, each.name, each.pack.name, each.pack.origin, qualified_function(each.function))
        for place, each in enumerate(passes)
    ]
    headings = ("turn", "pass", "pack", "from", "function")
    return (
        table("Passes over the graph, in the order in which they run", headings, rows)
        if rows
        else None
    )


def pack_as_json(pack: PackInfo) -> dict[str, Any]:
    """Returns a pack's provenance as plain data."""
    return {"pack": pack.name, "distribution": pack.distribution, "version": pack.version}


def candidates_as_json(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Returns an op's candidates as plain data, in order."""
    return [
        {
            **pack_as_json(candidate.pack),
            "priority": candidate.priority.name,
            "converter": candidate.qualified_function,
            "tensorrt": candidate.tensorrt,
            "requires": [each.name for each in candidate.support.requires],
            "dtypes": list(candidate.dtypes),
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


def decompositions_as_json(
    decompositions: Sequence[DecompositionCandidate],
) -> list[dict[str, Any]]:
    """Returns an op's decompositions as plain data, in order."""
    return [
        {
            **pack_as_json(each.pack),
            "priority": each.priority.name,
            "function": each.qualified_function,
            "shadowed_by": 1 if place else None,
        }
        for place, each in enumerate(decompositions)
    ]
