"""The calls of a program, each an op with the shapes of its arguments, which are run with other sizes.

They run with fake tensors, and for real where there are no elements. If the shapes of the results are those that the
program has, then the call is right for these sizes. Equal calls are one: a model of twelve layers has as many different
calls as one of two.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchtrt.expressions.values import evaluate
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import all_graphs, draws_random_numbers, mutates
from torchtrt.graphs.symbols import quiet_tracing
from torchtrt.torch_internals import HigherOrderOperator, OpOverload, pytree
from torchtrt_compiler.memory_of_calls import copies_by_strides, may_share, shares_memory
from torchtrt_compiler.sizes.accepted import Values
from torchtrt_compiler.torch_internals import (
    FakeTensorMode,
    enter_autocast,
    exit_autocast,
    is_unbacked,
    without_modes,
)

_DATA_SIZE = 3
"""The size of a dimension that depends on data, where a call is run."""
_MOST_ELEMENTS = 1 << 20
"""How many elements the other arguments of an op may have that runs on tensors without elements."""
_ASSERTS = torch.ops.aten._assert_scalar.default


@contextlib.contextmanager
def running_calls() -> Iterator[None]:
    """Lets calls be run in a ``with`` block: sizes that depend on data become symbols of their own."""
    with quiet_tracing(), FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        yield


def are_refused_by_ops(graph_module: GraphModule, points: Sequence[Values]) -> bool:
    """Returns whether for each of several values of a program's symbols one of its ops raises an error."""
    with running_calls():
        calls = list(distinct_calls(graph_module))
        return all(any(call.is_refused(point) for call in calls) for point in points)


