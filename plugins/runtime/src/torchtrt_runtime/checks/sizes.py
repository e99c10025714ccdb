"""Checks the sizes of a call: that they fit together, and that a model was compiled for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError
from torchtrt.expressions.values import evaluate, holds
from torchtrt_runtime.checks.dimensions import Dimension, as_code
from torchtrt_runtime.checks.tensors import TensorCheck, misfit
from torchtrt_runtime.reports.rows import OTHER_PROGRAM, NarrowedSize, shortened
from torchtrt_runtime.size_ranges import Profile

_NEARBY = 256
"""How far from a refused size accepted ones are looked for."""


@dataclass(frozen=True)
class SizeChecks:
    """The requirements on the sizes of a model's inputs.

    Attributes:
        codes: For the symbols in the sizes how the model's code could read them.
        profiles: The sizes that go together, for each symbol.
        conditions: Conditions on the symbols.
        narrowed: The sizes that were asked for, where the model's code allows fewer.
        pinned_profile: The place of the only profile whose sizes a call may have; ``None`` where all may be used.
    """

    codes: Mapping[Any, str]
    profiles: tuple[Profile, ...]
    conditions: tuple[Any, ...]
    narrowed: tuple[NarrowedSize, ...]
    pinned_profile: int | None

    def as_code(self, expression: Any) -> str:
        """Returns an expression of the symbols as the model's code could write it."""
        return as_code(expression, self.codes)


