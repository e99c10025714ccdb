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
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchtrt.expressions.values import CompiledExpression
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

aten = torch.ops.aten

_DATA_SIZE = 3
"""The size of a dimension that depends on data, where a call is run."""
_MOST_ELEMENTS = 1 << 20
"""How many elements the other arguments of an op may have that runs on tensors without elements."""
_GIVEN_SHAPES = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default,
})  # fmt: skip
"""The ops whose results have the sizes that they are given."""
_ASSERTS = aten._assert_scalar.default


@contextlib.contextmanager
def running_calls() -> Iterator[None]:
    """Lets calls be run in a ``with`` block: sizes that depend on data become symbols of their own."""
    with quiet_tracing(), FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        yield


def are_refused_by_ops(
    graph_module: GraphModule, points: Sequence[Values], accepted: Values
) -> bool:
    """Returns whether for each of several values of a program's symbols one of its ops raises an error.

    Those of branches do not count: PyTorch may run another one. Nor do assertions, which exporting adds for branches.

    Args:
        graph_module: The program.
        points: The values.
        accepted: Values that the program takes. An op that raises for these as well has no rule for its shape.
    """
    with running_calls():
        calls = [
            call
            for call in distinct_calls(graph_module)
            if call.node.graph is graph_module.graph
            and call.node.target is not _ASSERTS
            and not call.is_refused(accepted)
        ]
        return all(any(call.is_refused(point) for call in calls) for point in points)


@dataclass(frozen=True)
class _Number:
    """A symbolic number, such as a size of a tensor.

    Attributes:
        expression: Its expression.
        kind: The type of its values.
    """

    expression: CompiledExpression
    kind: type

    def value(self, values: Values) -> Any:
        """Returns the value for values of the symbols. Those that depend on data have one as well."""
        others = [symbol for symbol in self.expression.symbols if symbol not in values]
        if others:
            values = {**values, **dict.fromkeys(others, _DATA_SIZE)}
        return self.kind(self.expression.value(values))

    def known_value(self, values: Values) -> Any:
        """Returns the value for values of the symbols; None if it depends on data."""
        return self.value(values) if values.keys() >= {*self.expression.symbols} else None


@dataclass(frozen=True)
class _Tensor:
    """A tensor, as the shape rule of an op sees it.

    Attributes:
        sizes: Its sizes.
        strides: Its strides. None where it has another layout in memory.
        dtype: Its dtype.
        device: Its device.
    """

    sizes: tuple[int | _Number, ...]
    strides: tuple[int | _Number, ...] | None
    dtype: torch.dtype
    device: torch.device

    @property
    def numbers(self) -> list[_Number]:
        """Its sizes and strides that vary."""
        numbers = (*self.sizes, *(self.strides or ()))
        return [number for number in numbers if isinstance(number, _Number)]

    def made(self, values: Values, device: str | None) -> torch.Tensor:
        """Returns such a tensor for values of the symbols, on its own device or on another."""
        if self.strides is None:
            raise TypeError(self)
        shape, strides = (
            [_value(number, values) for number in numbers] for numbers in (self.sizes, self.strides)
        )
        return torch.empty_strided(shape, strides, dtype=self.dtype, device=device or self.device)


def _described(leaf: Any) -> Any:
    """Returns what the shape rule of an op sees of a value."""
    if isinstance(leaf, torch.Tensor):
        sizes = tuple(map(_described, leaf.shape))
        is_strided = leaf.layout is torch.strided
        strides = tuple(map(_described, leaf.stride())) if is_strided else None
        return _Tensor(sizes, strides, leaf.dtype, leaf.device)
    if hasattr(leaf, "node"):
        return _Number(CompiledExpression.of(leaf.node.expr), leaf.node.pytype)
    return leaf


def _value(leaf: Any, values: Values, device: str | None = None) -> Any:
    """Returns what a description stands for, for values of the symbols."""
    if isinstance(leaf, _Tensor):
        return leaf.made(values, device)
    return leaf.value(values) if isinstance(leaf, _Number) else leaf


