"""Buffers and inputs with a new part: PyTorch writes that part, and not all of it again.

A model that puts a token's keys into its cache makes, once nothing writes in place, a new cache as large as the old
one. Engines compute with the new one. They return the token's keys, and PyTorch writes them to their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of, constant_of, value_of
from torchtrt.settings import CompilationSettings
from torchtrt_blocks import sizes
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.torch_internals import pytree

aten = torch.ops.aten

PLACES = {
    aten.index_add.default: aten.index_add_.default,
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_put.default: aten.index_put_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter_reduce.two: aten.scatter_reduce_.two,
}
"""Ops that return a tensor changed in places that indices name, and those that write there."""
PARTS: dict[Any, Any] = {
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
}
"""Ops that return a tensor with another one as a view, and that view."""


VIEWS = frozenset(PARTS.values()) | {
    aten.permute.default,
    aten.reshape.default,
    aten.squeeze.dim,
    aten.transpose.int,
    aten.unsqueeze.default,
}
"""Ops that a graph without writes has again and again for one view of the model's."""


@dataclass(frozen=True)
class _View:
    """A view, by its op and what that takes beside the tensor; ``value`` is like what it returns."""

    target: Any
    arguments: tuple[Any, ...]
    value: Any

    def is_taken_by(self, node: Node) -> bool:
        """Returns whether a node takes this view, of whatever tensor."""
        if self.target is aten.view.default:
            return node.target is aten.reshape.default and _has_sizes(node, self.value.shape)
        return node.target is self.target and _same(_arguments(node)[1:], self.arguments)


@dataclass(frozen=True, eq=False)
class _Write:
    """A write to a view of a view of ... what is written to."""

    path: tuple[_View, ...]
    target: Any
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def count(self) -> int:
        """Returns how many elements are written, or 0 where that is not known."""
        if self.target is aten.copy_.default:
            return _count(self.path[-1].value)
        return max(map(_count, map(value_of, pytree.tree_leaves(self.arguments))))


Reach = Callable[[Any], list[_Write] | None]
"""Returns the writes after which a place holds a value, or None where that is not known."""


