"""From a network definition to a graph: layers become nodes, weights become constants, constants are folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchtrt.reference.facts import Fact, Refused, Value, constant_fact
from torchtrt.reference.graph import ABSENT, Graph, Node, Port
from torchtrt.reference.layer import Layer
from torchtrt.reference.layers import OPERATIONS
from torchtrt.reference.network import NetworkDefinition
from torchtrt.reference.operation import Call, infer, run
from torchtrt.reference.rules import Rules
from torchtrt.reference.tensors import Tensor
from torchtrt.reference.weights import Weights

FOLDED_VOLUME = 1 << 16


def lower(network: NetworkDefinition, keeps_named_weights: bool) -> Graph:
    """Returns the network as a graph with constants folded and unused layers dropped.

    Args:
        network: The network.
        keeps_named_weights: Whether weights with a name stay constants of their own, so that they can be refitted.

    Raises:
        Refused: The network breaks a rule; the text names the layer.
    """
    if not network._outputs:
        message = "Network must have at least one output"
        raise Refused(message)
    return _Lowering(network, keeps_named_weights).graph()


class _Lowering:
    def __init__(self, network: NetworkDefinition, keeps_named_weights: bool) -> None:
        self._network = network
        self._keeps_named_weights = keeps_named_weights
        self._slots: dict[int, int] = {}
        self._graph = Graph([], [], [], {}, {}, {}, 0, network._strong)

    def graph(self) -> Graph:
        network, graph = self._network, self._graph
        names: set[str] = set()
        for tensor in [*network._inputs, *network._outputs]:
            if tensor._name in names:
                message = f"two inputs or outputs are named {tensor._name!r}; names must be unique"
                raise Refused(message)
            names.add(tensor._name)
        for tensor in network._inputs:
            fact = tensor._fact()
            port = Port(
                tensor._name,
                self._slot(tensor),
                fact.dtype,
                fact.shape,
                network._needs_value(tensor),
                dict(tensor._dimension_names),
                tensor._formats,
            )
            if port.is_shape and not fact.is_static:
                message = f"the shape input {tensor._name!r} must have a build-time shape, not {fact.shape}"
                raise Refused(message)
            graph.inputs.append(port)
        for layer in ordered(network._layers):
            self._add(layer)
        for tensor in network._outputs:
            fact = tensor._fact()
            graph.outputs.append(
                Port(
                    tensor._name,
                    self._slot(tensor),
                    fact.dtype,
                    fact.shape,
                    formats=tensor._formats,
                )
            )
        fold(graph, network._rules)
        graph.drop_unused()
        return graph

    def _slot(self, tensor: Tensor) -> int:
        if id(tensor) not in self._slots:
            self._slots[id(tensor)] = self._graph.new_slot()
        return self._slots[id(tensor)]

    def _add(self, layer: Layer) -> None:
        graph = self._graph
        facts = layer._facts()
        inputs = [ABSENT if tensor is None else self._slot(tensor) for tensor in layer._inputs]
        attributes = dict(layer._attributes)
        for index, (name, shape) in layer._operation.weights(attributes).items():
            slot = self._constant(attributes[name], shape)
            inputs += [ABSENT] * (index + 1 - len(inputs))
            inputs[index] = slot
        if layer._operation.name == "constant":
            # The tensor of a constant layer is the constant itself.
            self._slots[id(layer._outputs[0])] = inputs[0]
            return
        plain = {
            name: None if isinstance(value, Weights) else value
            for name, value in attributes.items()
        }
        outputs = tuple(self._slot(tensor) for tensor in layer._outputs)
        types = tuple(
            tensor._declared or layer._output_types.get(index)
            for index, tensor in enumerate(layer._outputs)
        )
        graph.nodes.append(
            Node(
                layer._operation.name,
                layer._name,
                tuple(inputs),
                outputs,
                plain,
                types,
                layer._metadata,
            )
        )
        if all(fact.constant is not None for fact in facts) and not self._keeps_named_weights:
            for slot, fact in zip(outputs, facts, strict=True):
                assert fact.constant is not None
                graph.constants[slot], graph.constant_types[slot] = fact.constant, fact.dtype
            if outputs:
                graph.nodes.pop()

    def _constant(self, weights: Weights, shape: Sequence[int]) -> int:
        slot = self._graph.new_slot()
        self._graph.constants[slot] = weights._tensor().view(tuple(shape))
        self._graph.constant_types[slot] = weights._dtype
        name = self._network._weights_names.get(weights._identity())
        if name is not None and self._keeps_named_weights:
            self._graph.weights_names[slot] = name
        return slot


def ordered(layers: Sequence[Layer]) -> list[Layer]:
    """Returns layers so that each comes after those it reads from; otherwise in the order they were added.

    Raises:
        Refused: Layers read from each other in a circle.
    """
    done: set[int] = set()
    result: list[Layer] = []
    for layer in layers:
        stack: list[tuple[Layer, bool]] = [(layer, False)]
        active: set[int] = set()
        while stack:
            current, is_ready = stack.pop()
            if id(current) in done:
                continue
            if is_ready:
                done.add(id(current))
                active.discard(id(current))
                result.append(current)
                continue
            if id(current) in active:
                message = f"{current._name}: the network has a cycle"
                raise Refused(message)
            active.add(id(current))
            stack.append((current, True))
            for tensor in current._inputs:
                producer = None if tensor is None else tensor._producer
                if producer is not None and id(producer) not in done:
                    stack.append((producer, False))
    return result


def fold(graph: Graph, rules: Rules) -> None:
    """Replaces nodes whose inputs are all constants by constants, unless that makes the plan much larger."""
    refittable = set(graph.weights_names)
    kept: list[Node] = []
    for node in graph.nodes:
        operation = OPERATIONS[node.operation]
        given = [slot for slot in node.inputs if slot != ABSENT]
        is_constant = bool(given) and all(
            slot in graph.constants and slot not in refittable for slot in given
        )
        if not node.outputs or not is_constant or not operation.is_pure(node.attributes):
            kept.append(node)
            continue
        call = call_of(node, _constant_facts(graph, node), rules, graph.strong)
        facts = infer(operation, call)
        volume = sum(fact.volume for fact in facts if fact.is_static)
        read = sum(graph.constants[slot].numel() for slot in given)
        if volume > max(FOLDED_VOLUME, read):
            kept.append(node)
            continue
        for slot, fact, value in zip(node.outputs, facts, run(operation, call, facts), strict=True):
            graph.constants[slot] = value.contiguous()
            graph.constant_types[slot] = fact.dtype
    graph.nodes = kept


def _constant_facts(graph: Graph, node: Node) -> list[Fact | None]:
    return [
        None if slot == ABSENT else constant_fact(graph.constants[slot], graph.constant_types[slot])
        for slot in node.inputs
    ]


def call_of(node: Node, facts: Sequence[Fact | None], rules: Rules, strong: bool) -> Call:
    """Returns a node as its operation sees it."""
    return Call(node.attributes, facts, rules, strong, node.output_types)


def input_fact(port: Port, shape: Sequence[int], value: Any = None) -> Fact:
    """Returns the fact of a graph input with a given shape, and value if its values decide shapes."""
    return Fact(port.dtype, tuple(shape), None if value is None else Value(value))
