"""What there is, as data and as text: the packs, and the converters of every op in candidate order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtrt.packs import ConverterPriority, LoadedPack, PackInfo, PackSet, Problem
from torchtrt.packs.info import LOCAL
from torchtrt.registry.candidate import Candidate
from torchtrt.targets import Target, qualified_name

IN_USE = "in use"
DISABLED = "disabled"
NOT_LOADED = "not loaded"


@dataclass(frozen=True, slots=True)
class PackRow:
    """A pack as a person sees it in a listing.

    Attributes:
        info: Who it is.
        status: ``"in use"``, ``"disabled"`` or ``"not loaded"``.
        reason: Why it is not in use.
        summary: What it is for, in its author's words.
        ops: How many ops it has a converter for.
        high: How many of its converters are ``HIGH``.
        decompositions: How many decompositions it has.
    """

    info: PackInfo
    status: str
    reason: str = ""
    summary: str = ""
    ops: int = 0
    high: int = 0
    decompositions: int = 0

    @property
    def state(self) -> str:
        """The status and its reason, as a person reads them."""
        if self.status == DISABLED:
            return self.reason
        return f"{self.status}: {self.reason}" if self.reason else self.status


def list_packs(packs: PackSet, problems: Sequence[Problem]) -> tuple[PackRow, ...]:
    """Returns every installed pack in pack order, in use or not, and ``local`` if this program registered anything."""
    loaded = {entry.info.name: entry for entry in packs.loaded}
    rows = [
        _used_row(loaded[info.name]) if info.name in loaded else _unused_row(info, packs, problems)
        for info in packs.found
    ]
    local = loaded.get(LOCAL)
    if local is not None and (local.pack.converters or local.pack.decompositions):
        rows.append(_used_row(local))
    return tuple(rows)


def _used_row(loaded: LoadedPack) -> PackRow:
    registered = loaded.pack.converters
    return PackRow(
        loaded.info,
        IN_USE,
        summary=loaded.pack.summary,
        ops=len({registration.target for registration in registered}),
        high=sum(registration.priority is ConverterPriority.HIGH for registration in registered),
        decompositions=len(loaded.pack.decompositions),
    )


def _unused_row(info: PackInfo, packs: PackSet, problems: Sequence[Problem]) -> PackRow:
    if info.name in packs.disabled:
        return PackRow(info, DISABLED, packs.disabled[info.name])
    reasons = [problem.what for problem in problems if problem.pack == info.name]
    return PackRow(info, NOT_LOADED, "; ".join(reasons))


def notes(candidates: Sequence[Candidate], position: int) -> Iterator[str]:
    """Yields what a person should know about one of an op's candidates.

    Args:
        candidates: The op's candidates in order.
        position: Which one, from 0.
    """
    candidate = candidates[position]
    support = candidate.support
    yield "dynamic shapes" if support.supports_dynamic_shapes else "static shapes only"
    if support.requires_output_allocator:
        yield "data-dependent output"
    if candidate.validate is not None:
        yield f"checks {candidate.checks}"
    shadow = shadowed_by(candidates, position)
    if shadow is not None:
        yield f"shadowed by {shadow + 1}."


def shadowed_by(candidates: Sequence[Candidate], position: int) -> int | None:
    """Returns the position of an earlier candidate that leaves nothing to this one, if there is one."""
    dynamic = candidates[position].support.supports_dynamic_shapes
    for earlier, candidate in enumerate(candidates[:position]):
        if candidate.validate is None and (
            candidate.support.supports_dynamic_shapes or not dynamic
        ):
            return earlier
    return None


def list_converters(
    packs: PackSet,
    candidates: Mapping[Target, Sequence[Candidate]],
    pending: Collection[str],
    problems: Sequence[Problem],
) -> str:
    """Returns the listing of :meth:`ConverterRegistry.display_all_available_converters`."""
    rows = list_packs(packs, problems)
    used = sum(row.status == IN_USE for row in rows)
    headline = f"{_count(len(candidates), 'op')} from {_count(used, 'pack')}"
    if used < len(rows):
        headline += f" ({len(rows) - used} not in use)"
    lines = [headline]
    if rows:
        lines += ["", *_pack_lines(rows)]
    listed = {row.info.name for row in rows}
    for problem in problems:
        if problem.pack not in listed:
            lines += ["", f"problem: {problem}"]
    if pending:
        lines += ["", f"not in this PyTorch: {', '.join(sorted(pending))}"]
    named = sorted((qualified_name(target), entries) for target, entries in candidates.items())
    for name, entries in named:
        lines += ["", name, *_candidate_lines(entries)]
    return "\n".join(lines)


def _pack_lines(rows: Sequence[PackRow]) -> list[str]:
    table = [("pack", "from", "ops", "high", "status")]
    for row in rows:
        counts = (str(row.ops), str(row.high)) if row.status == IN_USE else ("-", "-")
        table.append((row.info.name, row.info.origin, *counts, row.state))
    return _aligned(table, right=(2, 3))


def _candidate_lines(candidates: Sequence[Candidate]) -> list[str]:
    table = [
        (
            f"  {position + 1}.",
            candidate.priority.name,
            candidate.pack.name,
            candidate.pack.origin,
            candidate.qualified_function,
            ", ".join(notes(candidates, position)),
        )
        for position, candidate in enumerate(candidates)
    ]
    return _aligned(table)


def _aligned(table: Sequence[tuple[str, ...]], right: Collection[int] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