class Call:
    """A call of a program.

    Args:
        node: The node.
        value_of: Returns what shape rules see of a node's value.
        is_written: Whether something is written to memory that may be the result's.
        regions: The arguments of each region of autocast around it.

    Attributes:
        node: The node.
        sizes: The expressions in the sizes of the tensors that it reads and returns.
        symbols: The symbols in these and in its numbers.
    """

    def __init__(
        self,
        node: Node,
        value_of: Callable[[Node], Any],
        is_written: bool,
        regions: Sequence[Any] = (),
    ) -> None:
        self.node, self._is_written, self._regions = node, is_written, tuple(regions)
        self._arguments = {argument: value_of(argument) for argument in node.all_input_nodes}
        self._result = value_of(node)
        leaves = pytree.tree_leaves([*self._arguments.values(), self._result])
        sizes = itertools.chain(*(leaf.numbers for leaf in leaves if isinstance(leaf, _Tensor)))
        numbers = {leaf.expression for leaf in leaves if isinstance(leaf, _Number)}
        varying = dict.fromkeys(size.expression for size in sizes if size.expression.symbols)
        self.sizes = [size.expression for size in varying]
        symbols = itertools.chain(*(number.symbols for number in {*varying, *numbers}))
        self.symbols = sorted(set(symbols), key=str)

    @functools.cached_property
    def input_symbols(self) -> list[Any]:
        """Its symbols, without those that depend on data."""
        return [*itertools.filterfalse(is_unbacked, self.symbols)]

    @property
    def is_op(self) -> bool:
        """Whether an op is called, rather than a function of numbers."""
        return isinstance(self.node.target, OpOverload)

    @functools.cached_property
    def compares_numbers(self) -> bool:
        """Whether its shape rule may compare numbers that it reads with sizes of tensors."""
        if self.node.target in _GIVEN_SHAPES and not self._is_written:
            return False
        leaves = pytree.tree_leaves(list(self._arguments.values()))
        return any(isinstance(leaf, _Number) for leaf in leaves)

    @property
    def depends_on_data(self) -> bool:
        """Whether a size of its arguments depends on data."""
        return any(map(is_unbacked, self.symbols))

    @property
    def loses_symbols(self) -> bool:
        """Whether a symbol is in no size of its results: PyTorch may have made a number of a size that has it."""
        leaves = pytree.tree_leaves(self._result)
        sizes = itertools.chain(
            *(leaf.sizes if isinstance(leaf, _Tensor) else [leaf] for leaf in leaves)
        )
        symbols = (size.expression.symbols for size in sizes if isinstance(size, _Number))
        return len(set().union(*symbols)) < len(self.symbols)

    @property
    def key(self) -> Hashable:
        """Equal for calls that compute the same shapes."""
        numbers = {argument: number for number, argument in enumerate(self._arguments)}
        args = torch.fx.map_arg(
            (self.node.args, dict(self.node.kwargs)), lambda node: _Argument(numbers[node])
        )
        leaves, tree = pytree.tree_flatten(args)
        values = pytree.tree_leaves([*self._arguments.values(), self._result])
        constants = ((type(leaf), _described(leaf)) for leaf in leaves)
        return self.node.target, str(tree), self._is_written, self._regions, *constants, *values

    def is_refused(self, values: Values) -> bool:
        """Returns whether the op raises an error for values of the symbols, in ``running_calls``."""
        try:
            fake = self._arguments_for(values)
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
                shapes = self._arguments_for(values, "meta")
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
            fake = self._arguments_for(values)
            return self._has_result(self._result_for(fake), fake, values)
        except Exception:  # a check of the sizes, or an op that does not take them
            return False

    def _arguments_for(self, values: Values, device: str | None = None) -> dict[Node, Any]:
        """Returns the arguments for values of the symbols, on their own devices or on another."""
        value = functools.partial(_value, values=values, device=device)
        return {node: pytree.tree_map(value, tree) for node, tree in self._arguments.items()}

    def _result_for(self, made: Mapping[Node, Any]) -> Any:
        """Returns the result of the call for arguments."""
        arguments = self.node.args, dict(self.node.kwargs)
        args, kwargs = torch.fx.map_arg(arguments, made.__getitem__)
        with contextlib.ExitStack() as stack:
            for device, dtype, is_enabled, *_ in self._regions:
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
            and not self._regions
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
            value = self._arguments.get(condition, condition)
            return (value.known_value(values) if isinstance(value, _Number) else value) is not False
        except Exception:  # it has no value
            return False

    def _has_result(self, result: Any, made: Mapping[Node, Any], values: Values) -> bool:
        """Returns whether a result for arguments is as the program has it."""
        leaves = pytree.tree_leaves(self._result), pytree.tree_leaves(result)
        return (
            len(leaves[0]) == len(leaves[1])
            and all(_is_alike(*pair, values) for pair in zip(*leaves, strict=True))
            and not (self._is_written and self._becomes_view(made, result))
        )

    def _becomes_view(self, made: Mapping[Node, Any], result: Any) -> bool:
        """Returns whether what is written to through an op may be a view for these sizes only, or a copy."""
        if not copies_by_strides(self.node):
            return False
        is_view = storage_of(result) == storage_of(made[self.node.args[0]])  # type: ignore[index]
        return shares_memory(self.node) is not is_view


class _Argument(NamedTuple):
    """A node among the arguments of a call.

    Attributes:
        number: Its number among the nodes that the call reads.
    """

    number: int


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
    value_of = functools.cache(lambda node: pytree.tree_map(_described, node.meta.get("val")))
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
            call = Call(node, value_of, node in written, regions)
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


def _zeros(leaf: Any) -> Any:
    """Returns a tensor of zeros on the CPU in place of one without data."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="cpu").zero_()


def _is_alike(expected: Any, result: Any, values: Values) -> bool:
    """Returns whether a result has the sizes that the program has, where these do not depend on data.

    No dtype depends on sizes, but for numbers of dimensions.
    """
    if isinstance(expected, _Tensor) and isinstance(result, torch.Tensor):
        return len(expected.sizes) == result.dim() and all(
            _is_alike(*pair, values) for pair in zip(expected.sizes, result.shape, strict=True)
        )
    if isinstance(expected, _Number):
        expected = expected.known_value(values)
    is_known = isinstance(expected, int) and not hasattr(result, "node")
    return not is_known or bool(expected == result)


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