class CallSizes:
    """The sizes of the inputs of one call, by the symbols that stand for them.

    Args:
        checks: The requirements on them.
    """

    def __init__(self, checks: SizeChecks) -> None:
        self._checks, self._profiles = checks, checks.profiles
        if checks.pinned_profile is not None:
            self._profiles = (checks.profiles[checks.pinned_profile],)
        self._values: dict[Any, int] = {}
        self._dimensions: dict[Any, Dimension] = {}
        self._derived: list[tuple[Dimension, int]] = []

    def add(self, tensor: TensorCheck, shape: Sequence[int]) -> None:
        """Checks the sizes of one input.

        Raises:
            InputError: One is not as it was compiled, or is in no range.
        """
        for dimension, size in zip(tensor.dimensions, shape, strict=True):
            self._add(dimension, size)

    def _add(self, dimension: Dimension, size: int) -> None:
        """Checks one size, which must be a number, a symbol's value or an expression of symbols."""
        expected = dimension.size
        if isinstance(expected, int):
            if size != expected:
                advice = (
                    "To accept several sizes, compile with a range of sizes in a torchtrt.Input."
                )
                raise misfit(dimension.subject, f"is {size}", expected, advice)
        elif not expected.is_Symbol:
            self._derived.append((dimension, size))
        elif self._values.setdefault(expected, size) != size:
            raise InputError(
                f"{dimension.subject} is {size}, but it must equal the size of {self._dimensions[expected]}, which "
                f"is {self._values[expected]}."
            )
        else:
            self._dimensions.setdefault(expected, dimension)
            self._check_range(dimension, size, [profile[expected] for profile in self._profiles])

    def _check_range(self, dimension: Dimension, size: int, allowed: Sequence[SizeRange]) -> None:
        """Raises an ``InputError`` if a size is in none of the allowed ranges."""
        if not any(sizes.contains(size) for sizes in allowed):
            ranges = " or ".join(dict.fromkeys(map(str, allowed)))
            if (pinned := self._checks.pinned_profile) is not None:
                raise InputError(
                    f"{dimension.subject} is {size}, but runtime_settings pins optimization profile {pinned}, "
                    f"which is for {ranges}. Assign RuntimeSettings with another optimization_profile, or with None "
                    "for the first profile that fits."
                )
            raise InputError(
                f"{dimension.subject} is {size}, but the model was compiled for {ranges}. "
                f"{self._advice(dimension, size, allowed)}"
            )

    def _advice(self, dimension: Dimension, size: int, allowed: Sequence[SizeRange]) -> str:
        """Returns what a user can do about a size that no engine was built for."""
        for row in self._checks.narrowed:
            low, high = row.asked
            if (row.input, row.dim) == (dimension.input, dimension.dim) and low <= size <= high:
                return f"You asked for {low} to {high}, {row.reason}. {row.advice}"
        if dimension.dim is None:
            return "Compile again with a wider range to use this number."
        if size == 0 and min(allowed).min == 1:
            return (
                "Compile again with a torchtrt.Input that has 0 in its min_shape to use this size. A torch.export.Dim "
                "starts at 1 here: PyTorch does not distinguish one with min=0 from one without a minimum."
            )
        return "Compile again with a wider range to use this size."

    def _determine(self) -> None:
        """Finds the values of symbols that are in computed sizes alone."""
        for dimension, size in self._derived:
            linear = dimension.linear
            if linear is None or linear.symbol in self._values:
                continue
            ranges = [profile[linear.symbol] for profile in self._profiles]
            self._check_range(dimension, size, [linear.sizes(range_) for range_ in ranges])
            if (value := linear.value(size)) is None:
                raise InputError(
                    f"{dimension.subject} is {size}, but it must be {linear}, for a whole {linear.symbol}."
                )
            self._values[linear.symbol] = value
            self._dimensions[linear.symbol] = dimension

    def _is_in_a_profile(self, values: Mapping[Any, int]) -> bool:
        return any(
            all(profile[s].contains(values[s]) for s in values) for profile in self._profiles
        )

    def check_together(self) -> None:
        """Checks that one profile has all of the sizes, that computed sizes are as computed, and that conditions hold.

        Raises:
            InputError: They do not go together.
        """
        self._determine()
        values = self._values
        if not self._is_in_a_profile(values):
            sizes = ", ".join(
                f"{self._dimensions[symbol].symbol_text} is {size}"
                for symbol, size in values.items()
            )
            together = (
                ", ".join(
                    f"{self._dimensions[symbol].symbol_text} is {profile[symbol]}"
                    for symbol in values
                )
                for profile in self._profiles
            )
            raise InputError(
                f"The model was compiled for each of these sizes, but not for all of them together: {sizes}. It takes: "
                f"{'; or '.join(together)}."
            )
        for dimension, size in self._derived:
            expected = evaluate(dimension.size, values)
            if expected != size:
                code = self._checks.as_code(dimension.size)
                raise InputError(
                    f"{dimension.subject} is {size}, but it must be {code} = {expected}."
                )
        for condition in self._checks.conditions:
            if not holds(condition, values):
                raise self._refusal(condition)

    def _refusal(self, condition: Any) -> InputError:
        """Returns the error for a condition under which the model was exported, and which does not hold."""
        symbols = sorted(condition.free_symbols, key=str)
        values = " and ".join(
            f"{self._checks.as_code(symbol)} is {self._values.get(symbol)}" for symbol in symbols
        )
        closest = next(filter(None, map(self._closest, symbols)), "")
        code = shortened(self._checks.as_code(condition))
        return InputError(
            f"The model was exported under the condition {code}, but {values}. {closest}{OTHER_PROGRAM}"
        )

    def _closest(self, symbol: Any) -> str:
        """Returns the sizes in place of a refused one that are the closest accepted ones, as a sentence."""

        def is_accepted(value: int) -> bool:
            values = {**self._values, symbol: value}
            return self._is_in_a_profile(values) and all(
                holds(condition, values) for condition in self._checks.conditions
            )

        if (dimension := self._dimensions.get(symbol)) is None:
            return ""
        value = self._values[symbol]
        size_of = dimension.linear.size if dimension.linear else int
        nearby = (range(value + step, value + step * _NEARBY, step) for step in (-1, 1))
        accepted = [next(filter(is_accepted, candidates), None) for candidates in nearby]
        sizes = " or ".join(str(size_of(number)) for number in accepted if number is not None)
        other = " if the other sizes stay as they are" if len(self._values) > 1 else ""
        return sizes and f"{dimension.code} may be {sizes}{other}. "


def check_decidable(conditions: Sequence[Any], profiles: Sequence[Profile]) -> None:
    """Checks that the sizes of the inputs decide every condition of a program.

    Raises:
        InputError: One has a symbol that no input determines.
    """
    for condition in conditions:
        if unknown := condition.free_symbols - profiles[0].keys():
            raise InputError(
                f"The model was exported under the condition {condition}, which the sizes of its inputs do not decide "
                f"({', '.join(sorted(map(str, unknown)))} is the size of no input). A compiled model could not check "
                "it. Fix the sizes that the condition depends on."
            )