@pack.lowering_pass()
def partial_writes(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Writes what is new of a buffer or input where that is known to be a part of it."""
    from torchtrt.graphs import writes  # slow to import

    graph = graph_module.graph
    last = [node for node in graph.nodes if writes(node)]
    if not last:
        return
    writes_of = {
        node: _PartialWrites(node.args[0]).run(node.args[1])
        for node in last
        if node.target is aten.copy_.default
    }
    views = {}
    with graph.inserting_before(last[0]):  # numbers are read before any write
        for node, parts in writes_of.items():
            for part in parts or ():
                view = node.args[0]
                for step in part.path:
                    view = graph.call_function(step.target, (view, *step.arguments))
                    view.meta = {**node.meta, "val": step.value}
                views[part] = view
    for node, parts in writes_of.items():
        if parts is None:
            continue
        with graph.inserting_before(node):
            for part in parts:
                made = graph.call_function(
                    part.target, (views[part], *part.arguments), dict(part.options)
                )
                made.meta = {**node.meta, "val": value_of(views[part])}
        graph.erase_node(node)
    graph.eliminate_dead_code()


class _PartialWrites:
    """The writes to one buffer or input."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.buffer = constant_of(root)

    def run(self, value: Any) -> list[_Write] | None:
        """Returns the writes of parts that come to a write of ``value``, or None where that is to be written."""
        writes = self.writes(value, (), lambda node: [] if node is self.root else None)
        count = _count(value_of(self.root))
        if writes is None or 0 < count <= sum(write.count() for write in writes):
            return None
        return writes

    def writes(self, value: Any, path: tuple[_View, ...], reach: Reach) -> list[_Write] | None:
        """Returns the writes that make a place hold a value, or None where they would write all of the place.

        Args:
            value: What has the place's shape and dtype.
            path: The views that lead to the place.
            reach: Returns what is at the place, and what else can be.
        """
        reached = reach(value)
        if reached is not None or not isinstance(value, Node) or not value.args:
            return reached
        if value.target is aten.copy.default:
            source = value.args[1]
            return self.writes(source, path, reach) if _is_like(source, value) else None
        if value.target in PARTS:
            return self.part(value, path, reach)
        base = value.args[0]
        if value.target in PLACES:
            before = self.writes(base, path, reach)
            if before is None or _takes_numbers(value) or _takes_mask(value):
                return None
            write = _Write(path, PLACES[value.target], value.args[1:], value.kwargs)
            return [*before, write]
        view = self.inverse(value, path)
        if view is None:
            return None

        def through(node: Any) -> list[_Write] | None:
            is_taken = isinstance(node, Node) and view.is_taken_by(node)
            if not is_taken or not _is_like(node.args[0], value):  # the same view of another shape
                return None
            return self.writes(node.args[0], path, reach)

        return self.writes(base, (*path, view), through)

    def part(self, value: Node, path: tuple[_View, ...], reach: Reach) -> list[_Write] | None:
        """Returns the writes after which a view of a place is another tensor, and the rest what it was."""
        base, new, *arguments = _arguments(value)
        before = self.writes(base, path, reach)
        if before is None:
            return None
        view = _View(PARTS[value.target], tuple(arguments), value_of(new))

        def there(node: Any) -> list[_Write] | None:
            is_taken = isinstance(node, Node) and view.is_taken_by(node)
            return [] if is_taken and _same(node.args[0], base) else None

        inner = (*path, view)
        within = self.writes(new, inner, there)
        if within is None:
            source = new.args[1] if new.target is aten.copy.default else new
            within = [_Write(inner, aten.copy_.default, (source,), {})]
        return [*before, *within]

    def inverse(self, node: Node, path: tuple[_View, ...]) -> _View | None:
        """Returns the view of a place that ``node`` takes back, where it only rearranges the place's elements."""
        if node.target not in VIEWS:
            return None
        source, *arguments = _arguments(node)
        value = value_of(source)
        if node.target is aten.transpose.int:
            return _View(aten.transpose.int, tuple(arguments), value)
        if node.target is aten.permute.default:
            order = [dim % value.dim() for dim in arguments[0]]
            back = [order.index(dim) for dim in range(len(order))]
            return _View(aten.permute.default, (back,), value)
        if node.target is aten.unsqueeze.default:
            return _View(aten.squeeze.dim, tuple(arguments), value)
        if node.target is aten.squeeze.dim and value.dim() > value_of(node).dim():
            return _View(aten.unsqueeze.default, tuple(arguments), value)
        if node.target is aten.reshape.default and self.is_contiguous(path):
            shape = [*value.shape]
            if all(isinstance(size, int) for size in shape):
                return _View(aten.view.default, (shape,), value)
        return None

    def is_contiguous(self, path: tuple[_View, ...]) -> bool:
        """Returns whether a place is a buffer's and contiguous, wherever it is in the buffer."""
        view_value = self.buffer
        for view in path:
            if view_value is None or any(isinstance(argument, Node) for argument in view.arguments):
                return False
            view_value = view.target(view_value, *view.arguments)
        return view_value is not None and view_value.is_contiguous()


def _arguments(node: Node) -> tuple[Any, ...]:
    """Returns a call's arguments, defaults filled in."""
    return tuple(vars(arguments_of(node)).values())


def _takes_numbers(node: Node) -> bool:
    """Returns whether a call takes numbers that the model computes: a write would read them too late."""
    return any(not isinstance(value_of(source), torch.Tensor) for source in node.all_input_nodes)


def _takes_mask(node: Node) -> bool:
    """Returns whether a mask chooses the places: it is as large as they are, and PyTorch waits for the GPU to count."""
    masks = (torch.bool, torch.uint8)
    return node.target is aten.index_put.default and any(
        index is not None and value_of(index).dtype in masks for index in arguments_of(node).indices
    )


def _is_like(source: Any, value: Node) -> bool:
    like = value_of(value)
    return value_of(source).dtype is like.dtype and _has_sizes(source, like.shape)


def _has_sizes(node: Any, wanted: Sequence[Any]) -> bool:
    shape = value_of(node).shape
    return len(shape) == len(wanted) and all(map(sizes.same, shape, wanted))


def _same(first: Any, second: Any) -> bool:
    """Returns whether two arguments are known to have one value."""
    if first is second:
        return True
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(_same, first, second))
    mine, theirs = value_of(first), value_of(second)
    if isinstance(mine, torch.SymInt) or isinstance(theirs, torch.SymInt):
        return sizes.same(mine, theirs)
    if not isinstance(first, Node) or not isinstance(second, Node):
        return type(first) is type(second) and bool(first == second)
    return (
        first.target is second.target
        and first.target in VIEWS
        and _same(_arguments(first), _arguments(second))
    )


def _count(value: Any) -> int:
    """Returns how many elements a tensor is known to have."""
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in value.shape):
        return 0
    return value.numel()
