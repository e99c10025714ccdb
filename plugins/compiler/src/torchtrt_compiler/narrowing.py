"""Reports the declared sizes that a compiled model refuses, because its code is another program for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torchtrt.callers import warn_caller
from torchtrt.conversion.size_ranges import LinearSize, Profile, linear_size, union
from torchtrt.errors import InputError
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.declared_sizes import Limits
from torchtrt_compiler.equal_sizes import Dependence
from torchtrt_compiler.guarded_sizes import Guarded
from torchtrt_compiler.inputs import CallInputs, Input
from torchtrt_compiler.lowering import Program, guard_lines, place_of
from torchtrt_compiler.small_sizes import SmallSizes
from torchtrt_runtime.input_checks import InputChecks
from torchtrt_runtime.report import CompilationReport, NarrowedSize

_MOST_GROUPS = 8
"""How many groups of excluded sizes a row of the report lists at most."""


class Sizes(NamedTuple):
    """The sizes of a compilation.

    Attributes:
        declared: The profiles that were asked for, as far as PyTorch exported them.
        guarded: The part of them for which the guards hold, without small sizes that are excluded.
        small: The sizes of 0 and 1 that the program does not compute as its model does.
        gaps: The guards that refuse sizes between the limits of the profiles, unless the model refuses these itself.
        dependent: The conditions that make sizes depend on each other.
    """

    declared: tuple[Profile, ...]
    guarded: Guarded
    small: SmallSizes
    gaps: Sequence[Any]
    dependent: Sequence[Dependence]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles to build for, which is what remains."""
        return self.guarded.profiles


def narrowed_sizes(
    program: Program,
    sizes: Sizes,
    given: CallInputs,
    limits: Limits,
) -> Iterator[NarrowedSize]:
    """Yields the requested sizes that the model's code, as PyTorch exported it, does not take.

    A condition on several sizes has a row of its own, at the first of them. Sizes between the limits that the model
    itself refuses are no reason for a row: nothing is lost, and no range could leave them out.

    Args:
        program: The program.
        sizes: Its sizes.
        given: The inputs that were given.
        limits: The limits that were declared for example tensors.
    """
    conditions = sizes.guarded.conditions
    as_code = InputChecks.of(program.placeholders, sizes.profiles).as_code
    leaves = given.leaves or program.placeholders
    dimensions = list(_dimensions(program, sizes, leaves, limits))
    for each in dimensions:
        own = [condition for condition in conditions if condition.free_symbols == {each.symbol}]
        (low, high), (least, most) = each.row.asked, each.row.compiled
        excluded = each.groups(sizes.guarded.refused.get(each.symbol, ()))
        if least > low or most < high or {*own} & {*sizes.gaps}:
            line = each.line(sizes, is_minimum=least > low)
            few = tuple(excluded) if len(excluded) <= _MOST_GROUPS else ()
            text = " and ".join(map(as_code, own))
            yield dataclasses.replace(each.row, model_line=line, excluded=few, condition=text)
    for condition in sizes.gaps:
        if len(condition.free_symbols) == 1:
            continue
        first = next(each for each in dimensions if each.symbol in condition.free_symbols)
        line, text = first.guard_line(sizes, condition), as_code(condition)
        yield dataclasses.replace(first.row, model_line=line, condition=text)
    for found in sizes.dependent:
        row = next(
            (each.row for each in dimensions if (each.row.input, each.row.dim) in found.places),
            None,
        )
        if row is not None:
            line, text = found.model_line, found.condition
            yield dataclasses.replace(row, model_line=line, condition=text)


class _Dimension(NamedTuple):
    """A dynamic dimension of an input.

    Attributes:
        linear: The size, by its symbol.
        row: The dimension, the sizes that were asked for, and the limits of those that are compiled.
        environment: Where the symbol lives.
    """

    linear: LinearSize
    row: NarrowedSize
    environment: Any

    @property
    def symbol(self) -> Any:
        """The symbol in the size."""
        return self.linear.symbol

    def groups(self, refused: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the first and the last size of each group of values that are refused between the limits."""
        found: list[tuple[int, int]] = []
        least, most = self.row.compiled
        for value in refused:
            size = self.linear.size(value)
            if not least <= size <= most:
                continue
            if found and found[-1][1] + self.linear.factor == size:
                found[-1] = (found[-1][0], size)
            else:
                found.append((size, size))
        return found

    def guard_line(self, sizes: Sizes, condition: Any) -> str:
        """Returns the line of the model that a guard comes from."""
        lines = {**guard_lines(self.environment), **sizes.small.conditions}
        return lines.get(condition, "")

    def line(self, sizes: Sizes, is_minimum: bool) -> str:
        """Returns the line of the model that narrows the symbol, at the minimum of its range or elsewhere."""
        if is_minimum and self.symbol in sizes.small.excluded:
            return sizes.small.excluded[self.symbol].model_line
        for condition in sizes.guarded.conditions:
            if self.symbol in condition.free_symbols:
                return self.guard_line(sizes, condition)
        places = getattr(self.environment, "var_to_range_sloc", {}).get(self.symbol)
        return place_of(places and (places.lower if is_minimum else places.upper))


def _dimensions(
    program: Program, sizes: Sizes, leaves: Sequence[Any], limits: Limits
) -> Iterator[_Dimension]:
    """Yields the dynamic dimensions of the inputs, with the limits that were asked for and that are compiled."""
    for place, (leaf, placeholder) in enumerate(zip(leaves, program.placeholders, strict=False)):
        for dim, size in enumerate(getattr(placeholder.meta["val"], "shape", ())):
            linear = None if isinstance(size, int) else linear_size(size.node.expr)
            if linear is None or linear.symbol not in sizes.profiles[0]:
                continue
            declared, built = (
                union(profile[linear.symbol] for profile in profiles)
                for profiles in (sizes.declared, sizes.profiles)
            )
            low, high = limits.get((place, dim), (None, None))
            if isinstance(leaf, Input):
                low, high = leaf.bounds[0][dim], leaf.bounds[2][dim]
            asked = linear.values(
                linear.size(declared.min) if low is None else low,
                linear.size(declared.max) if high is None else high,
            )
            low, high, least, most = map(linear.size, (*asked, built.min, built.max))
            row = NarrowedSize(placeholder.name, dim, (low, high), (least, most))
            yield _Dimension(linear, row, size.node.shape_env)


def warn_of_narrowed(report: CompilationReport, options: CompilationSettings) -> None:
    """Warns about sizes that were asked for and are not compiled.

    Raises:
        InputError: There are some, and ``require_full_compilation`` is on.
    """
    if not report.narrowed:
        return
    message = "\n".join(map(str, report.narrowed))
    if options.require_full_compilation:
        raise InputError(message)
    warn_caller(message)
