"""Finds sizes that depend on each other in a program, although they were declared independently.

Where ``if x.shape[0] == y.shape[0]`` is true for the optimal sizes, PyTorch has one symbol for both of them. A call
with other sizes is refused, although the model may take them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram

from torchtrt.conversion.size_ranges import Profile, SizeRange
from torchtrt.errors import ExportError
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_compiler.guarded_sizes import accepted_point
from torchtrt_compiler.inputs import Input
from torchtrt_compiler.lowering import place_of
from torchtrt_compiler.special_programs import Retrace, Values, retraced, user_inputs
from torchtrt_compiler.torch_internals import PythonPrinter, size_as_traced

_MOST_TRIALS = 4
"""How often the model is exported again."""


class Dependence(NamedTuple):
    """A condition that makes sizes depend on each other.

    Attributes:
        places: These sizes, each with the name of its input and its dimension.
        condition: The condition, as the model's code could write it.
        model_line: The line of the model that it comes from, if it is not PyTorch's.
    """

    places: frozenset[tuple[str, int]]
    condition: str
    model_line: str


def dependences(
    exported: ExportedProgram, leaves: Sequence[Any], names: Sequence[str], retrace: Retrace
) -> list[Dependence]:
    """Returns the conditions that make sizes depend on each other, unless the model refuses other sizes itself.

    A condition that an op has on two inputs, such as a sum, is not tried: the op refuses other sizes.

    Args:
        exported: The program.
        leaves: What was given for the inputs, flattened.
        names: The names of the inputs.
        retrace: Exports the model again.
    """
    places = {
        size_as_traced(size): (place, dim)
        for place, (node, leaf) in enumerate(zip(user_inputs(exported), leaves, strict=False))
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ()))
        if isinstance(leaf, Input) and isinstance(size, torch.SymInt)
    }
    codes = {
        symbol: sympy.Symbol(f"{names[place]}.shape[{dim}]")
        for symbol, (place, dim) in places.items()
    }
    declared = {symbol: _declared(leaves[place], dim) for symbol, (place, dim) in places.items()}
    found: dict[Any, Dependence] = {}
    trials = itertools.islice(_trials(exported, declared, places), _MOST_TRIALS)
    for condition, line, point in trials:
        sizes = {places[symbol]: size for symbol, size in point.items()}
        if condition not in found and _takes(exported, leaves, sizes, retrace):
            text = str(PythonPrinter().doprint(condition.xreplace(codes)))
            own = (places[symbol] for symbol in condition.free_symbols)
            named = frozenset((names[place], dim) for place, dim in own)
            found[condition] = Dependence(named, text, line)
    return [*found.values()]


def _declared(leaf: Input, dim: int) -> SizeRange:
    """Returns the sizes of a dimension that were asked for; those of several ranges with what is between them."""
    return SizeRange(*(shape[dim] for shape in leaf.bounds))


def _trials(
    exported: ExportedProgram, declared: Profile, places: Mapping[Any, tuple[int, int]]
) -> Iterator[tuple[Any, str, Values]]:
    """Yields the conditions that became a part of the inputs' shapes, with declared sizes that no earlier one refuses.

    Of each condition, one size after the other is the optimal one. Each condition has the line of the model. Without
    one it is PyTorch's own, and only conditions on one input are yielded.
    """
    environment: Any = shape_env_of(exported.graph)
    guards = {
        guard.expr: place_of(guard.sloc)
        for guard in getattr(environment, "guards", ())
        if guard.expr.free_symbols <= declared.keys()
    }
    for number, (condition, line) in enumerate(guards.items()):
        is_own = bool(line) or len({places[symbol][0] for symbol in condition.free_symbols}) == 1
        if is_own and environment.replace(condition) == True:  # noqa: E712  (SymPy's)
            # Later conditions may depend on the symbol that this one replaced.
            earlier = itertools.islice(guards, number)
            wanted = [sympy.Not(condition), *earlier]
            for symbol in sorted(condition.free_symbols, key=str):
                usual = declared[symbol].opt
                profile = {**declared, symbol: SizeRange(usual, usual, usual)}
                point = accepted_point(wanted, profile)
                if point is not None:
                    yield condition, line, point


def _takes(
    exported: ExportedProgram,
    leaves: Sequence[Any],
    sizes: Mapping[tuple[int, int], int],
    retrace: Retrace,
) -> bool:
    """Returns whether the model takes inputs of these sizes."""
    given = list(leaves)
    for place, (node, leaf) in enumerate(zip(user_inputs(exported), leaves, strict=False)):
        if isinstance(leaf, Input):
            value = node.meta["val"]
            shape = [sizes.get((place, dim), usual) for dim, usual in enumerate(leaf.bounds[1])]
            given[place] = torch.ones(shape, dtype=value.dtype, device=value.device)
    try:
        retraced(exported, given, retrace)
    except ExportError:
        return False
    return True
