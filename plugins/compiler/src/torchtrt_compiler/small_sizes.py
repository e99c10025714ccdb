"""Compares a program with its model for sizes of 0 and 1.

For ``torch.export``, a dynamic size is neither 0 nor 1, whatever its range.
Therefore ``x.shape[0] == 1`` is false, ``squeeze`` removes nothing, and ``x[:2]`` has two rows.
A range may include such sizes all the same. Here the program is compared with the one of each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram

from torchtrt.conversion.size_ranges import Profile, SizeRange, linear_size
from torchtrt.graphs.nodes import model_line
from torchtrt_compiler.lowering import Program
from torchtrt_compiler.size_comparison import Difference, Retrace, Values, compare_at, user_inputs

_MOST_TRIALS = 4
"""For how many guards the model is exported again."""


class Excluded(NamedTuple):
    """Sizes that a program does not compute as its model does.

    Attributes:
        least: The smallest size that the program takes.
        model_line: The line of the model where the two differ first, if PyTorch has it.
        is_refused: Whether the model itself refuses a size of 1, the smallest that was asked for.
    """

    least: int
    model_line: str
    is_refused: bool = False


def excluded_sizes(
    exported: ExportedProgram,
    program: Program,
    profiles: Sequence[Profile],
    retrace: Retrace | None,
) -> dict[Any, Excluded]:
    """Returns for which of a program's symbols sizes of 0 or 1 are excluded.

    Args:
        exported: The exported program.
        program: The same, opened; the profiles have its symbols.
        profiles: The sizes that were asked for.
        retrace: Exports the model again; ``None`` where the exported program is the model.
    """
    symbols = _symbols(exported, program)
    symbols = {symbol: own for symbol, own in symbols.items() if own in profiles[0]}
    usual = {
        symbol: min(max(profiles[0][own].opt, 2), profiles[0][own].max)
        for symbol, own in symbols.items()
    }
    asked = {
        symbol: [size for size in (0, 1) if any(each[own].contains(size) for each in profiles)]
        for symbol, own in symbols.items()
    }
    found: dict[Any, Excluded] = {}

    def compare(point: Values) -> None:
        try:
            compare_at(exported, {**usual, **point}, retrace)
        except Difference as difference:
            line = "" if difference.node is None else model_line(difference.node)
            for symbol, size in point.items():
                is_refused = difference.is_refusal and size == min(asked[symbol]) == 1
                found[symbols[symbol]] = Excluded(size + 1, line, is_refused)

    for symbol, sizes in asked.items():
        for size in reversed(sizes):
            if symbols[symbol] not in found:
                compare({symbol: size})
    # Sizes that have to be equal may be 1 together: no call has only one of them.
    refused = {s: 1 for s, own in symbols.items() if own in found and found[own].is_refused}
    if len(refused) > 1:
        for symbol in refused:
            del found[symbols[symbol]]
        compare(refused)
    ones = {s: 1 for s, sizes in asked.items() if 1 in sizes and symbols[s] not in found}
    if len(ones) > 1:
        compare(ones)
    return found


def branches(
    exported: ExportedProgram,
    program: Program,
    refused: Mapping[Any, Values],
    retrace: Retrace,
) -> list[Any]:
    """Returns the guards that refuse sizes which the model takes, perhaps as another program.

    Args:
        exported: The exported program.
        program: The same, opened.
        refused: Guards, each with values of the opened program's symbols that it refuses. A few of them are tried.
        retrace: Exports the model again.
    """
    symbols = _symbols(exported, program)
    found = list(refused)
    for guard in found[:_MOST_TRIALS]:
        try:
            point = refused[guard]
            values = {symbol: point[own] for symbol, own in symbols.items() if own in point}
            compare_at(exported, values, retrace)
        except Difference as difference:
            if difference.is_refusal or difference.__cause__:
                found.remove(guard)
    return found


def without(profiles: Sequence[Profile], excluded: Mapping[Any, Excluded]) -> tuple[Profile, ...]:
    """Returns the profiles without the excluded sizes. Profiles without any size left are omitted."""
    if not excluded:
        return tuple(profiles)
    narrowed = [
        {
            symbol: size.intersect(SizeRange(excluded[symbol].least, size.opt, size.max))
            if symbol in excluded
            else size
            for symbol, size in profile.items()
        }
        for profile in profiles
    ]
    taken = (each for each in narrowed if all(size.min <= size.max for size in each.values()))
    return tuple(taken)


def _symbols(exported: ExportedProgram, program: Program) -> dict[Any, Any]:
    """Returns the symbols of the exported program's inputs, each with the opened program's."""
    found: dict[Any, Any] = {}
    for given, opened in zip(user_inputs(exported), program.placeholders, strict=True):
        shapes = (getattr(node.meta.get("val"), "shape", ()) for node in (given, opened))
        for sizes in zip(*shapes, strict=True):
            symbols = [
                linear and linear.symbol
                for linear in (
                    linear_size(size.node.expr) for size in sizes if isinstance(size, torch.SymInt)
                )
            ]
            if len(symbols) == 2 and None not in symbols:
                found[symbols[0]] = symbols[1]
    return found
