"""The order law: which candidate for an op is tried first.

The candidates are what you would get had every pack registered, in pack order, into one list where
STANDARD goes to the back and HIGH to the front. Packs that the user prefers come before all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torchtrt.packs import ConverterPriority
from torchtrt.packs.info import THIRD_PARTY_TIER
from torchtrt.registry.candidate import Candidate, DecompositionCandidate
from torchtrt.targets import Target, qualified_name

Entry = TypeVar("Entry", Candidate, DecompositionCandidate)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two third parties each put something HIGH before all others of one op, and no preference decides.

    Attributes:
        target: The op.
        candidates: Their converters, or their decompositions. The first is the one that the order law puts first.
    """

    target: Target
    candidates: tuple[Candidate, ...] | tuple[DecompositionCandidate, ...]

    @property
    def kind(self) -> str:
        """``"converter"`` or ``"decomposition"``."""
        return "converter" if isinstance(self.candidates[0], Candidate) else "decomposition"

    def __str__(self) -> str:
        winner, *others = dict.fromkeys(candidate.pack.name for candidate in self.candidates)
        settings = ", or converter_preferences in one compilation," * (self.kind == "converter")
        return (
            f"{qualified_name(self.target)} is claimed with a HIGH {self.kind} by {winner} and {', '.join(others)}; "
            f"{winner} comes first. Set TORCHTRT_PACKS_PREFER{settings} to choose."
        )


def in_order(registered: Iterable[Entry], preferred: Sequence[str] = ()) -> tuple[Entry, ...]:
    """Returns the converters, or the decompositions, of one op in the order in which they are tried.

    Args:
        registered: The entries in pack order and, within a pack, in the order of registration.
        preferred: Names of the packs to try first, in this order.
    """
    standard: list[Entry] = []
    high: list[Entry] = []
    for entry in registered:
        (high if entry.priority is ConverterPriority.HIGH else standard).append(entry)
    ordered = high[::-1] + standard
    if preferred:
        rank = {name: position for position, name in enumerate(preferred)}
        ordered.sort(key=lambda entry: rank.get(entry.pack.name, len(rank)))
    return tuple(ordered)


def preferred_first(entries: Sequence[Entry], pack_name: str | None) -> tuple[Entry, ...]:
    """Returns the entries of an op with those of one pack first, as a preference for the op puts them."""
    return tuple(sorted(entries, key=lambda entry: entry.pack.name != pack_name))


def find_conflicts(
    candidates: Mapping[Target, Sequence[Any]], preferred: Sequence[str] = ()
) -> tuple[Conflict, ...]:
    """Returns the ops for which several third parties have a HIGH candidate and no preference settles it."""
    conflicts = []
    for target, ordered in candidates.items():
        rivals = tuple(
            candidate
            for candidate in ordered
            if candidate.priority is ConverterPriority.HIGH
            and candidate.pack.tier == THIRD_PARTY_TIER
            and ordered[0].pack.name not in preferred
        )
        if len({candidate.pack.name for candidate in rivals}) > 1:
            conflicts.append(Conflict(target, rivals))
    return tuple(conflicts)
