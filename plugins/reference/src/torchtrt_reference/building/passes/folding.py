"""Nodes that read constants only become constants themselves."""

from __future__ import annotations

from torchtrt_reference.graphs.executable import call_of
from torchtrt_reference.graphs.graph import ABSENT, Graph, Node
from torchtrt_reference.operations import OPERATIONS
from torchtrt_reference.rules import Rules
from torchtrt_reference.semantics.evaluation import infer, run
from torchtrt_reference.semantics.tensor_facts import TensorFacts, constant_facts

FOLDED_VOLUME = 1 << 16
_KEPT = ("dequantize",)
"""The operations whose constants take fewer bytes than their results: weights stay quantized in a plan."""


def fold(graph: Graph, rules: Rules) -> None:
    """Replaces nodes whose inputs are all constants by constants, unless that makes the plan much larger."""
    refittable = graph.refittable()
    kept: list[Node] = []
    for node in graph.nodes:
        operation = OPERATIONS[node.operation]
        slots = [slot for slot in node.inputs if slot != ABSENT]
        is_constant = bool(slots) and all(
            slot in graph.constants and slot not in refittable for slot in slots
        )
        stays = node.operation in _KEPT or not operation.is_pure(node.attributes)
        if not node.outputs or not is_constant or stays:
            kept.append(node)
            continue
        call = call_of(node, _constant_facts(graph, node), rules, graph.strong)
        facts = infer(operation, call)
        volume = sum(fact.volume for fact in facts if fact.is_static)
        read = sum(graph.constants[slot].numel() for slot in slots)
        if volume > max(FOLDED_VOLUME, read):
            kept.append(node)
            continue
        for slot, fact, value in zip(node.outputs, facts, run(operation, call, facts), strict=True):
            graph.constants[slot] = value.contiguous()
            graph.constant_types[slot] = fact.dtype
    graph.nodes = kept


def _constant_facts(graph: Graph, node: Node) -> list[TensorFacts | None]:
    return [
        None
        if slot == ABSENT
        else constant_facts(graph.constants[slot], graph.constant_types[slot])
        for slot in node.inputs
    ]
