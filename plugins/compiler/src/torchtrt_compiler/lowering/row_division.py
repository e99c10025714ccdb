"""Divides the rows around all-reduces, so that processes exchange one part while engines compute another.

A product of a tensor-parallel layer gives each process a sum that lacks the terms of the others, and an all-reduce adds
them. Nothing that follows can begin before. But a row of the sum depends on the same row of the product only, and so do
most ops that follow. So the product, the all-reduce and those ops become several, each for a part of the rows.

The graph gets an order in which the parts take turns between two all-reduces. First come the product of part 0 and its
all-reduce, then the product of part 1 and its all-reduce, then what follows in part 0, and so on. Each turn is a
*group* of nodes. No engine has nodes of two groups.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import draws_random_numbers, leave_in_torch, writes
from torchtrt.graphs.symbols import no_new_assumptions
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt_compiler.groups import put_into_group
from torchtrt_compiler.lowering.row_rules import (
    RESHAPES,
    Rows,
    is_product,
    product_dims,
    rows_of,
    sizes_of,
)
from torchtrt_compiler.torch_internals import FakeTensor

aten = torch.ops.aten
ALL_REDUCE = torch.ops._c10d_functional.all_reduce.default
WAIT = torch.ops._c10d_functional.wait_tensor.default

LEAST_ROWS = 128
"""The fewest rows of a part: with fewer, a product takes as long as for more, because it reads the whole weight."""

IN_ENGINE = "its engine exchanges the tensor."
"""Why the rows around an all-reduce stay together: an engine that exchanges tensors lets no other one run."""

_CUT = "torchtrt_cut"
_ALIGNMENT = 256
"""TensorRT documents that the address of a tensor is a multiple of this number of bytes."""
_Key = tuple[float, int, int]
"""The place of a node: its stage, 0 for what is whole or the part's number from 1 on, and its place in the group."""


def is_cut(node: Node) -> bool:
    """Returns whether a node takes a part of the rows of something that is whole."""
    return _CUT in node.meta


def divide_rows(graph_module: GraphModule, settings: CompilationSettings) -> list[str]:
    """Divides the rows around the all-reduces that PyTorch runs, as ``collective_chunks`` says.

    Args:
        graph_module: The program's graph, before its nodes are looked up.
        settings: The settings of the compilation.

    Returns:
        For each all-reduce, in a sentence, how it is divided or why it is not.

    Raises:
        UnsupportedProgramError: A part of an op's result has other sizes than expected.
    """
    graph = graph_module.graph
    reductions = graph.find_nodes(op="call_function", target=ALL_REDUCE)
    if settings.collective_chunks == 1 or not reductions:
        return []
    with no_new_assumptions(graph):
        found = _Search(graph_module, settings, reductions)
        found.run()
        if any(each in found.rows for each in reductions):
            _Parts(graph_module, found.rows, settings.collective_chunks).run()
            graph_module.recompile()
    return [f"{each.name}: {found.outcomes[each]}" for each in reductions]


class _Search:
    """Finds the nodes whose rows can be divided.

    Attributes:
        rows: Where the rows of each of these nodes are.
        dims: The dimension of its result that has them.
        outcomes: What becomes of each all-reduce, in words.
    """

    def __init__(
        self, graph_module: GraphModule, settings: CompilationSettings, reductions: Sequence[Node]
    ) -> None:
        self.nodes = list(graph_module.graph.nodes)
        self.parts = settings.collective_chunks
        self.rows: dict[Node, Rows] = {}
        self.dims: dict[Node, int] = {}
        self.outcomes: dict[Node, str] = {}
        self.in_engines = {
            each for each in reductions if DYNAMO_CONVERTERS.resolve(each, settings).chosen
        }
        self.paths: dict[Node, list[tuple[Node, list[Node]]]] = {}
        places = {node: place for place, node in enumerate(self.nodes)}
        for each in reductions:
            self.outcomes[each] = IN_ENGINE
            if each not in self.in_engines:
                self.outcomes[each] = "no matrix product leads to it row by row."
                products, between = _products_before(each)
                path = sorted(between, key=places.__getitem__)
                for product in products:
                    self.paths.setdefault(product, []).append((each, path))

    def run(self) -> None:
        """Fills in the attributes."""
        for node in self.nodes:
            rows = self.followed(node)
            if rows is None and node in self.paths:
                rows = self.begun(node)
            if rows is not None:
                self.rows[node], self.dims[node] = rows, rows.dim
                if node in self.outcomes:
                    size = sizes_of(node.meta["val"])[rows.dim]
                    assert size is not None
                    self.outcomes[node] = (
                        f"divided into {self.parts} parts of {size // self.parts:,} rows."
                    )

    def followed(self, node: Node) -> Rows | None:
        """Returns the rows of a node that follow from those of its inputs."""
        if node in self.in_engines or not any(each in self.dims for each in node.all_input_nodes):
            return None
        return rows_of(node, self.dims, self.parts)

    def begun(self, product: Node) -> Rows | None:
        """Returns the rows of a product with which dividing begins, if they lead to an all-reduce."""
        for reduction, path in self.paths[product]:
            for factor, dim in product_dims(product):
                known = ChainMap({factor: dim}, self.dims)
                if (rows := rows_of(product, known, self.parts)) is None:
                    self.outcomes[reduction] = self.why_not(product)
                elif (few := self.rows_of_part(product, rows.dim)) < LEAST_ROWS:
                    self.outcomes[reduction] = (
                        f"a part of {product.name} would have {few:,} rows, which is less than {LEAST_ROWS}."
                    )
                elif self.leads_to(reduction, product, rows, path):
                    return Rows(rows.dim, {**rows.cut, factor: dim})
        return None

    def why_not(self, product: Node) -> str:
        """Returns why a product is not divided, in words."""
        sizes = sizes_of(product.meta["val"])[:-1]
        if None in sizes:
            return f"the number of rows of {product.name} varies."
        shown = " × ".join(map(str, sizes))
        return f"{product.name} has {shown} rows, which are not {self.parts} equal parts."

    def rows_of_part(self, product: Node, dim: int) -> int:
        """Returns how many rows a part of a product has, if they are in a dimension; unknown sizes count as 1."""
        sizes = sizes_of(product.meta["val"])
        sizes.pop(-1 if dim < len(sizes) - 1 else -2)
        return math.prod(size or 1 for size in sizes) // self.parts

    def leads_to(self, reduction: Node, product: Node, rows: Rows, path: Sequence[Node]) -> bool:
        """Returns whether the rows of a product stay together up to an all-reduce."""
        known = ChainMap({product: rows.dim}, self.dims)
        for node in path:
            if node is not product and any(each in known.maps[0] for each in node.all_input_nodes):
                found = rows_of(node, known, self.parts)
                if found is not None:
                    known[node] = found.dim
        return reduction in known.maps[0]


