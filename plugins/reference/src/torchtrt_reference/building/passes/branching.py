"""Conditionals that compute one branch only: what only a branch needs moves into a graph of that branch."""

from __future__ import annotations

from collections.abc import Sequence

from torchtrt_reference.graphs.graph import ABSENT, Graph, Node, Port

_TRUE, _FALSE = 1, 2  # the inputs of a conditional output


def gather_branches(graph: Graph) -> None:
    """Rewrites a graph in place: the outputs of each conditional become one node with a graph for each branch.

    A conditional inside a branch comes first in the graph, so that it is one node when its surroundings move.
    Nodes that both branches read, or that are read outside as well, are computed before the conditional.
    """
    groups: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for body in node.bodies().values():  # a loop's
            gather_branches(body)
        if node.operation == "conditional_output":
            groups.setdefault(node.attributes["conditional"], []).append(node)
    for outputs in groups.values():
        _gather(graph, outputs)


def _gather(graph: Graph, outputs: list[Node]) -> None:
    """Moves the nodes that only one branch of a conditional reads into a node with two graphs."""
    branches = [_exclusive(graph, outputs, index) for index in (_TRUE, _FALSE)]
    inner = {id(node) for branch in branches for node in branch}
    members = inner | {id(node) for node in outputs}
    read: list[int] = []
    for branch, index in zip(branches, (_TRUE, _FALSE), strict=True):
        written = {slot for node in branch for slot in node.outputs}
        slots = [slot for node in branch for slot in node.inputs]
        slots += [node.inputs[index] for node in outputs]
        read += [slot for slot in slots if slot not in written and slot != ABSENT]
    captured = list(dict.fromkeys(read))
    made = Node(
        "conditional",
        " + ".join(node.name for node in outputs),
        (outputs[0].inputs[0], *captured),
        tuple(node.outputs[0] for node in outputs),
        {
            name: _body(graph, branch, captured, [node.inputs[index] for node in outputs])
            for name, branch, index in zip(("then", "else"), branches, (_TRUE, _FALSE), strict=True)
        },
        tuple(node.output_types[0] for node in outputs),
    )
    rest = _ordered([node for node in graph.nodes if id(node) not in members], made)
    if rest is not None:
        graph.nodes = rest


def _exclusive(graph: Graph, outputs: list[Node], index: int) -> list[Node]:
    """The nodes that are computed for one branch of a conditional and for nothing else, in order."""
    ends = {id(node) for node in outputs}
    kept = {port.slot for port in graph.ends()}
    consumers = graph.consumers()
    found: list[Node] = []
    inside: set[int] = set()
    for node in reversed(graph.nodes):
        readers = [(slot, reader) for slot in node.outputs for reader in consumers.get(slot, [])]
        is_inner = bool(readers) and all(
            id(reader) in inside
            or (
                id(reader) in ends
                and {i for i, s in enumerate(reader.inputs) if s == slot} == {index}
            )
            for slot, reader in readers
        )
        if is_inner and id(node) not in ends and kept.isdisjoint(node.outputs):
            inside.add(id(node))
            found.append(node)
    return found[::-1]


def _body(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[int], results: Sequence[int]
) -> Graph:
    """A graph of some nodes, with slots numbered anew."""
    number = {ABSENT: ABSENT}
    for slot in [*inputs, *(slot for node in nodes for slot in node.outputs)]:
        number.setdefault(slot, len(number) - 1)
    moved = [
        Node(
            node.operation,
            node.name,
            tuple(number[slot] for slot in node.inputs),
            tuple(number[slot] for slot in node.outputs),
            node.attributes,
            node.output_types,
            node.metadata,
        )
        for node in nodes
    ]
    # Types and shapes come from what the conditional is given.
    given, made = (
        [Port("", number[slot], "", ()) for slot in slots] for slots in (inputs, results)
    )
    return Graph(given, made, moved, {}, {}, {}, {}, len(number) - 1, graph.strong)


def _ordered(nodes: Sequence[Node], made: Node) -> list[Node] | None:
    """Nodes with another one put where all it reads is known; None where something it reads depends on it."""
    behind: set[int] = set(made.outputs)
    before: list[Node] = []
    after: list[Node] = []
    for node in nodes:
        if behind.isdisjoint(node.inputs):
            before.append(node)
        else:
            after.append(node)
            behind.update(node.outputs)
    return [*before, made, *after] if behind.isdisjoint(made.inputs) else None
