"""The sizes that a model is compiled for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.sizes.accepted import accepted_sizes
from torchtrt_compiler.sizes.declared import declared_limits
from torchtrt_compiler.sizes.narrowing import Narrowing
from torchtrt_compiler.sizes.small import Excluded, SmallSizes, small_sizes
from torchtrt_runtime.reports.report import NarrowedSize
from torchtrt_runtime.serialization.exported_program import user_inputs
from torchtrt_runtime.size_ranges import Profile, linear_size


@dataclass(frozen=True)
class CompiledSizes:
    """The sizes for which a program is the model, among those that were declared.

    Attributes:
        profiles: The sizes that engines are built for.
        conditions: What the sizes of a call must satisfy besides.
        narrowed: The declared sizes that are left out.
    """

    profiles: tuple[Profile, ...]
    conditions: tuple[Any, ...]
    narrowed: tuple[NarrowedSize, ...]


def compiled_sizes(
    exported: ExportedProgram,
    placeholders: Sequence[Node],
    guards: Mapping[Any, str],
    declared: tuple[Profile, ...],
    inputs: CallInputs,
    is_exported_here: bool,
) -> CompiledSizes:
    """Returns the sizes for which a program is the model.

    Args:
        exported: The exported program.
        placeholders: The inputs of the same program, opened; the profiles have their symbols.
        guards: The conditions under which it is the model, each with the line of the model.
        declared: The profiles that were asked for, as far as PyTorch exported them.
        inputs: The inputs that the model is compiled for.
        is_exported_here: Whether the model was exported for this compilation; otherwise the program is the model.

    Raises:
        InputError: The model's code is another program for each of the sizes asked for.
    """
    small = SmallSizes({}, {})
    if any(profile[symbol].min < 2 for profile in declared for symbol in profile):
        small = _small_sizes(exported, placeholders, guards, declared)
    lines = {**guards, **small.conditions}
    accepted = accepted_sizes(lines, _without(declared, small.excluded))
    if not accepted.profiles:
        raise InputError(
            "The model computes something else for each of the sizes that you asked for than for its optimal sizes. "
            "Declare other sizes, or change the model's code so that it does not depend on the size."
        )
    narrowing = Narrowing(
        placeholders,
        inputs.leaves or placeholders,
        declared_limits(exported),
        declared,
        accepted,
        lines,
        small.excluded,
    )
    rows = tuple(narrowing.rows(exported, is_exported_here))
    return CompiledSizes(accepted.profiles, accepted.conditions, rows)


def _small_sizes(
    exported: ExportedProgram,
    placeholders: Sequence[Node],
    guards: Mapping[Any, str],
    declared: tuple[Profile, ...],
) -> SmallSizes:
    """Returns the small sizes for which an exported program is not right, by the symbols of the opened one."""
    accepted = accepted_sizes(guards, declared)
    if not accepted.profiles:
        return SmallSizes({}, {})
    opened = _opened_symbols(exported, placeholders)
    own = {symbol: own for own, symbol in opened.items()}
    profiles = [
        {symbol: profile[other] for symbol, other in opened.items() if other in profile}
        for profile in accepted.profiles
    ]
    conditions = [condition.xreplace(own) for condition in guards]
    small = small_sizes(exported.graph_module, conditions, profiles)
    excluded = {opened[symbol]: small_size for symbol, small_size in small.excluded.items()}
    return SmallSizes(
        excluded,
        {condition.xreplace(opened): line for condition, line in small.conditions.items()},
    )


def _opened_symbols(exported: ExportedProgram, placeholders: Sequence[Node]) -> dict[Any, Any]:
    """Returns the symbols of the exported program's inputs, each with the opened program's."""
    symbols: dict[Any, Any] = {}
    for node, opened in zip(user_inputs(exported), placeholders, strict=True):
        shapes = (
            getattr(placeholder.meta.get("val"), "shape", ()) for placeholder in (node, opened)
        )
        for sizes in zip(*shapes, strict=True):
            if all(isinstance(size, torch.SymInt) for size in sizes):
                one, other = (linear_size(size.node.expr) for size in sizes)
                if one is not None and other is not None:
                    symbols[one.symbol] = other.symbol
    return symbols


def _without(profiles: Sequence[Profile], excluded: Mapping[Any, Excluded]) -> tuple[Profile, ...]:
    """Returns the profiles without the excluded sizes. Profiles without any size left are omitted."""
    narrowed = [
        {
            symbol: size.intersect(SizeRange(excluded[symbol].least, size.opt, size.max))
            if symbol in excluded
            else size
            for symbol, size in profile.items()
        }
        for profile in profiles
    ]
    taken = (
        profile for profile in narrowed if all(size.min <= size.max for size in profile.values())
    )
    return tuple(taken)