def _products_before(reduction: Node) -> tuple[set[Node], set[Node]]:
    """Returns the closest products that an all-reduce follows from, and the nodes between, with both ends."""
    products: set[Node] = set()
    between: set[Node] = set()
    pending = [reduction]
    while pending:
        node = pending.pop()
        if node in between or node.op != "call_function":
            continue
        between.add(node)
        if is_product(node):
            products.add(node)
        elif node is reduction or node.target is not ALL_REDUCE:
            pending.extend(node.all_input_nodes)
    return products, between


class _Parts:
    """Replaces nodes by one for each part of their rows, and orders the graph.

    Args:
        graph_module: The program.
        rows: Where the rows of each node that is divided are.
        count: How many parts there are.
    """

    def __init__(self, graph_module: GraphModule, rows: Mapping[Node, Rows], count: int) -> None:
        self.graph = graph_module.graph
        self.rows = rows
        self.count = count
        self.parts: dict[Node, list[Node]] = {}
        self.wholes: dict[Node, Node] = {}
        self.cuts: dict[tuple[Node, int], list[Node]] = {}
        self.pending: set[Node] = set()  # with results of all-reduces that nothing has waited for
        self.keys: dict[Node, _Key] = {}
        self.last_effect = (
            0.0  # the stage of the last node with an effect, which the next one follows
        )

    def run(self) -> None:
        """Changes the graph."""
        output = self.graph.output_node()
        nodes = list(self.graph.nodes)
        with self.graph.inserting_before(output):
            for node in nodes:
                if node in self.rows:
                    self.divide(node)
                else:
                    self.keep(node)
        for node in reversed(nodes):
            if node in self.rows:
                self.graph.erase_node(node)
        self.order()

    def keep(self, node: Node) -> None:
        """Lets a node that stays whole read whole tensors."""
        for source in node.all_input_nodes:
            if source in self.rows:
                node.replace_input_with(source, self.whole(source))
        is_last = node.op == "output" or writes(node)
        stage = math.inf if is_last else self.stage_after(node)
        if not is_last and _has_effect(node):
            stage = self.last_effect = max(stage, self.last_effect)
        self.place(node, stage, 0)

    def divide(self, node: Node) -> None:
        """Adds a node for each part of the rows."""
        rows = self.rows[node]
        cuts = {source: self.cut(source, dim) for source, dim in rows.cut.items()}
        self.parts[node] = []
        if _is_pending(node, self.pending):
            self.pending.add(node)
        for part in range(self.count):

            def given(source: Node, part: int = part) -> Node:
                parts = cuts.get(source) or self.parts.get(source)
                return source if parts is None else parts[part]

            made = self.add(node, rows.dim, given, part)
            self.place(made, self.stage_after(made), part + 1)
            self.parts[node].append(made)

    def add(self, node: Node, dim: int, given: Any, part: int) -> Node:
        """Returns a new node that computes a part of the rows."""
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), given)
        target: Any = node.target
        shape = self.sizes_of_part(node, dim)
        if target in RESHAPES or target is aten.expand.default:
            is_expand = target is aten.expand.default
            target, kwargs = (target if is_expand else aten.reshape.default), {}
            args = args[0], shape
        name = f"{node.name}_part_{part}"
        made = self.graph.create_node("call_function", target, args, kwargs, name=name)
        made.meta = {**node.meta, "val": _value(made)}
        value = made.meta["val"]
        if isinstance(value, torch.Tensor) and sizes_of(value) != shape:
            raise UnsupportedProgramError(
                f"collective_chunks={self.count} divides the rows of {node.name} ({qualified_name(target)}), and a "
                f"part has the sizes {list(value.shape)} in place of {shape}. Compile without the setting, and report "
                "it."
            )
        return made

    def sizes_of_part(self, node: Node, dim: int) -> list[int | None]:
        """Returns the sizes of a part of a node's result; those of several tensors are not needed."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return []
        shape = sizes_of(value)
        size = shape[dim]
        assert size is not None
        shape[dim] = size // self.count
        return shape

    def whole(self, node: Node) -> Node:
        """Returns the node that joins the parts of another one."""
        if node in self.wholes:
            return self.wholes[node]
        parts = list(self.parts[node])
        stage = self.keys[parts[0]][0] + 1
        if node in self.pending:
            for place, part in enumerate(parts):
                parts[place] = self.call(WAIT, (part,), part.meta["val"])
                self.place(parts[place], stage, 0)
        whole = self.call(aten.cat.default, (parts, self.rows[node].dim), node.meta["val"])
        whole.meta = {**node.meta}
        reason = "It joins the parts of the rows, which collective_chunks divides."
        leave_in_torch(whole, reason, "divided")
        self.place(whole, stage, 0)
        self.wholes[node] = whole
        return whole

    def cut(self, node: Node, dim: int) -> list[Node]:
        """Returns the nodes that take each part of the rows of a whole tensor."""
        source = self.whole(node) if node in self.rows else node
        if (source, dim) not in self.cuts:
            size = sizes_of(source.meta["val"])[dim]
            assert size is not None
            step = size // self.count
            self.cuts[source, dim] = [
                self.slice(source, dim, part * step, step) for part in range(self.count)
            ]
        return self.cuts[source, dim]

    def slice(self, source: Node, dim: int, start: int, step: int) -> Node:
        """Returns a node that takes some rows: a view, or a copy where an engine cannot read them in place."""
        made = self.call(aten.slice.Tensor, (source, dim, start, start + step), None)
        leave_in_torch(made, "It takes a part of the rows, without a copy.", "view")
        made.meta[_CUT] = True
        self.place(made, self.keys[source][0], 0)
        if _is_aligned(source.meta["val"], dim, step):
            return made
        copied = self.call(aten.clone.default, (made,), None)
        leave_in_torch(copied, "It copies a part of the rows to an aligned address.", "divided")
        copied.meta[_CUT] = True
        self.place(copied, self.keys[source][0], 0)
        return copied

    def call(self, target: Any, args: tuple[Any, ...], value: Any) -> Node:
        made = self.graph.call_function(target, args)
        made.meta["val"] = _value(made) if value is None else value
        return made

    def stage_after(self, node: Node) -> float:
        """Returns the first stage in which a node can run: one after the all-reduces that it follows from."""
        stages = (
            self.keys[each][0] + (each.target is ALL_REDUCE and self.keys[each][1] > 0)
            for each in node.all_input_nodes
        )
        return max(stages, default=0)

    def place(self, node: Node, stage: float, turn: int) -> None:
        self.keys[node] = stage, turn, len(self.keys)

    def order(self) -> None:
        """Brings the graph into the order of the keys, and numbers the groups."""
        output = self.graph.output_node()
        group, before = -1, None
        for node in sorted(
            self.graph.nodes, key=lambda node: (node.op != "placeholder", self.keys[node])
        ):
            key = self.keys[node][:2]
            group, before = group + (key != before), key
            if node.op == "call_function":
                put_into_group(node, group)
            if node is not output:
                output.prepend(node)


def _is_pending(node: Node, pending: set[Node]) -> bool:
    """Returns whether nothing has waited for a node's result, of an all-reduce or made of one."""
    if node.target is WAIT:
        return False
    return node.target is ALL_REDUCE or not pending.isdisjoint(node.all_input_nodes)


def _is_aligned(value: torch.Tensor, dim: int, step: int) -> bool:
    """Returns whether equal parts of a contiguous tensor begin where an engine can read them, or are copied anyway."""
    inner = sizes_of(value)[dim + 1 :]
    if any(size != 1 for size in sizes_of(value)[:dim]):
        return True  # the parts are not contiguous
    if None in inner:
        return False
    return step * math.prod(filter(None, inner)) * value.itemsize % _ALIGNMENT == 0


def _has_effect(node: Node) -> bool:
    """Returns whether a call does more than to compute its result: others like it run in the model's order."""
    return node.op == "call_function" and (
        node.is_impure() or (isinstance(node.target, OpOverload) and draws_random_numbers(node))
    )


def _value(node: Node) -> Any:
    """Returns what a call makes of PyTorch's values of its arguments."""
    values = [each for source in node.all_input_nodes for each in _leaves(source.meta.get("val"))]
    fakes = [each for each in values if isinstance(each, FakeTensor)]
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    target: Any = node.target
    with torch.no_grad(), fakes[0].fake_mode:
        return target(*args, **kwargs)


def _leaves(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (list, tuple)) else (value,)
