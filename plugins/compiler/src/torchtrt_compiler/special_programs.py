"""Exports a model again with some of its sizes fixed, and reads the conditions on the others.

The other sizes stay symbolic. Thus one more export decides for all of them, where the program of the fixed sizes has
branches that the general one lacks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from torchtrt.conversion.size_ranges import LinearSize, Profile, linear_size, size_bounds
from torchtrt.graphs.symbols import quiet_tracing, shape_env_of
from torchtrt_compiler.inputs import Input
from torchtrt_compiler.lowering.guards import guard_lines
from torchtrt_compiler.lowering.strides import order_in_memory
from torchtrt_compiler.torch_internals import sympy_functions as functions
from torchtrt_runtime.input_checks import holds

Retrace = Callable[[tuple[Any, ...], dict[str, Any]], ExportedProgram]
"""Exports the model with other inputs: example tensors, whose sizes are fixed, or ranges of sizes."""
Values = Mapping[Any, int]


class Special(NamedTuple):
    """A model that was exported again.

    Attributes:
        program: Its program.
        sizes: For each symbol of the program, an expression of the general program's symbols.
        conditions: The conditions on the general program's symbols under which this program is the model, each with
            the line of the model that it comes from.
    """

    program: ExportedProgram
    sizes: Mapping[Any, Any]
    conditions: Mapping[Any, str]

    def accepts(self, values: Values) -> bool:
        """Returns whether the conditions hold for values of the general program's symbols."""
        return all(holds(condition, values) for condition in self.conditions)

    def values(self, values: Values) -> Values:
        """Returns the values of the program's symbols for values of the general program's."""
        numbers = {symbol: sympy.Integer(value) for symbol, value in values.items()}
        return {symbol: int(size.xreplace(numbers)) for symbol, size in self.sizes.items()}


def user_inputs(exported: ExportedProgram) -> list[Node]:
    """Returns the placeholders of a program that are no weights."""
    nodes = exported.graph.find_nodes(op="placeholder")
    specs = exported.graph_signature.input_specs
    return [
        node for node, spec in zip(nodes, specs, strict=True) if spec.kind is InputKind.USER_INPUT
    ]


def special_program(exported: ExportedProgram, sizes: Profile, retrace: Retrace) -> Special:
    """Returns a model, exported again.

    Args:
        exported: The program of all sizes.
        sizes: The sizes to export for, by the program's symbols. Those of one value are fixed.
        retrace: Exports the model.

    Raises:
        ExportError: The model refuses these sizes.
    """
    leaves = [_example(node.meta.get("val"), sizes) for node in user_inputs(exported)]
    program = retraced(exported, leaves, retrace)
    fixed = {
        symbol: sympy.Integer(each.min) for symbol, each in sizes.items() if each.min == each.max
    }
    pairs = list(_pairs(exported, program, fixed))
    names = dict(_names(pairs))
    lines: dict[Any, str] = {sympy.Eq(size, own.xreplace(names)): "" for size, own in pairs}
    for guard, line in guard_lines(shape_env_of(program.graph)).items():
        lines.setdefault(guard.xreplace(names), line)
    lines.pop(sympy.true, None)
    known = {symbol for size, _ in pairs for symbol in size.free_symbols}
    if any(condition.free_symbols - known for condition in lines):
        lines = {sympy.false: ""}  # sizes of inputs decide one of them no more
    return Special(program, names, lines)


def retraced(exported: ExportedProgram, leaves: Sequence[Any], retrace: Retrace) -> ExportedProgram:
    """Returns the model of a program, exported again with other inputs.

    Args:
        exported: The program.
        leaves: The inputs, flattened.
        retrace: Exports the model.

    Raises:
        ExportError: The model refuses these inputs.
    """
    spec = exported.call_spec.in_spec
    assert spec is not None
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    with warnings.catch_warnings(), quiet_tracing():
        warnings.simplefilter("ignore")  # which were given when it was exported first
        return retrace(args, kwargs)


def _example(value: Any, sizes: Profile) -> Any:
    """Returns a tensor to export with, or the range of its sizes; the value itself where it is no tensor."""
    if not isinstance(value, torch.Tensor):
        return value
    bounds = [size_bounds(size, sizes) for size in value.shape]
    low, usual, high = zip(*bounds, strict=True) if bounds else ((), (), ())
    if low == high:
        return example(value, low)
    return Input(
        min_shape=low, opt_shape=usual, max_shape=high, dtype=value.dtype, device=value.device
    )


def example(value: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns a tensor with the dimensions of another one in the same order in memory.

    Args:
        value: The other tensor.
        shape: The sizes.
    """
    order = order_in_memory(value) or range(len(shape))
    made = torch.ones([shape[dim] for dim in order], dtype=value.dtype, device=value.device)
    return made.permute([list(order).index(dim) for dim in range(len(shape))])


def _pairs(
    exported: ExportedProgram, program: ExportedProgram, fixed: Mapping[Any, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields the sizes of the inputs as the general program has them, where it varies, and as the other one has."""
    for node, other in zip(user_inputs(exported), user_inputs(program), strict=False):
        shapes = (getattr(each.meta.get("val"), "shape", ()) for each in (node, other))
        for size, own in zip(*shapes, strict=False):
            if isinstance(size, torch.SymInt):
                yield size.node.expr.xreplace(fixed), sympy.sympify(_expression(own))


def _expression(size: int | torch.SymInt) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _names(pairs: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yields the symbols of the other program, each with its value in the general one's symbols."""
    found: list[tuple[Any, LinearSize]] = []
    for size, own in pairs:
        if own.free_symbols and (linear := linear_size(own)):
            found.append((size, linear))
    # The last one counts in a mapping: a size that is a symbol needs no division.
    for size, linear in sorted(found, key=lambda each: each[1].is_symbol):
        value = size - linear.offset
        yield (
            linear.symbol,
            value if linear.factor == 1 else functions.FloorDiv(value, linear.factor),
        )
