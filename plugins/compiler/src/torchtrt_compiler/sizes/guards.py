"""The conditions on input sizes under which a program was exported. PyTorch calls them guards."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.guard_texts import InputNames, written_guards
from torchtrt_compiler.torch_internals import (
    LIBRARIES,
    ValueRanges,
    bound_sympy,
    int_oo,
    size_as_traced,
)
from torchtrt_runtime.serialization.exported_program import user_inputs
from torchtrt_runtime.size_ranges import Profile


def guards_of(exported: ExportedProgram) -> dict[Any, str]:
    """Returns a program's guards as SymPy conditions on the symbols of its inputs' sizes, each with the model's line.

    PyTorch keeps them with the symbols while the program stays in the process that traced it, and as
    text in a file. The symbols of a program from a file have guards too: those that opening it added.

    Args:
        exported: The program.

    Raises:
        UnsupportedProgramError: A guard in a program from a file has a form that cannot be read. Or guards have a
            number that the program takes as an input, and it cannot be found out which.
    """
    environment: Any = shape_env_of(exported.graph)
    # Only tracing records which inputs its symbols come from. Opening a file takes numbers for constants.
    sources = itertools.chain(*getattr(environment, "var_to_sources", {}).values())
    if any(type(source).__name__ != "ConstantSource" for source in sources):
        return guard_lines(environment, _FixedNumbers.of(exported, environment))
    return {**dict.fromkeys(written_guards(exported), ""), **guard_lines(environment)}


def is_assumed(guard: Any, numbers: Collection[Any] = frozenset()) -> bool:
    """Returns whether a guard holds for all sizes of 2 or more: PyTorch assumes it, and asks where a file lost that.

    Args:
        guard: The guard.
        numbers: The symbols that are numbers. PyTorch assumes nothing of them.
    """
    if not guard.free_symbols.isdisjoint(numbers):
        return False
    return _is_certain(guard, {symbol: ValueRanges(2, int_oo) for symbol in guard.free_symbols})


def always_holds(condition: Any, sizes: Profile) -> bool:
    """Returns whether a condition certainly holds for all sizes of a profile."""
    ranges = {symbol: ValueRanges(size.min, size.max) for symbol, size in sizes.items()}
    return _is_certain(condition, ranges)


def _is_certain(condition: Any, ranges: dict[Any, Any]) -> bool:
    bounds = bounds_of(condition, ranges)
    return bool(bounds.is_singleton() and bounds.lower == True)  # noqa: E712  (SymPy's)


def bounds_of(expression: Any, ranges: dict[Any, Any]) -> Any:
    """Returns the bounds of an expression. PyTorch has none for a number combined with a condition."""
    try:
        return bound_sympy(expression, ranges)
    except AssertionError:
        return ValueRanges(-int_oo, int_oo)


class _FixedNumbers(NamedTuple):
    """The numbers of a call that a program fixes, by the symbols that they were traced as.

    A strict export has the number of its example for an input that no op reads, and guards with the symbol.

    Attributes:
        values: The number of each symbol.
        absent: The same of the symbols that no input's size has.
    """

    values: Mapping[Any, Any]
    absent: Mapping[Any, Any]

    @classmethod
    def of(cls, exported: ExportedProgram, environment: Any) -> _FixedNumbers:
        """Returns the numbers of a program.

        Args:
            exported: The program.
            environment: Its ``ShapeEnv``, which knows what PyTorch calls the inputs.

        Raises:
            UnsupportedProgramError: PyTorch replaced a symbol by other sizes, and no input has the symbol's name.
        """
        inputs = [node.meta.get("val") for node in user_inputs(exported)]
        if not any(type(value) is int for value in inputs):
            return cls({}, {})
        shapes = (value.shape if isinstance(value, torch.Tensor) else (value,) for value in inputs)
        sizes = [size for shape in shapes for size in shape if isinstance(size, torch.SymInt)]
        present = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
        traced = present.union(*(size_as_traced(size).free_symbols for size in sizes))
        equal = {symbol for symbol, value in environment.replacements.items() if value.free_symbols}
        names, values = InputNames(exported), {}
        for symbol, sources in environment.var_to_sources.items():
            for source in sources:
                # Earlier versions of PyTorch have a method.
                name = source.name() if callable(source.name) else source.name
                value = names.value(name)
                if value is None and symbol in equal - traced:
                    raise UnsupportedProgramError(
                        f"The program was exported for a number {name} that depends on sizes, and torchtrt cannot find "
                        "it among the inputs. A compiled model could not check it. Export the model with strict=False, "
                        "or for a fixed number."
                    )
                if value is not None and value.is_Integer:
                    values[symbol] = value
        absent = {symbol: value for symbol, value in values.items() if symbol not in present}
        return cls(values, absent)


_NO_NUMBERS = _FixedNumbers({}, {})


def guard_lines(environment: Any, numbers: _FixedNumbers = _NO_NUMBERS) -> dict[Any, str]:
    """Returns the guards of a ``ShapeEnv``, each with the line of the model that it comes from, if any.

    Args:
        environment: The ``ShapeEnv``, or None.
        numbers: The numbers that the program fixes. That they have their values is a guard as well.
    """
    if environment is None:
        return {}
    lines: dict[Any, str] = {}
    for guard in environment.guards:
        condition = environment.replace(guard.expr).xreplace(numbers.absent)
        lines.setdefault(condition, place_of(guard.sloc))
    for symbol, value in numbers.values.items():
        size = environment.replace(symbol).xreplace(numbers.absent)
        lines.setdefault(sympy.Eq(size, value), "")
    lines.pop(sympy.true, None)
    return lines


def fixing_lines(environment: Any, size: int) -> list[str]:
    """Returns the lines of the model at which a dynamic size may have been fixed to a number.

    Args:
        environment: The ``ShapeEnv`` of the program, or None.
        size: The number.
    """
    if environment is None:
        return []
    symbols = {symbol for symbol, value in environment.replacements.items() if value == size}
    fixing = getattr(environment, "replacements_slocs", {})
    sources = [fixing.get(symbol) for symbol in symbols]
    sources += [guard.sloc for guard in environment.guards if symbols & guard.expr.free_symbols]
    return list(dict.fromkeys(filter(None, map(place_of, sources))))


def place_of(source: Any) -> str:
    """Returns the line of the model that PyTorch took an assumption from, unless that was PyTorch's own code."""
    return line_of(getattr(source, "framework_loc", None))


def line_of(frame: Any) -> str:
    """Returns a line of the model, unless a frame is of PyTorch's own code, or of torchtrt's."""
    if not isinstance(frame, traceback.FrameSummary) or frame.filename.startswith(LIBRARIES):
        return ""
    return f'File "{frame.filename}", line {frame.lineno}, in {frame.name}'
