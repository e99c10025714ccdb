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
    """Moves the nodes that only one branch of a conditional reads into a node with two graphs.

    Args:
        graph: The graph, which is rewritten in place.
        outputs: The nodes that choose between the branches, one for each output of the conditional.
    """
    branches = [_exclusive(graph, outputs, index) for index in (_TRUE, _FALSE)]
    results = [[node.inputs[index] for node in outputs] for index in (_TRUE, _FALSE)]
    captured: dict[int, None] = {}  # in order
    for nodes, slots in zip(branches, results, strict=True):
        captured.update(dict.fromkeys(_slots_from_outside(nodes, slots)))
    then, other = (
        _body(graph, nodes, list(captured), slots)
        for nodes, slots in zip(branches, results, strict=True)
    )
    conditional = Node(
        "conditional",
        " + ".join(node.name for node in outputs),
        (outputs[0].inputs[0], *captured),
        tuple(node.outputs[0] for node in outputs),
        {"then": then, "else": other},
        tuple(node.output_types[0] for node in outputs),
    )
    replaced = {id(node) for nodes in (*branches, outputs) for node in nodes}
    others = [node for node in graph.nodes if id(node) not in replaced]
    in_order = _inserted(others, conditional)
    if in_order is not None:
        graph.nodes = in_order


def _slots_from_outside(nodes: Sequence[Node], results: Sequence[int]) -> list[int]:
    """Returns the slots that a branch of these nodes and results reads and does not write, in order."""
    written = {slot for node in nodes for slot in node.outputs}
    read = [*(slot for node in nodes for slot in node.inputs), *results]
    return [slot for slot in read if slot not in written and slot != ABSENT]


def _exclusive(graph: Graph, outputs: list[Node], index: int) -> list[Node]:
    """Returns the nodes that are computed for one branch of a conditional and for nothing else, in order.

    Args:
        graph: The graph.
        outputs: The nodes that choose between the branches.
        index: The place of the branch among their inputs.
    """
    choosing = {id(node) for node in outputs}
    returned = {port.slot for port in graph.ends()}
    consumers = graph.consumers()
    exclusive: list[Node] = []
    inside: set[int] = set()

    def is_read_inside(slot: int, reader: Node) -> bool:
        """Returns whether a node that reads a slot belongs to the branch, or chooses the slot for it alone."""
        if id(reader) in inside:
            return True
        positions = {index for index, read in enumerate(reader.inputs) if read == slot}
        return id(reader) in choosing and positions == {index}

    for node in reversed(graph.nodes):
        readers = [(slot, reader) for slot in node.outputs for reader in consumers.get(slot, [])]
        is_inner = bool(readers) and all(is_read_inside(*reader) for reader in readers)
        if is_inner and id(node) not in choosing and returned.isdisjoint(node.outputs):
            inside.add(id(node))
            exclusive.append(node)
    return exclusive[::-1]


def _body(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[int], results: Sequence[int]
) -> Graph:
    """Returns a graph of some nodes, with slots numbered anew."""
    number = {ABSENT: ABSENT}
    for slot in [*inputs, *(slot for node in nodes for slot in node.outputs)]:
        number.setdefault(slot, len(number) - 1)
    renumbered = [
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
    starts, ends = (
        [Port("", number[slot], "", ()) for slot in slots] for slots in (inputs, results)
    )
    return Graph(starts, ends, renumbered, {}, {}, {}, {}, len(number) - 1, graph.strong)


def _inserted(nodes: Sequence[Node], conditional: Node) -> list[Node] | None:
    """Returns nodes with a conditional behind all that it reads; None where something it reads depends on it."""
    dependent: set[int] = set(conditional.outputs)
    before: list[Node] = []
    after: list[Node] = []
    for node in nodes:
        if dependent.isdisjoint(node.inputs):
            before.append(node)
        else:
            after.append(node)
            dependent.update(node.outputs)
    if not dependent.isdisjoint(conditional.inputs):
        return None
    return [*before, conditional, *after]