class Call:
    """A call of a program.

    Attributes:
        node: The node.
        sizes: The expressions in the sizes of the tensors that it reads and returns.
        symbols: The symbols in these and in its numbers.
        is_written: Whether something is written to memory that may be the result's.
        regions: The arguments of each region of autocast around it.
    """

    def __init__(self, node: Node, is_written: bool, regions: Sequence[Any] = ()) -> None:
        self.node, self.is_written, self.regions = node, is_written, tuple(regions)
        nodes = *node.all_input_nodes, node
        tensors = [other for other in nodes if not hasattr(other.meta.get("val"), "node")]
        self.sizes = list(dict.fromkeys(itertools.chain(*map(_sizes_of, tensors))))
        numbers = itertools.chain(*map(_sizes_of, set(nodes).difference(tensors)))
        self.symbols = sorted(
            set().union(*(size.free_symbols for size in (*self.sizes, *numbers))), key=str
        )

    @property
    def input_symbols(self) -> list[Any]:
        """Its symbols, without those that depend on data."""
        return [*itertools.filterfalse(is_unbacked, self.symbols)]

    @property
    def is_op(self) -> bool:
        """Whether an op is called, rather than a function of numbers."""
        return isinstance(self.node.target, OpOverload)

    @property
    def depends_on_data(self) -> bool:
        """Whether a size of its arguments depends on data."""
        return any(map(is_unbacked, self.symbols))

    @property
    def loses_symbols(self) -> bool:
        """Whether a symbol is in no size of its results: PyTorch may have made a number of a size that has it."""
        sizes = _sizes_of(self.node)
        return len(set().union(*(size.free_symbols for size in sizes))) < len(self.symbols)

    @property
    def key(self) -> Hashable:
        """Equal for calls that compute the same shapes."""
        numbers: dict[Node, int] = {}

        def described(leaf: Any) -> Hashable:
            if isinstance(leaf, _Argument):
                number = numbers.setdefault(leaf.node, len(numbers))
                return number, *map(_description, pytree.tree_leaves(leaf.node.meta.get("val")))
            return _description(leaf)

        args = torch.fx.map_arg((self.node.args, dict(self.node.kwargs)), _Argument)
        leaves, tree = pytree.tree_flatten(args, is_leaf=lambda part: isinstance(part, _Argument))
        results = pytree.tree_leaves(self.node.meta.get("val"))
        return (
            self.node.target, str(tree), self.is_written, self.regions,
            *map(described, leaves), *map(_description, results),
        )  # fmt: skip

    def is_refused(self, values: Values) -> bool:
        """Returns whether the op raises an error for values of the symbols, in ``running_calls``."""
        try:
            fake = self._arguments(values)
        except Exception:  # a size has no value: it is another program then, whatever the op does
            return False
        try:
            self._result_for(fake)
        except Exception:
            return True
        return False

    def is_right(self, values: Values) -> bool:
        """Returns whether the call has the results that the program has, for values of the symbols.

        Without elements, the op itself decides: PyTorch's shape rules are wrong for some ops then. Its error may be
        about the data, if any of its arguments has some.
        """
        if self.node.target is _ASSERTS:
            return self._is_satisfied(values)
        try:
            with without_modes():
                shapes = self._arguments(values, "meta")
        except Exception:  # a size has no value
            return False
        tensors = [
            leaf
            for leaf in pytree.tree_leaves(list(shapes.values()))
            if isinstance(leaf, torch.Tensor)
        ]
        if self._can_run_without_elements(tensors):
            try:
                with without_modes(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    real = {node: pytree.tree_map(_zeros, value) for node, value in shapes.items()}
                    return self._has_result(self._result_for(real), real, values)
            except Exception:
                if not any(tensor.numel() for tensor in tensors):
                    return False
        if self._is_decided_by(tensors):
            with without_modes(), contextlib.suppress(Exception):
                if self._has_result(self._result_for(shapes), shapes, values):
                    return True
        try:
            fake = self._arguments(values)
            return self._has_result(self._result_for(fake), fake, values)
        except Exception:  # a check of the sizes, or an op that does not take them
            return False

    def _arguments(self, values: Values, device: str | None = None) -> dict[Node, Any]:
        """Returns the arguments for values of the symbols, on their own devices or on another."""
        concrete = functools.partial(_concrete, values=values, device=device)
        return {
            node: pytree.tree_map(concrete, node.meta.get("val"))
            for node in self.node.all_input_nodes
        }

    def _result_for(self, made: Mapping[Node, Any]) -> Any:
        """Returns the result of the call for arguments."""
        arguments = self.node.args, dict(self.node.kwargs)
        args, kwargs = torch.fx.map_arg(arguments, made.__getitem__)
        with contextlib.ExitStack() as stack:
            for device, dtype, is_enabled, *_ in self.regions:
                stack.enter_context(torch.autocast(device, dtype, is_enabled, False))
            return self.node.target(*args, **kwargs)  # type: ignore[operator]

    def _is_decided_by(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Returns whether tensors without data and device decide a call, in a tenth of the time of fake ones.

        Fake tensors have a device, sizes from data and autocast. PyTorch checks the sizes of a convolution where it
        chooses how to compute it, which is by the device, and checks more where there are no elements.
        """
        return (
            self._is_plain
            and "conv" not in self.node.target._schema.name  # type: ignore[union-attr]
            and not self.regions
            and bool(tensors)
            and all(tensor.numel() for tensor in tensors)
        )

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Whether an op of PyTorch's own is called that names no device."""
        arguments = pytree.tree_leaves((self.node.args, dict(self.node.kwargs)))
        return (
            isinstance(self.node.target, OpOverload)
            and self.node.target.namespace == "aten"
            and not any(isinstance(argument, torch.device) for argument in arguments)
        )

    def _can_run_without_elements(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Returns whether an op gets tensors without elements that can be made on the CPU, and changes nothing else."""
        return (
            self._is_plain
            and not draws_random_numbers(self.node)
            and any(tensor.numel() == 0 for tensor in tensors)
            and sum(tensor.numel() for tensor in tensors) <= _MOST_ELEMENTS
        )

    def _is_satisfied(self, values: Values) -> bool:
        """Returns whether an assertion holds, as far as the sizes of inputs decide it."""
        condition: Any = self.node.args[0]
        try:
            value = condition.meta["val"] if isinstance(condition, Node) else condition
            return _number(value, values, None) is not False
        except Exception:  # it has no value
            return False

    def _has_result(self, result: Any, made: Mapping[Node, Any], values: Values) -> bool:
        """Returns whether a result for arguments is as the program has it."""
        leaves = pytree.tree_leaves(self.node.meta.get("val")), pytree.tree_leaves(result)
        return (
            len(leaves[0]) == len(leaves[1])
            and all(_is_alike(*pair, values) for pair in zip(*leaves, strict=True))
            and not (self.is_written and self._becomes_view(made, result))
        )

    def _becomes_view(self, made: Mapping[Node, Any], result: Any) -> bool:
        """Returns whether what is written to through an op may be a view for these sizes only, or a copy."""
        if not copies_by_strides(self.node):
            return False
        is_view = storage_of(result) == storage_of(made[self.node.args[0]])  # type: ignore[index]
        return shares_memory(self.node) is not is_view


class _Argument(NamedTuple):
    """A node among the arguments of a call."""

    node: Node


def distinct_calls(
    *graph_modules: GraphModule, lowered: GraphModule | None = None
) -> Iterator[Call]:
    """Yields the calls of graphs whose sizes vary, the graphs inside them included; of equal ones the first.

    Args:
        *graph_modules: The graphs.
        lowered: One more. Only its calls that lose a symbol count.
    """
    seen: set[Hashable] = set()
    modules = [(module, False) for graph in graph_modules for module in all_graphs(graph)]
    modules += [(module, True) for module in (all_graphs(lowered) if lowered else ())]
    for module, is_lowered in modules:
        graph = module.graph
        written = _written(graph)
        regions: list[Any] = []
        for node in graph.nodes:
            if node.target is enter_autocast:
                regions.append(node.args)
            elif node.target is exit_autocast:
                regions.pop()
            if node.op != "call_function" or not _has_shape_rule(node.target):
                continue
            call = Call(node, node in written, regions)
            if not call.symbols or (is_lowered and not call.loses_symbols):
                continue
            try:
                key = call.key
            except TypeError:  # an argument without a hash
                yield call
                continue
            if key not in seen:
                seen.add(key)
                yield call


def _has_shape_rule(target: Any) -> bool:
    """Returns whether a target is an op, or a function of numbers. Calls with graphs inside have the rules of these."""
    if target is operator.getitem:
        return False
    if isinstance(target, OpOverload):
        returns = target._schema.returns
        return bool(returns) or target is _ASSERTS
    return not isinstance(target, HigherOrderOperator) and callable(target)


def _description(leaf: Any) -> Hashable:
    """Returns what the shape rule of an op sees of an argument."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.device, leaf.layout, leaf.dim(), *_numbers(leaf)
    return type(leaf), *(_numbers(leaf) or (leaf,))


def _sizes_of(node: Node) -> list[Any]:
    """Returns the expressions in the sizes of a node's value."""
    numbers = itertools.chain.from_iterable(map(_numbers, pytree.tree_leaves(node.meta.get("val"))))
    return [number for number in numbers if isinstance(number, sympy.Basic) and number.free_symbols]


def _numbers(value: Any) -> tuple[Any, ...]:
    """Returns the sizes and strides of a tensor, or a symbolic number; expressions where they are symbolic."""
    numbers: Sequence[Any] = (value,) if hasattr(value, "node") else ()
    if isinstance(value, torch.Tensor):
        numbers = (*value.shape, *value.stride()) if value.layout is torch.strided else value.shape
    return tuple(number.node.expr if hasattr(number, "node") else number for number in numbers)


def _number(value: Any, values: Values, default: int | None = _DATA_SIZE) -> Any:
    """Returns a number for a symbolic one; None if it depends on data and there is no default size for that."""
    if not hasattr(value, "node"):
        return value
    expression = value.node.expr
    others = expression.free_symbols - values.keys()
    if default is None:
        if others:
            return None
        default = 0
    return value.node.pytype(evaluate(expression, {**values, **dict.fromkeys(others, default)}))


def _concrete(leaf: Any, values: Values, device: str | None) -> Any:
    """Returns an argument of a call: a tensor of these sizes, or a number."""
    if not isinstance(leaf, torch.Tensor):
        return _number(leaf, values)
    shape = [_number(size, values) for size in leaf.shape]
    if leaf.layout is not torch.strided:
        raise TypeError(leaf.layout)
    strides = [_number(stride, values) for stride in leaf.stride()]
    return torch.empty_strided(shape, strides, dtype=leaf.dtype, device=device or leaf.device)


def _zeros(leaf: Any) -> Any:
    """Returns a tensor of zeros on the CPU in place of one without data."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="cpu").zero_()


def _is_alike(value: Any, result: Any, values: Values) -> bool:
    """Returns whether a result has the sizes that the program has, where these do not depend on data.

    No dtype depends on sizes, but for numbers of dimensions.
    """
    if isinstance(value, torch.Tensor) and isinstance(result, torch.Tensor):
        expected = [_number(size, values, None) for size in value.shape]
        return len(expected) == result.dim() and all(
            size is None or hasattr(other, "node") or size == other  # which depends on data
            for size, other in zip(expected, result.shape, strict=True)
        )
    if hasattr(value, "node"):
        expected = _number(value, values, None)
        return expected is None or hasattr(result, "node") or bool(expected == result)
    return True


def _written(graph: Graph) -> set[Node]:
    """Returns the nodes that may share memory with what a graph writes to later, or in its next call."""
    groups: dict[Node, set[Node]] = {}
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        may_write_any = mutates(node) and node.kwargs
        sources = node.all_input_nodes if may_write_any else may_share(node)
        group = {node}.union(*(groups[source] for source in sources))
        groups.update(dict.fromkeys(group, group))
    last: dict[Node, int] = {}
    for node in filter(mutates, groups):
        stays = any(member.op in ("placeholder", "get_attr") for member in groups[node])
        last |= dict.fromkeys(groups[node], len(order) if stays else order[node])
    return {node for node, last_write in last.items() if order[node] <= last_write}
