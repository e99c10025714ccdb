"""The conditions on input sizes under which a program was exported. PyTorch calls them guards."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.sizes.guard_texts import written_guards
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
        UnsupportedProgramError: A guard that is text has a form that cannot be read.
    """
    environment: Any = shape_env_of(exported.graph)
    lines = guard_lines(environment)
    sizes = input_sizes(exported)
    traced = {symbol for size in sizes for symbol in size_as_traced(size).free_symbols}
    kinds = {
        symbol: {type(source).__name__ for source in sources}
        for symbol, sources in getattr(environment, "var_to_sources", {}).items()
    }
    # Only tracing records where symbols come from.
    is_from_file = all(kind == {"ConstantSource"} for kind in kinds.values())
    of_numbers = {symbol for symbol, kind in kinds.items() if "TensorPropertySource" not in kind}
    has_texts = hasattr(exported, "_guards_code")  # newer than torch 2.9
    if not is_from_file and (of_numbers <= traced or not has_texts):
        return lines
    # A strict export has the number of its example for an input that no op reads, and guards with its symbol.
    own = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
    of_own = {guard: line for guard, line in lines.items() if guard.free_symbols <= own}
    return {**dict.fromkeys(written_guards(exported), ""), **of_own}


def input_sizes(exported: ExportedProgram) -> list[torch.SymInt]:
    """Returns the sizes of a program's inputs that vary, and the numbers among them."""
    values = [node.meta.get("val") for node in user_inputs(exported)]
    shapes = (value.shape if isinstance(value, torch.Tensor) else (value,) for value in values)
    return [size for shape in shapes for size in shape if isinstance(size, torch.SymInt)]


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
    """Returns the guards of a ``ShapeEnv``, or of None, each with the line of the model that it comes from, if any."""
    lines: dict[Any, str] = {}
    for guard in getattr(environment, "guards", ()):
        lines.setdefault(environment.replace(guard.expr), place_of(guard.sloc))
    lines.pop(sympy.true, None)
    return lines


def guards_since(exported: ExportedProgram, count: int) -> set[Any]:
    """Returns the guards that PyTorch added to the first ones, as they were asked and with replaced symbols."""
    environment: Any = shape_env_of(exported.graph)
    asked = [guard.expr for guard in getattr(environment, "guards", ())[count:]]
    return {*asked, *map(environment.replace, asked)} if asked else set()


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
