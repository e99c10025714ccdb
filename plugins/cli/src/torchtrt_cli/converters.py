"""``torchtrt converters [OP]``: which packs provide which ops, in their order; the details of an op, or of all."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from torchtrt.contract import check_names, qualified_function
from torchtrt.packs.preferences import preferred_by_environment
from torchtrt.packs.state import current_packs
from torchtrt.registry import (
    DYNAMO_CONVERTERS,
    Candidate,
    DecompositionCandidate,
    PackInfo,
    PackPass,
    lowering_passes,
)
from torchtrt.registry.listing import notes, op_lines, shadowed_by
from torchtrt.registry.order import preferred_first
from torchtrt.targets import Target, parse_targets, qualified_name
from torchtrt_cli.output import console, print_json, table
from torchtrt_cli.packs import conflict_as_json

if TYPE_CHECKING:
    from torchtrt_runtime.reports.text_tables import Listing

CandidatesByName = Mapping[str, Sequence[Candidate]]


def run(arguments: argparse.Namespace) -> int:
    """Prints the packs of all ops, one line an op, and the passes; the converters and decompositions of one op."""
    op = arguments.op
    is_pattern = op is None or any(character in op for character in "*?[")
    names = _matching(op or "*") if is_pattern else _of_op(op)
    rows = [row for row in DYNAMO_CONVERTERS.list_ops() if row.op in names]
    candidates, decompositions = _candidates(names), _decompositions(names)
    conflicts = [
        conflict
        for conflict in DYNAMO_CONVERTERS.conflicts()
        if qualified_name(conflict.target) in names
    ]
    passes = lowering_passes() if op is None else ()
    if arguments.json:
        print_json(
            {
                "converters": {name: candidates_as_json(candidates[name]) for name in candidates},
                "decompositions": {
                    name: decompositions_as_json(decompositions[name]) for name in decompositions
                },
                "passes": [
                    {
                        **pack_as_json(pass_.pack),
                        "pass": pass_.name,
                        "function": qualified_function(pass_.function),
                    }
                    for pass_ in passes
                ],
                "conflicts": [conflict_as_json(conflict) for conflict in conflicts],
            }
        )
    elif is_pattern and not arguments.verbose:
        out = console()
        for line in (
            *op_lines(rows),
            *(f"pass {pass_.name}  {pass_.pack.name}" for pass_ in passes),
        ):
            out.print(line, soft_wrap=True)  # a search finds an op and its packs in one line
    else:
        if candidates:
            console().print(candidate_table(candidates))
        if decompositions:
            console().print(decomposition_table(decompositions))
        if passes:
            console().print(pass_table(passes))
    if not arguments.json:
        for conflict in conflicts:
            console().print(f"conflict: {conflict}", style="yellow")
    if op is not None and not rows:
        none = (
            f"No op that a pack provides matches {op}"
            if is_pattern
            else f"No pack has a converter for {op}"
        )
        print(f"torchtrt: {none}.", file=sys.stderr)
        return 1
    return 0


def _matching(pattern: str) -> Mapping[str, Target]:
    """Returns the ops that a pack provides whose names match a pattern with ``*`` and ``?``, by name."""
    targets = (
        *DYNAMO_CONVERTERS.unique_targets(),
        *DYNAMO_CONVERTERS.decomposition_candidates(),
    )
    named = sorted({qualified_name(target): target for target in targets}.items())
    pattern = pattern.replace("::", ".")
    return {name: target for name, target in named if fnmatchcase(name, pattern)}


def _of_op(op: str) -> Mapping[str, Target]:
    """Returns the ops of a name in any spelling, by name: a packet stands for all its overloads.

    Raises:
        UnknownTargetError: There is no such op.
    """
    return dict(sorted((qualified_name(target), target) for target in parse_targets(op)))


def candidates_for(op: str) -> CandidatesByName:
    """Returns the candidates for an op in any spelling; a packet stands for all its overloads that have any.

    Raises:
        UnknownTargetError: There is no such op.
    """
    return _candidates(_of_op(op))


def _candidates(names: Mapping[str, Target]) -> CandidatesByName:
    """Returns the candidates of those ops that have any, in the order in which they are tried."""
    preferred = preferred_by_environment(current_packs())
    by_name = {
        name: preferred_first(DYNAMO_CONVERTERS.candidates(target), preferred.get(target))
        for name, target in names.items()
    }
    return {name: candidates for name, candidates in by_name.items() if candidates}


def _decompositions(names: Mapping[str, Target]) -> Mapping[str, Sequence[DecompositionCandidate]]:
    """Returns the decompositions of those ops that have any, in order."""
    decompositions = DYNAMO_CONVERTERS.decomposition_candidates()
    return {
        name: decompositions[target] for name, target in names.items() if target in decompositions
    }


def _is_preferred(candidate: Candidate) -> bool:
    """Returns whether the environment puts a candidate before those of other packs."""
    packs = current_packs()
    preferred = preferred_by_environment(packs).get(candidate.target)
    return candidate.pack.name in (preferred, *packs.preferred)


def candidate_table(by_name: CandidatesByName) -> Listing:
    """Returns a table of candidates, in the order in which they are tried."""
    rows = [
        (
            name if position == 0 else "",
            position + 1,
            candidate.priority.name + ", preferred" * _is_preferred(candidate),
            candidate.pack.name,
            candidate.pack.origin,
            candidate.qualified_function,
            ", ".join(notes(candidates, position)),
        )
        for name, candidates in by_name.items()
        for position, candidate in enumerate(candidates)
    ]
    headings = ("op", "turn", "priority", "pack", "from", "converter", "notes")
    return table("Converters, in the order in which they are tried", headings, rows)


def decomposition_table(by_name: Mapping[str, Sequence[DecompositionCandidate]]) -> Listing:
    """Returns a table of decompositions. The first one of an op is used."""
    rows = [
        (
            name if index == 0 else "",
            index + 1,
            decomposition.priority.name,
            decomposition.pack.name,
            decomposition.pack.origin,
            decomposition.qualified_function,
            "shadowed by 1." if index else "",
        )
        for name, decompositions in by_name.items()
        for index, decomposition in enumerate(decompositions)
    ]
    headings = ("op", "turn", "priority", "pack", "from", "function", "notes")
    return table("Decompositions; the first of an op is used", headings, rows)


def pass_table(passes: Sequence[PackPass]) -> Listing:
    """Returns a table of passes over the graph, in the order in which they run."""
    rows = [
        (
            index + 1,
            pass_.name,
            pass_.pack.name,
            pass_.pack.origin,
            qualified_function(pass_.function),
        )
        for index, pass_ in enumerate(passes)
    ]
    headings = ("turn", "pass", "pack", "from", "function")
    return table("Passes over the graph, in the order in which they run", headings, rows)


def pack_as_json(pack: PackInfo) -> dict[str, Any]:
    """Returns a pack's provenance as plain data."""
    return {"pack": pack.name, "distribution": pack.distribution, "version": pack.version}


def candidates_as_json(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Returns an op's candidates as plain data, in order."""
    return [
        {
            **pack_as_json(candidate.pack),
            "priority": candidate.priority.name,
            "preferred": _is_preferred(candidate),
            "converter": candidate.qualified_function,
            "tensorrt": candidate.tensorrt,
            "requires": [capability.name for capability in candidate.support.requires],
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
            **pack_as_json(decomposition.pack),
            "priority": decomposition.priority.name,
            "function": decomposition.qualified_function,
            "shadowed_by": 1 if index else None,
        }
        for index, decomposition in enumerate(decompositions)
    ]
