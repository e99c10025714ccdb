"""Compares a program of all sizes with the program that its model is for known sizes.

The model is exported again for these sizes. If it was exported elsewhere, its graph is computed with fake tensors of
these sizes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from torchtrt.conversion.size_ranges import Profile, SizeRange
from torchtrt.errors import ExportError
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import mutates
from torchtrt_compiler.lowering.aliasing import (
    copies_by_strides,
    is_contiguous,
    may_share,
    shares_memory,
)
from torchtrt_compiler.lowering.regions import autocast_restored
from torchtrt_compiler.special_programs import (
    Retrace,
    Special,
    Values,
    example,
    special_program,
    user_inputs,
)
from torchtrt_compiler.torch_internals import FakeTensorMode

aten = torch.ops.aten
_VIEWS = frozenset({
    aten.alias.default, aten.detach.default, aten.detach_.default, aten.expand.default, aten.slice.Tensor,
    aten.view.default,
})  # fmt: skip
"""Ops that are the tensor itself where neither its shape nor its dtype changes."""
_COPIES = frozenset({
    aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default, aten.reshape.default,
    aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten._unsafe_view.default,
})  # fmt: skip
"""Ops that have the tensor's elements there, perhaps in other memory."""


class Difference(Exception):
    """The node of the general program at which a program of known sizes is another."""

    def __init__(self, node: Node | None = None, is_refusal: bool = False) -> None:
        super().__init__(node)
        self.node = node
        self.is_refusal = is_refusal  # the model itself, exported again, refuses these sizes


def compare_at(
    exported: ExportedProgram, points: Sequence[Values], sizes: Profile, retrace: Retrace | None
) -> Mapping[Any, str]:
    """Compares a program with its model, and returns the conditions on the sizes under which the two were compared.

    Each condition has the line of the model that it comes from.

    Args:
        exported: The program.
        points: Values of the program's symbols at which the two must be the same. The first one is the optimum of
            ``sizes``. Of the others, those that the conditions refuse are ignored.
        sizes: The sizes for which the model is exported again; those with one value are fixed.
        retrace: Exports the model again; ``None`` where the exported program is the model.

    Raises:
        Difference: The program is not the model's.
    """
    if retrace is None:
        _Replay(exported, points[0]).compare()
        return {}
    try:
        special = _special_program(exported, points[0], sizes, retrace)
    except ExportError:
        raise Difference(is_refusal=True) from None
    if not special.accepts(points[0]):
        raise Difference
    for point in filter(special.accepts, points if special.sizes else points[:1]):
        _Comparison(
            _Side(exported, exported.graph_module, point),
            _Side(special.program, special.program.graph_module, special.values(point)),
        )
    return special.conditions


def _special_program(
    exported: ExportedProgram, point: Values, sizes: Profile, retrace: Retrace
) -> Special:
    """Returns a model, exported again for sizes, or for one point of them where some cannot be symbolic.

    An ``Input`` stands for symbolic sizes, and is contiguous.

    Raises:
        ExportError: The model refuses the point.
    """
    fixed = {symbol: SizeRange(size, size, size) for symbol, size in point.items()}
    if fixed == sizes:
        return special_program(exported, fixed, retrace)
    values = (node.meta.get("val") for node in user_inputs(exported))
    with contextlib.suppress(ExportError):
        if all(is_contiguous(value) for value in values if isinstance(value, torch.Tensor)):
            return special_program(exported, sizes, retrace)
    return special_program(exported, fixed, retrace)._replace(conditions={})


def _example(value: Any, values: Values) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return example(value, [int(_known(size, values)) for size in value.shape])


def _known(value: Any, values: Values) -> Any:
    """Returns a number for a symbolic one; what depends on data keeps its expression.

    Raises:
        Difference: The expression divides by zero.
    """
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    numbers = {symbol: sympy.Integer(number) for symbol, number in values.items()}
    try:
        expression = value.node.expr.xreplace(numbers)
    except ZeroDivisionError:
        raise Difference from None
    if expression.free_symbols:
        return str(expression)
    return value.node.pytype(expression)


# Two programs


