"""The conditions on input sizes under which a program was exported. PyTorch calls them guards."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from typing import Any

import sympy
from torch.export import ExportedProgram

from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.guard_texts import written_guards
from torchtrt_compiler.torch_internals import LIBRARIES, ValueRanges, bound_sympy, int_oo
from torchtrt_runtime.size_ranges import Profile


def guards_of(exported: ExportedProgram) -> dict[Any, str]:
    """Returns a program's guards as SymPy conditions on the symbols of its inputs' sizes, each with the model's line.

    PyTorch keeps them with the symbols while the program stays in the process that traced it, and as
    text in a file. The symbols of a program from a file have guards too: those that opening it added.

    Args:
        exported: The program.

    Raises:
        UnsupportedProgramError: A guard in a program from a file has a form that cannot be read.
    """
    environment: Any = shape_env_of(exported.graph)
    traced = guard_lines(environment)
    # Only tracing records which inputs its symbols come from.
    if environment is not None and getattr(environment, "var_to_sources", None):
        return traced
    return {**dict.fromkeys(written_guards(exported), ""), **traced}


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


def guard_lines(environment: Any) -> dict[Any, str]:
    """Returns the guards of a ``ShapeEnv``, each with the line of the model that it comes from, if any."""
    guards = () if environment is None else environment.guards
    lines: dict[Any, str] = {}
    for guard in guards:
        lines.setdefault(environment.replace(guard.expr), place_of(guard.sloc))
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
