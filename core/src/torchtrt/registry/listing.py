"""Listings, as data and as text: the packs, and the converters of every op in candidate order."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtrt.contract import qualified_function
from torchtrt.packs import ConverterPriority, Problem
from torchtrt.packs.listing import IN_USE, PackRow, list_packs
from torchtrt.packs.preferences import preferred_by_environment
from torchtrt.registry.candidate import Candidate, DecompositionCandidate
from torchtrt.registry.order import Entry, preferred_first
from torchtrt.registry.passes import passes_of
from torchtrt.registry.table import Table, ops_by_pack
from torchtrt.targets import Target, qualified_name

_WIDEST_NAME = 52
"""The column of the packs; the few longer names push it to the right."""


def notes(candidates: Sequence[Candidate], position: int) -> Iterator[str]:
    """Yields what a user should know about one of an op's candidates.

    Args:
        candidates: The op's candidates in order.
        position: Which one, from 0.
    """
    candidate = candidates[position]
    support = candidate.support
    yield "dynamic shapes" if support.supports_dynamic_shapes else "static shapes only"
    if support.requires_output_allocator:
        yield "data-dependent output"
    if support.tensorrt:
        yield f"TensorRT {support.tensorrt}"
    if support.requires:
        yield f"requires {', '.join(capability.title for capability in support.requires)}"
    if candidate.dtypes:
        yield f"dtypes {' '.join(candidate.dtypes)}"
    if candidate.validate is not None:
        yield f"checks {candidate.checks}"
    if (shadow := shadowed_by(candidates, position)) is not None:
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


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op, and who provides it.

    Attributes:
        op: The name of the op.
        providers: The names of its packs in the order in which converters and decompositions are tried. The words
            ``HIGH``, ``preferred`` and ``decomposition`` follow a name where they apply.
        in_conflict: Whether two third parties claim the op with ``HIGH``, and no preference decides.
    """

    op: str
    providers: tuple[str, ...]
    in_conflict: bool = False

    def __str__(self) -> str:
        return ", ".join(self.providers) + "  (conflict)" * self.in_conflict


def op_rows(table: Table) -> tuple[OpRow, ...]:
    """Returns a row for each op that is converted or decomposed, by name."""
    conflicts = {conflict.target for conflict in table.conflicts}
    preferences = preferred_by_environment(table.packs)
    decomposed = table.decomposition_candidates
    rows = {}
    for target in {*table.candidates, *decomposed}:
        preferred = preferences.get(target)
        before: list[str] = []
        behind: list[str] = []
        for candidate in preferred_first(table.candidates.get(target, ()), preferred):
            is_preferred = candidate.pack.name in (preferred, *table.packs.preferred)
            comes_later = not is_preferred and table.shadowing_decomposition(candidate)
            words = (candidate.pack.name, *_marks(candidate), *["preferred"] * is_preferred)
            (behind if comes_later else before).append(" ".join(words))
        for entry in decomposed.get(target, ()):
            before.append(" ".join((entry.pack.name, *_marks(entry), "decomposition")))
        # A pack may have several converters of an op, for different nodes.
        providers = tuple(dict.fromkeys((*before, *behind)))
        name = qualified_name(target)
        rows[name] = OpRow(name, providers, target in conflicts)
    return tuple(rows[name] for name in sorted(rows))


def _marks(entry: Candidate | DecompositionCandidate) -> Iterator[str]:
    if entry.priority is ConverterPriority.HIGH:
        yield entry.priority.name


def op_lines(rows: Iterable[OpRow]) -> list[str]:
    """Returns one line for each op, which a search for the op or for a pack finds."""
    rows = tuple(rows)
    width = min(max((len(row.op) for row in rows), default=0), _WIDEST_NAME)
    return [f"{row.op:<{width}}  {row}" for row in rows]


