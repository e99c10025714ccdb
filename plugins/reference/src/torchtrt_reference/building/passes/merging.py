"""Equal nodes of a built graph become one, as do equal small constants."""

from __future__ import annotations

from collections.abc import Hashable

from torchtrt_reference.graphs.graph import Graph, Node
from torchtrt_reference.graphs.plan import bytes_of
from torchtrt_reference.operations import OPERATIONS

_COMPARED_VOLUME = 64  # constants are compared byte by byte up to this many elements


def merge_equal(graph: Graph) -> None:
    """Rewrites a graph in place so that what is computed from the same slots in the same way is computed once.

    Control flow, assertions and random numbers stay as they are, and so do constants that can be refitted.
    """
    kept_slot: dict[int, int] = {}
    first: dict[Hashable, tuple[int, ...]] = {}
    refittable = graph.refittable()
    for slot, constant in graph.constants.items():
        if slot not in refittable and constant.numel() <= _COMPARED_VOLUME:
            key = (graph.constant_types[slot], tuple(constant.shape), bytes(bytes_of(constant)))
            kept_slot[slot] = first.setdefault(key, (slot,))[0]
    nodes: list[Node] = []
    for node in graph.nodes:
        node.inputs = tuple(kept_slot.get(slot, slot) for slot in node.inputs)
        kept = first.setdefault(_key(node), node.outputs)
        if kept is node.outputs:
            nodes.append(node)
        else:
            kept_slot.update(zip(node.outputs, kept, strict=True))
    graph.nodes = nodes
    for port in graph.ends():
        port.slot = kept_slot.get(port.slot, port.slot)
    graph.drop_unused()


def _key(node: Node) -> Hashable:
    """The key that two nodes share if one can replace the other; unique if none can."""
    is_pure = OPERATIONS[node.operation].is_pure(node.attributes)
    if node.bodies() or not is_pure or not node.outputs:
        return id(node)
    attributes = tuple(sorted(node.attributes.items()))
    return (node.operation, node.inputs, attributes, tuple(map(str, node.output_types)))
