"""From a network definition to a graph: layers become nodes, weights become constants, constants are folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torchtrt_reference.building.graph import ABSENT, Graph, Node, Port
from torchtrt_reference.building.precision import check_types, is_dropped, output_type
from torchtrt_reference.building.scheduling import inside_conditionals, ordered, units_of
from torchtrt_reference.interface.configuration import BuilderConfig
from torchtrt_reference.interface.control_flow import Loop
from torchtrt_reference.interface.layer import Layer
from torchtrt_reference.interface.network import NetworkDefinition
from torchtrt_reference.interface.tensors import Tensor
from torchtrt_reference.interface.weights import Weights
from torchtrt_reference.operations import OPERATIONS
from torchtrt_reference.operations.operation import Call, infer, run
from torchtrt_reference.operations.tensor_facts import (
    RefusedError,
    TensorFacts,
    Value,
    constant_facts,
)
from torchtrt_reference.rules import Rules

FOLDED_VOLUME = 1 << 16
Refittable = Literal["all", "marked", "none"]
_ROLES = {
    "kernel": "KERNEL",
    "bias": "BIAS",
    "shift": "SHIFT",
    "scale": "SCALE",
    "weights": "CONSTANT",
}
_SHAPE_TYPES = frozenset({"INT32", "INT64", "BOOL"})  # of constants that shapes are made from


def lower(network: NetworkDefinition, config: BuilderConfig, refit: Refittable) -> Graph:
    """Returns the network as a graph with constants folded and unused layers dropped.

    Args:
        network: The network.
        config: The configuration of the build, whose flags decide what weak typing does.
        refit: Which weights stay constants of their own, so that they can be refitted.

    Raises:
        RefusedError: The network breaks a rule; the text names the layer.
    """
    if not network._outputs:
        message = "Network must have at least one output"
        raise RefusedError(message)
    _check_names(network)
    check_types(network, config)
    return _Lowering(network, config, refit).graph()


def _check_names(network: NetworkDefinition) -> None:
    seen: set[str] = set()
    for layer in network._layers:
        if layer._name in seen:
            message = f"Repeated layer name: {layer._name} (layers must have distinct names)"
            raise RefusedError(message)
        seen.add(layer._name)


class _Lowering:
    """Lowers the layers of one scope: the network, or the body of a loop."""

    def __init__(
        self, network: NetworkDefinition, config: BuilderConfig, refit: Refittable
    ) -> None:
        self._network = network
        self._config = config
        self._refit = refit
        self._slots: dict[int, int] = {}
        self._graph = Graph([], [], [], {}, {}, {}, {}, 0, network._strong)
        self._scope: set[int] | None = None  # the layers inside; None: all of them
        self._captured: list[tuple[Tensor, int]] = []

    def graph(self) -> Graph:
        network, graph = self._network, self._graph
        names: set[str] = set()
        for tensor in [*network._inputs, *network._outputs]:
            if tensor._name in names:
                message = f"two inputs or outputs are named {tensor._name!r}; names must be unique"
                raise RefusedError(message)
            names.add(tensor._name)
        for tensor in network._inputs:
            fact = tensor._facts()
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
                raise RefusedError(message)
            graph.inputs.append(port)
        inside = self._add_all(network._layers) | inside_conditionals(network._layers)
        for tensor in network._outputs:
            if id(tensor._producer) in inside:
                message = (
                    f"{tensor._name}: network output not allowed to be in a loop or conditional: "
                    "it leaves it through a loop output or conditional output only"
                )
                raise RefusedError(message)
            fact, dtype, slot = tensor._facts(), output_type(tensor), self._slot(tensor)
            if dtype != fact.dtype:
                converted = graph.new_slot()
                graph.nodes.append(
                    Node("identity", tensor._name, (slot,), (converted,), {}, (dtype,))
                )
                slot = converted
            graph.outputs.append(
                Port(tensor._name, slot, dtype, fact.shape, formats=tensor._formats)
            )
        for tensor in network._debug:
            if id(tensor._producer) not in inside:  # what is inside a loop has many values
                fact = tensor._facts()
                graph.debug.append(Port(tensor._name, self._slot(tensor), fact.dtype, fact.shape))
        fold(graph, network._rules)
        graph.drop_unused()
        return graph

    def _add_all(self, layers: Sequence[Layer]) -> set[int]:
        """Adds layers in order, loops as a whole; returns the ids of the layers that are inside loops."""
        units = units_of(layers)
        for unit in ordered(units):
            if unit.loop is None:
                self._add(unit.layers[0])
            else:
                self._add_loop(unit.loop, unit.layers)
        return {
            id(layer)
            for unit in units
            if unit.loop is not None
            for layer in unit.layers
            if layer not in unit.loop._of("loop_output")
        }

    def _slot(self, tensor: Tensor) -> int:
        if id(tensor) not in self._slots:
            self._slots[id(tensor)] = self._graph.new_slot()
            if self._scope is not None and id(tensor._producer) not in self._scope:
                self._captured.append((tensor, self._slots[id(tensor)]))
        return self._slots[id(tensor)]

    def _add(self, layer: Layer) -> None:
        graph = self._graph
        facts = layer._output_facts()
        inputs = [ABSENT if tensor is None else self._slot(tensor) for tensor in layer._operands()]
        attributes = dict(layer._attributes)
        for index, (name, shape) in layer._operation.weights(attributes).items():
            slot = self._constant(attributes[name], shape, (layer._name, _ROLES.get(name)))
            inputs += [ABSENT] * (index + 1 - len(inputs))
            inputs[index] = slot
        if layer._operation.name == "constant":
            # The tensor of a constant layer is the constant itself.
            self._slots[id(layer._outputs[0])] = inputs[0]
            return
        if layer._operation.name == "condition":
            return  # checked; the outputs of the conditional read it
        plain = {
            name: None if isinstance(value, Weights) else value
            for name, value in attributes.items()
        }
        outputs = tuple(self._slot(tensor) for tensor in layer._outputs)
        types = tuple(
            tensor._declared or layer._output_types.get(index)
            for index, tensor in enumerate(layer._outputs)
        )
        if is_dropped(layer, self._config):
            graph.nodes.append(Node("identity", layer._name, (inputs[0],), outputs, {}, (None,)))
            return
        if outputs and self._refit == "none" and all(fact.constant is not None for fact in facts):
            for slot, fact in zip(outputs, facts, strict=True):
                assert fact.constant is not None
                graph.constants[slot], graph.constant_types[slot] = fact.constant, fact.dtype
            return
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

    def _add_loop(self, loop: Loop, layers: Sequence[Layer]) -> None:
        recurrences, iterators, outputs = (
            loop._of(kind) for kind in ("recurrence", "iterator", "loop_output")
        )
        limits = {layer._attributes["kind"]: layer for layer in loop._of("trip_limit")}
        if not limits or len(limits) < len(loop._of("trip_limit")):
            message = f"{loop.name}: a loop needs a trip limit, at most one of each kind"
            raise RefusedError(message)
        for layer in outputs:
            last = layer._attributes["kind"] == "LAST_VALUE"
            if last and _given(layer, 0)._producer not in recurrences:
                message = (
                    f"{layer._name}: LAST_VALUE takes the output of a recurrence of the same loop"
                )
                raise RefusedError(message)
        for layer in loop._layers:
            layer._output_facts()
        if not self._network._rules.loops_may_differ:
            _check_stacking(loop, limits.get("COUNT"))
        body = _Lowering(self._network, self._config, self._refit)
        boundary = {id(layer) for layer in loop._layers}
        body._scope = {id(layer) for layer in layers} | boundary
        carried = [*recurrences, *iterators]
        ports = [body._slot(layer._outputs[0]) for layer in carried]
        body._add_all([layer for layer in layers if id(layer) not in boundary])
        ends: list[int] = []
        for layer in recurrences:
            if len(layer._inputs) < 2 or layer._inputs[1] is None:
                message = f"{layer._name}: a recurrence needs its next value: set_input(1, next)"
                raise RefusedError(message)
            ends.append(body._slot(layer._inputs[1]))
        ends += [body._slot(_given(limits[kind], 0)) for kind in ("WHILE",) if kind in limits]
        stacked = [layer for layer in outputs if layer._attributes["kind"] != "LAST_VALUE"]
        ends += [body._slot(_given(layer, 0)) for layer in stacked]
        facts = [layer._output_facts()[0] for layer in carried] + [
            tensor._facts() for tensor, _ in body._captured
        ]
        slots = ports + [slot for _, slot in body._captured]
        body._graph.inputs = [
            Port("", slot, fact.dtype, fact.shape) for slot, fact in zip(slots, facts, strict=True)
        ]
        body._graph.outputs = [Port("", slot, "", ()) for slot in ends]
        outside = [_given(layer, 1) for layer in stacked]
        outside += [_given(limits["COUNT"], 0)] if "COUNT" in limits else []
        outside += [_given(layer, 0) for layer in carried] + [
            tensor for tensor, _ in body._captured
        ]
        order = {id(layer): index for index, layer in enumerate(recurrences)}
        self._graph.nodes.append(
            Node(
                "loop",
                loop.name,
                tuple(self._slot(tensor) for tensor in outside),
                tuple(self._slot(layer._outputs[0]) for layer in outputs),
                {
                    "body": body._graph,
                    "counted": "COUNT" in limits,
                    "conditional": "WHILE" in limits,
                    "recurrences": len(recurrences),
                    "iterators": tuple(
                        (layer._attributes["axis"], layer._attributes["reverse"])
                        for layer in iterators
                    ),
                    "outputs": tuple(
                        (
                            layer._attributes["kind"],
                            layer._attributes["axis"],
                            order.get(id(_given(layer, 0)._producer), -1),
                        )
                        for layer in outputs
                    ),
                },
            )
        )

    def _constant(
        self, weights: Weights, shape: Sequence[int], where: tuple[str, str | None]
    ) -> int:
        slot = self._graph.new_slot()
        self._graph.constants[slot] = weights._tensor().view(tuple(shape))
        self._graph.constant_types[slot] = weights._dtype
        name = self._network._weights_names.get(weights._identity())
        if self._refit == "all" or (self._refit == "marked" and name in self._network._refittable):
            if name is not None:
                self._graph.weights_names[slot] = name
            layer, role = where
            if role is not None and weights._dtype not in _SHAPE_TYPES:
                self._graph.weights_roles[slot] = (layer, role)
        return slot


def _check_stacking(loop: Loop, count: Layer | None) -> None:
    """TensorRT 8.6 stacks along axis 0, unless an iterator comes in along the same axis; REVERSE needs one."""
    constant = None if count is None else _given(count, 0)._facts().constant
    trips = None if constant is None else int(constant)
    axes = set()
    for layer in loop._of("iterator"):
        axis = layer._attributes["axis"]
        length = _given(layer, 0)._facts().shape[axis]
        axes.add(axis)
        if trips is not None and length not in (-1, trips):
            message = (
                f"{layer._name}: Could not find any implementation for {trips} trips over "
                f"{length} slices"
            )
            raise RefusedError(message)
    for layer in loop._of("loop_output"):
        kind, axis = layer._attributes["kind"], layer._attributes["axis"]
        is_plain = axis in axes or (axis == 0 and (kind == "CONCATENATE" or trips == 0))
        if kind != "LAST_VALUE" and not is_plain:
            message = (
                f"{layer._name}: Could not find any implementation for a {kind} loop output "
                f"along axis {axis}: let an iterator run along the same axis"
            )
            raise RefusedError(message)


def _given(layer: Layer, index: int) -> Tensor:
    tensor = layer._inputs[index] if index < len(layer._inputs) else None
    if tensor is None:
        message = f"{layer._name}: input {index} is missing"
        raise RefusedError(message)
    return tensor


def fold(graph: Graph, rules: Rules) -> None:
    """Replaces nodes whose inputs are all constants by constants, unless that makes the plan much larger."""
    refittable = graph.refittable()
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


def check_shape_tensors(graph: Graph) -> None:
    """Checks that no shape is computed through a scatter, whose output is never a shape tensor.

    Raises:
        RefusedError: One is; the text names the scatter.
    """
    needed: set[int] = set()
    for node in reversed(graph.nodes):
        values = OPERATIONS[node.operation].values_needed(node.attributes)
        if any(slot in needed for slot in node.outputs) and node.operation != "shape":
            if node.operation == "scatter":
                message = f"{node.name}: the output of a scatter cannot be a shape tensor"
                raise RefusedError(message)
            needed.update(node.inputs)
        needed.update(node.inputs[index] for index in values if index < len(node.inputs))


def _constant_facts(graph: Graph, node: Node) -> list[TensorFacts | None]:
    return [
        None
        if slot == ABSENT
        else constant_facts(graph.constants[slot], graph.constant_types[slot])
        for slot in node.inputs
    ]


def call_of(node: Node, facts: Sequence[TensorFacts | None], rules: Rules, strong: bool) -> Call:
    """Returns a node as its operation sees it."""
    return Call(node.attributes, facts, rules, strong, node.output_types)


def input_facts(port: Port, shape: Sequence[int], value: Any = None) -> TensorFacts:
    """Returns the facts of a graph input with a given shape, and value if its values decide shapes."""
    return TensorFacts(port.dtype, tuple(shape), None if value is None else Value(value))
