"""Divides the rows around all-reduces among the processes, which exchange rows while they compute others.

A product of a tensor-parallel layer gives each process a sum that lacks the terms of the others, and an all-reduce adds
them. Nothing that follows can begin before. But a row of the sum depends on the same row of the products only. So each
process adds the terms of its own rows, and computes for these what all processes would compute equally: residual sums
and normalizations. Before the next products with divided weights, it passes its rows to the other processes.

A process computes products part by part, in an order in which it waits for none of the others. It begins with its own
rows while those of the others arrive. Before a sum, it ends with its own rows while the terms for the others leave.

PyTorch calls this *asynchronous tensor parallelism* (https://discuss.pytorch.org/t/209487). The sums and the gathering
of rows are the reduce-scatter and the all-gather of *sequence parallelism* (Korthikanti et al., Reducing Activation
Recomputation in Large Transformer Models, 2022).
"""

from __future__ import annotations

import enum
import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from torchtrt.graphs import no_new_assumptions
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings
from torchtrt_converters_distributed.rows.equality import equal_in, weights_behind
from torchtrt_converters_distributed.rows.rules import (
    Rows,
    is_product,
    product_dims,
    rows_of,
    sizes_of,
)
from torchtrt_runtime.processes.groups import ranks_of
from torchtrt_runtime.processes.shifts import IN_ENGINE, IS_DIVIDED

aten = torch.ops.aten
ALL_REDUCE = torch.ops._c10d_functional.all_reduce.default
WAIT = torch.ops._c10d_functional.wait_tensor.default

SUMS = {
    "sum": aten.add.Tensor,
    "product": aten.mul.Tensor,
    "max": aten.maximum.default,
    "min": aten.minimum.default,
}
"""The op that joins two terms, for each kind of all-reduce that is divided."""
LEAST_ROWS = 128
"""The fewest rows of a part: with fewer, a product takes as long as for more, because it reads the whole weight."""


class Form(enum.Enum):
    """The rows that a process has of a divided tensor.

    Attributes:
        OWN: Its own rows, which are equal to those that the other processes would compute.
        PARTS: All rows, in one tensor for each process of the group. Each process has other values.
    """

    OWN = enum.auto()
    PARTS = enum.auto()


@dataclass
class Division:
    """How the rows of a program are divided among the processes of a group.

    Attributes:
        group: The name of the group.
        count: How many processes it has.
        group_rank: Which of them this one is.
        rows: Where the rows of each divided node are.
        forms: The rows that this process has of each divided node.
        late: The nodes between a product and an all-reduce. The process computes its own rows of them last.
        equal_weights: The weights that have to be equal in all processes.
    """

    group: str
    count: int
    group_rank: int
    rows: dict[Node, Rows] = field(default_factory=dict)
    forms: dict[Node, Form] = field(default_factory=dict)
    late: set[Node] = field(default_factory=set)
    equal_weights: set[Node] = field(default_factory=set)


def find_division(
    graph_module: GraphModule,
    settings: CompilationSettings,
    examples: Mapping[Node, torch.Tensor],
) -> tuple[Division | None, list[str]]:
    """Finds the rows that can be divided; all processes call it together.

    Args:
        graph_module: The program's graph, before its nodes are looked up.
        settings: The settings of the compilation.
        examples: The values of inputs that this process compiles with.

    Returns:
        The division, or None if no row is divided. A sentence for each all-reduce gives its division, or the reason
        against it.

    Raises:
        ProcessGroupError: Another process does not arrive, or has failed.
    """
    reductions = graph_module.graph.find_nodes(op="call_function", target=ALL_REDUCE)
    if not reductions:
        return None, []
    with no_new_assumptions(graph_module.graph):
        search = _Search(graph_module, settings, reductions, examples)
        search.run()
    outcomes = [f"{reduction.name}: {search.outcomes[reduction]}" for reduction in reductions]
    is_divided = any(reduction in search.rows for reduction in reductions)
    return (search.division if is_divided else None), outcomes