class _Side:
    """One of two programs that are compared, as one computes with sizes of these values.

    Args:
        program: The exported program.
        graph_module: Its graph, or one inside it.
        values: Numbers for the symbols of its sizes.
    """

    def __init__(self, program: ExportedProgram, graph_module: GraphModule, values: Values) -> None:
        self.program, self.graph_module, self.values = program, graph_module, values
        self.written = _written(graph_module.graph)
        specs = zip(
            graph_module.graph.find_nodes(op="placeholder"),
            program.graph_signature.input_specs,
            strict=False,
        )
        self.specs = dict(specs) if graph_module is program.graph_module else {}

    def known(self, value: Any) -> Any:
        return _known(value.meta.get("val") if isinstance(value, Node) else value, self.values)

    def shape(self, value: torch.Tensor) -> list[Any]:
        return [self.known(size) for size in value.shape]

    def steps(self) -> Iterator[Node]:
        """Yields the calls that compute tensors; what computes sizes is compared by its values."""
        for node in self.graph_module.graph.nodes:
            if node.op != "call_function" or _is_assertion(node) or self.constant(node) is not None:
                continue
            leaves = pytree.tree_leaves(node.meta.get("val"))
            computes = any(isinstance(leaf, torch.Tensor) for leaf in leaves)
            if (computes or _is_effect(node)) and self.source(node) is node:
                yield node

    def source(self, node: Node) -> Node:
        """Returns the node whose elements these are, all of them and in this order."""
        while self.is_skipped(node) and isinstance(node.args[0], Node):
            value, source = (each.meta["val"] for each in (node, node.args[0]))
            shapes = self.shape(value), self.shape(source)
            if _is_broadcast(node):
                shapes = _significant(shapes[0]), _significant(shapes[1])
            if value.dtype is not source.dtype or shapes[0] != shapes[1]:
                break
            node = node.args[0]
        return node

    def is_skipped(self, node: Node) -> bool:
        """Returns whether a call has the elements of its argument; what is written to may not be another's copy."""
        if node.target in _COPIES:
            return self.written.isdisjoint({node, node.args[0]})
        return node.target in _VIEWS

    def constant(self, node: Node) -> torch.Tensor | None:
        """Returns the value of a constant: a tensor of the program, or one made of a size."""
        spec = self.specs.get(node)
        if spec is not None and spec.kind is InputKind.CONSTANT_TENSOR:
            value = self.program.constants[spec.target]
            return value if isinstance(value, torch.Tensor) else None
        if node.target is aten.scalar_tensor.default:
            number = self.known(node.args[0])
            dtype = node.meta["val"].dtype
            return None if isinstance(number, str) else torch.scalar_tensor(number, dtype=dtype)
        return None

    def inner(self, node: Node) -> list[_Side]:
        """Returns the graphs inside a call: branches and loops."""
        sources = (each for each in node.all_input_nodes if each.op == "get_attr")
        modules = (attrgetter(str(each.target))(self.graph_module) for each in sources)
        return [
            _Side(self.program, module, self.values)
            for module in modules
            if isinstance(module, GraphModule)
        ]


_VALUES = {aten.index_put_.default: 2, aten.index_put.default: 2, aten.copy_.default: 1}
"""For ops that write values, which of the arguments these are: they broadcast to where they go."""


def _is_broadcast(node: Node) -> bool:
    """Returns whether a result is only written somewhere, so that dimensions of 1 in front have no effect."""
    return all(
        user.target in _VALUES
        and node in user.args
        and user.args.index(node) == _VALUES[user.target]
        for user in node.users
    )


def _significant(shape: list[Any]) -> list[Any]:
    while shape[:1] == [1]:
        shape = shape[1:]
    return shape


def _written(graph: Graph) -> set[Node]:
    """Returns the nodes that may share memory with what a graph writes to."""
    groups: dict[Node, set[Node]] = {}
    for node in graph.nodes:
        sources = node.all_input_nodes if mutates(node) else may_share(node)
        group = {node}.union(*(groups[source] for source in sources))
        groups.update(dict.fromkeys(group, group))
    written = (groups[node] for node in groups if mutates(node) and node.target not in _VIEWS)
    return set().union(*written)


def _arguments(node: Node) -> Any:
    """Returns a call's arguments; those of a slice without its end, which follows from the size of the result."""
    if node.target is not aten.slice.Tensor:
        return node.args, node.kwargs
    tensor, dim, start, _, step, *_ = (*node.args, *(None,) * 5)
    return tensor, dim or 0, 0 if start is None else start, 1 if step is None else step


def _becomes_view(node: Node, other: Node) -> bool:
    """Returns whether an op such as ``reshape`` copies in one of two programs, and is a view in the other."""
    if not copies_by_strides(node):
        return False
    is_view = shares_memory(other)
    return is_view is not None and shares_memory(node) not in (None, is_view)


def _is_assertion(node: Node) -> bool:
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.returns
        and target.namespace == "aten"
    )


def _is_effect(node: Node) -> bool:
    return node.meta.get("val") is None and any(map(_holds_tensor, node.all_input_nodes))


def _takes_default_dtype(node: Node) -> bool:
    """Returns whether a call makes a tensor from numbers and leaves its dtype to PyTorch's default."""
    if not isinstance(node.target, torch._ops.OpOverload) or any(
        map(_holds_tensor, node.all_input_nodes)
    ):
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    return "dtype" in names[len(node.args) :] and node.kwargs.get("dtype") is None


def _holds_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