def list_everything(table: Table, problems: Sequence[Problem], verbose: bool = False) -> str:
    """Returns the listing of ``ConverterRegistry.display_all_available_converters``.

    Its lines are 80 columns wide, but for those that are one op each.
    """
    ops = [
        *("Ops, and the packs that provide them, in the order in which they are tried", ""),
        *op_lines(op_rows(table)),
    ]
    details = [
        "Converters, in the order in which they are tried",
        *_converter_lines(table),
        "",
        "Decompositions; the first of an op is used",
        *_decomposition_lines(table),
    ]
    lines = [
        *_pack_lines(table, problems),
        "",
        *(details if verbose else ops),
        "",
        "Passes over the graph, in the order in which they run",
        "",
        *_pass_lines(table, verbose),
    ]
    return "\n".join(lines).rstrip()


def _pack_lines(table: Table, problems: Sequence[Problem]) -> Iterator[str]:
    """Yields how many ops and packs there are, each pack, problems of others, conflicts and missing ops."""
    rows = list_packs(table.packs, problems)
    used = len([row for row in rows if row.status == IN_USE])
    ops = {*table.candidates, *table.decomposition_candidates}
    headline = f"{_count(len(ops), 'op')} from {_count(used, 'pack')}"
    if used < len(rows):
        headline += f" ({len(rows) - used} not in use)"
    yield from (headline, "")
    for row in rows:
        yield from _wrapped("", f"{row.info.name} ({row.info.origin}): {', '.join(_counts(row))}")
    listed = {row.info.name for row in rows}
    for problem in problems:
        if problem.pack not in listed:
            yield from ("", *_wrapped("", f"problem: {problem}"))
    for conflict in table.conflicts:
        yield from ("", *_wrapped("", f"conflict: {conflict}"))
    for name, missing in ops_by_pack(table.pending).items():
        yield from (
            "",
            *_wrapped("", f"not in this PyTorch, of {name}: {', '.join(sorted(missing))}"),
        )


def _converter_lines(table: Table) -> Iterator[str]:
    for name, candidates in _by_name(table.candidates):
        yield from ("", name)
        for index, candidate in enumerate(candidates):
            yield from _entry_lines(index, candidate, notes(candidates, index))


def _decomposition_lines(table: Table) -> Iterator[str]:
    for name, decompositions in _by_name(table.decomposition_candidates):
        yield from ("", name)
        for index, candidate in enumerate(decompositions):
            yield from _entry_lines(index, candidate, ["shadowed by 1."] if index else [])


def _pass_lines(table: Table, verbose: bool) -> Iterator[str]:
    for step in passes_of(table.packs):
        if verbose:
            yield from _wrapped("", f"{step.name} of {step.pack.name} ({step.pack.origin})")
            yield f"     {qualified_function(step.function)}"
        else:
            yield f"{step.name}  {step.pack.name}"


def _counts(row: PackRow) -> Iterator[str]:
    yield row.state
    if row.converters:
        yield _count(row.converters, "converter") + (f" ({row.high} HIGH)" if row.high else "")
    if row.decompositions:
        yield _count(row.decompositions, "decomposition")
    if row.passes:
        yield _count(row.passes, "pass", "passes")
    if row.tensorrt:
        yield f"TensorRT {row.tensorrt}"


def _by_name(entries: Mapping[Target, Sequence[Entry]]) -> list[tuple[str, Sequence[Entry]]]:
    return sorted((qualified_name(target), entries[target]) for target in entries)


def _entry_lines(
    position: int, entry: Candidate | DecompositionCandidate, notes: Iterable[str]
) -> Iterator[str]:
    yield from _wrapped(
        "  ", f"{position + 1}. {entry.priority.name} {entry.pack.name} ({entry.pack.origin})"
    )
    yield f"     {entry.qualified_function}"
    yield from _wrapped("     ", ", ".join(notes))


def _wrapped(indent: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, 80, initial_indent=indent, subsequent_indent=f"{indent}    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"
