"""Checks the graph that a pack's pass leaves, so that an error names the pass and not what reads the graph later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import Graph, GraphModule, Node

from torchtrt.errors import PackError
from torchtrt.graphs.nodes import all_graphs
from torchtrt.registry import PackPass
from torchtrt.torch_internals import OpOverload

_OPS = ("placeholder", "get_attr", "call_function", "output")


class Outline:
    """The parts of a graph that a pass must keep: inputs, the number of results, and the values of nodes.

    Two outlines are equal if the graphs, and those inside them, compute the same.
    """

    def __init__(self, graph_module: GraphModule) -> None:
        self.graphs = [module.graph for module in all_graphs(graph_module)]
        self.nodes = {node: _computed(node) for graph in self.graphs for node in graph.nodes}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outline) and list(self.nodes.items()) == list(other.nodes.items())

    __hash__ = None  # type: ignore[assignment]

    @property
    def inputs(self) -> list[Node]:
        """The inputs of the whole graph, in order."""
        return self.graphs[0].find_nodes(op="placeholder")

    def results(self) -> int | None:
        """Returns the number of results of the whole graph; None if the graph does not end in one output."""
        ends = [node for node in self.nodes if node.op == "output" and node.graph is self.graphs[0]]
        if len(ends) != 1 or _last(self.graphs[0]) is not ends[0]:
            return None
        results = self.nodes[ends[0]][1]
        return len(results[0]) if results and isinstance(results[0], (tuple, list)) else None


def _computed(node: Node) -> tuple[Any, ...]:
    return node.target, node.args, node.kwargs, "val" in node.meta


def _last(graph: Graph) -> Node:
    """Returns the last node. Reversed nodes are no iterator before PyTorch 2.13."""
    last: Node = next(iter(reversed(graph.nodes)))
    return last


def check_pass(lowering_pass: PackPass, before: Outline, after: Outline) -> None:
    """Checks the graph that a pass left.

    Raises:
        PackError: The graph is broken; the message has the pass, its pack, and the first fault.
    """
    if fault := next(_faults(before, after), None):
        raise PackError(
            f"The lowering pass {lowering_pass} broke the graph: {fault}. {lowering_pass.pack.advice}"
        )


def _faults(before: Outline, after: Outline) -> Iterator[str]:
    """Yields what is wrong with a graph, each a clause."""
    for graph in after.graphs:
        last = _last(graph)
        if last.op != "output" and graph.find_nodes(op="output"):
            yield f"the node {last.name} is behind the output; insert nodes with graph.inserting_before(node)"
    if after.results() is None or after.results() != before.results():
        yield "its results are not those that it had"
    if after.inputs != before.inputs:
        yield "its inputs are not those that it had"
    for node, (*_, has_value) in after.nodes.items():
        if not has_value and before.nodes.get(node, (False,))[-1]:
            yield f"the node {node.name} has lost the value of PyTorch in meta['val']"
        if not has_value and node not in before.nodes and _returns_tensors(node):
            yield f"the new node {node.name} has no value of PyTorch in meta['val']"
        if node.op not in _OPS:
            yield f"the node {node.name} is a {node.op}, and only call_function calls ops"
        if fault := _call_fault(node):
            yield f"the node {node.name} calls {node.target} {fault}"
    yield from filter(None, map(_lint_fault, after.graphs))


def _returns_tensors(node: Node) -> bool:
    return (
        isinstance(node.target, OpOverload)
        and bool(node.target._schema.returns)
        and bool(node.users)
    )


def _call_fault(node: Node) -> str:
    """Returns what is wrong with a call's arguments."""
    if not isinstance(node.target, OpOverload):
        return ""
    arguments = node.target._schema.arguments
    unknown = node.kwargs.keys() - {argument.name for argument in arguments}
    if unknown:
        return f"with an argument {min(unknown)!r}, which it does not have"
    if len(node.args) > len(arguments):
        return f"with {len(node.args)} arguments, and it has {len(arguments)}"
    missing = [
        argument.name
        for argument in arguments[len(node.args) :]
        if argument.name not in node.kwargs and not argument.has_default_value()
    ]
    return f"without its argument {missing[0]!r}" if missing else ""


def _lint_fault(graph: Graph) -> str:
    try:
        graph.lint()
    except Exception as error:
        return str(error).partition("\n")[0].rstrip(".")  # the whole graph follows
    return ""