class _Comparison:
    """Finds where two programs differ, node by node.

    Raises:
        Difference: They do.
    """

    def __init__(self, general: _Side, special: _Side) -> None:
        self.general, self.special = general, special
        self.pairs: dict[Node, Node] = {}
        self.pair_inputs()
        for node, other in itertools.zip_longest(general.steps(), special.steps()):
            if node is None or other is None or not self.is_same_step(node, other):
                raise Difference(node)
            self.pairs[node] = other
        results = (each.graph_module.graph.output_node().args for each in (general, special))
        if not self.is_same(*results):
            raise Difference

    def pair_inputs(self) -> None:
        """Pairs the inputs that are no constants.

        Raises:
            Difference: The programs have other inputs.
        """
        sides = (self.general, self.special)
        first, second = (
            [
                node
                for node in side.graph_module.graph.find_nodes(op="placeholder")
                if side.constant(node) is None
            ]
            for side in sides
        )
        if len(first) != len(second):
            raise Difference
        self.pairs.update(zip(first, second, strict=True))
        for node, other in self.pairs.items():
            spec, other_spec = self.general.specs.get(node), self.special.specs.get(other)
            if (spec and (spec.kind, spec.target)) != (
                other_spec and (other_spec.kind, other_spec.target)
            ):
                raise Difference

    def is_same_step(self, node: Node, other: Node) -> bool:
        """Returns whether two nodes compute the same, the graphs inside them included."""
        if node.target != other.target:
            return False
        if not self.is_same(_arguments(node), _arguments(other)):
            return False
        if node in self.general.written and _becomes_view(node, other):
            return False
        for general, special in zip(
            self.general.inner(node), self.special.inner(other), strict=True
        ):
            _Comparison(general, special)
        leaves = (pytree.tree_leaves(each.meta.get("val")) for each in (node, other))
        return all(self.is_alike(*pair) for pair in itertools.zip_longest(*leaves))

    def is_alike(self, value: Any, result: Any) -> bool:
        if not isinstance(value, torch.Tensor) or not isinstance(result, torch.Tensor):
            return True
        shapes = self.general.shape(value), self.special.shape(result)
        return value.dtype is result.dtype and shapes[0] == shapes[1]

    def is_same(self, given: Any, other: Any) -> bool:
        """Returns whether arguments are the same, node by node and number by number."""
        if isinstance(given, (list, tuple)) and isinstance(other, (list, tuple)):
            return len(given) == len(other) and all(map(self.is_same, given, other))
        if isinstance(given, dict) and isinstance(other, dict):
            return given.keys() == other.keys() and all(
                self.is_same(given[key], other[key]) for key in given
            )
        if isinstance(given, Node) and isinstance(other, Node) and self.is_compared(given):
            return self.is_same_tensor(self.general.source(given), self.special.source(other))
        if isinstance(given, Node) and given.op == "get_attr":
            return isinstance(other, Node) and other.op == "get_attr"  # compared by what is inside
        first, second = self.general.known(given), self.special.known(other)
        return bool(first is second or first == second)

    def is_compared(self, node: Node) -> bool:
        return node in self.pairs or _holds_tensor(node)

    def is_same_tensor(self, node: Node, other: Node) -> bool:
        if node in self.pairs:
            return self.pairs[node] is other
        first, second = self.general.constant(node), self.special.constant(other)
        if first is None or second is None:
            return node.op == other.op == "get_attr" and node.target == other.target
        return first.dtype is second.dtype and torch.equal(first, second)


# One program


class _Replay(Interpreter):
    """Computes a graph with fake tensors of other sizes than it was traced with."""

    def __init__(self, exported: ExportedProgram, values: Values) -> None:
        super().__init__(exported.graph_module)
        self.values = values
        self.inputs = exported.graph.find_nodes(op="placeholder")
        self.written = _written(exported.graph)
        self.mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def compare(self) -> None:
        """Raises a ``Difference`` at the first node whose results are not those of the program."""
        with self.mode, autocast_restored():
            self.run(*(_example(node.meta.get("val"), self.values) for node in self.inputs))

    def run_node(self, node: Node) -> Any:
        """Returns what a node computes."""
        if _is_assertion(node) and node.target is not aten._assert_scalar.default:
            return None
        try:
            result = super().run_node(node)
        except Exception as error:  # a check of the sizes, or an op that does not take them
            raise Difference(node) from error
        if node.op == "call_function":
            leaves = (pytree.tree_leaves(each) for each in (node.meta.get("val"), result))
            if not all(map(self._is_alike, *leaves)) or self._becomes_view(node, result):
                raise Difference(node)
        return result

    def _becomes_view(self, node: Node, result: Any) -> bool:
        """Returns whether what is written to through an op is a view for these sizes only, or a copy."""
        if node not in self.written or not copies_by_strides(node):
            return False
        source: Any = node.args[0]
        is_view = storage_of(result) == storage_of(self.env[source])
        return shares_memory(node) not in (None, is_view)

    def fetch_args_kwargs_from_env(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns a call's arguments; a tensor that it makes has the dtype that was the default at the export."""
        args, kwargs = super().fetch_args_kwargs_from_env(node)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and _takes_default_dtype(node):
            kwargs = {**kwargs, "dtype": value.dtype}
        return args, kwargs

    def _is_alike(self, value: Any, result: Any) -> bool:
        if not isinstance(value, torch.Tensor) or not isinstance(result, torch.Tensor):
            return True
        sizes = [[_known(size, self.values) for size in each.shape] for each in (value, result)]
        return value.dtype is result.dtype and sizes[0] == sizes[1]