class _Search:
    """Finds the nodes whose rows can be divided.

    Attributes:
        division: What was found.
        rows: Where the rows of each divided node are.
        dims: The dimension of its result that has them.
        outcomes: What becomes of each all-reduce, in words.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        settings: CompilationSettings,
        reductions: Sequence[Node],
        examples: Mapping[Node, torch.Tensor],
    ) -> None:
        self.nodes = list(graph_module.graph.nodes)
        self.dims: dict[Node, int] = {}
        self.outcomes: dict[Node, str] = {}
        self.paths: dict[Node, list[tuple[Node, list[Node]]]] = {}
        divisible: list[Node] = []
        for reduction in reductions:
            if DYNAMO_CONVERTERS.resolve(reduction, settings).chosen:
                self.outcomes[reduction] = IN_ENGINE
            elif reduction.args[1] not in SUMS:
                self.outcomes[reduction] = f"its kind of reduction is {reduction.args[1]!r}."
            elif len(ranks_of(str(reduction.args[2]))) == 1:
                self.outcomes[reduction] = "its process group has one process."
            else:
                divisible.append(reduction)
        group = str((divisible or reductions)[0].args[2])
        ranks = ranks_of(group)
        group_rank = ranks.index(torch.distributed.get_rank())
        self.division = Division(group, len(ranks), group_rank)
        self.rows = self.division.rows
        self.equal = equal_in(graph_module, group, examples)
        positions = {node: index for index, node in enumerate(self.nodes)}
        self.divisible = {reduction for reduction in divisible if reduction.args[2] == group}
        for reduction in divisible:
            if reduction not in self.divisible:
                self.outcomes[reduction] = f"another one is in the process group {group!r}."
                continue
            self.outcomes[reduction] = "no matrix product leads to it row by row."
            products, between = _products_before(reduction)
            path = sorted(between, key=positions.__getitem__)
            for product in products:
                self.paths.setdefault(product, []).append((reduction, path))

    def run(self) -> None:
        """Fills in the attributes."""
        for node in self.nodes:
            rows = self.followed(node)
            if rows is None and node in self.paths:
                rows = self.begun(node)
            if rows is None:
                continue
            self.rows[node], self.dims[node] = rows, rows.dim
            is_own = node in self.equal and node not in self.paths
            self.division.forms[node] = Form.OWN if is_own else Form.PARTS
            for _, path in self.paths.get(node, ()):
                self.division.late.update(path)
            if node.target is ALL_REDUCE:
                size = sizes_of(node.meta["val"])[rows.dim]
                assert size is not None
                self.outcomes[node] = (
                    f"{IS_DIVIDED} {self.division.count} processes, with {size // self.division.count:,} rows each."
                )

        own = (node for node, form in self.division.forms.items() if form is Form.OWN)
        self.division.equal_weights = weights_behind(own, self.equal)

    def followed(self, node: Node) -> Rows | None:
        """Returns the rows of a node that follow from those of its inputs."""
        if not any(source in self.dims for source in node.all_input_nodes):
            return None
        if node.target is ALL_REDUCE and node not in self.divisible:
            return None
        return rows_of(node, self.dims, self.division.count)

    def begun(self, product: Node) -> Rows | None:
        """Returns the rows of a product with which dividing begins, if they lead to an all-reduce."""
        for reduction, path in self.paths[product]:
            for factor, dim in product_dims(product):
                row_dims = ChainMap({factor: dim}, self.dims)
                if (rows := rows_of(product, row_dims, self.division.count)) is None:
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
        return f"{product.name} has {shown} rows, which are not {self.division.count} equal parts."

    def rows_of_part(self, product: Node, dim: int) -> int:
        """Returns how many rows a part of a product has, if they are in a dimension; unknown sizes count as 1."""
        sizes = sizes_of(product.meta["val"])
        sizes.pop(-1 if dim < len(sizes) - 1 else -2)
        return math.prod(size or 1 for size in sizes) // self.division.count

    def leads_to(self, reduction: Node, product: Node, rows: Rows, path: Sequence[Node]) -> bool:
        """Returns whether the rows of a product stay together up to an all-reduce."""
        row_dims = ChainMap({product: rows.dim}, self.dims)
        for node in path:
            if node is not product and any(
                source in row_dims.maps[0] for source in node.all_input_nodes
            ):
                node_rows = rows_of(node, row_dims, self.division.count)
                if node_rows is not None:
                    row_dims[node] = node_rows.dim
        return reduction in row_dims.maps[0]


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
