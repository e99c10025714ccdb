"""From a network definition to a graph: layers become nodes, weights become constants, constants are folded."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

from torchtrt_reference.building.configuration import BuilderConfig
from torchtrt_reference.building.loop_parts import LoopParts
from torchtrt_reference.building.masks import check_masks
from torchtrt_reference.building.passes.folding import fold
from torchtrt_reference.building.precision import (
    check_types,
    is_dropped,
    is_narrowed,
    output_type,
    reads_narrowed,
)
from torchtrt_reference.building.scheduling import inside_conditionals, ordered, units_of
from torchtrt_reference.graphs.graph import ABSENT, Graph, Node, Port
from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.network.loops import Loop
from torchtrt_reference.network.plan_kernels import configure
from torchtrt_reference.network.plugins import PluginV3Layer
from torchtrt_reference.network.weights import Weights
from torchtrt_reference.semantics.operation import BOOLEANS, INTEGERS
from torchtrt_reference.semantics.tensor_facts import RefusedError

Refittable = Literal["all", "marked", "none"]
_SHAPE_TYPES = INTEGERS | BOOLEANS  # of constants that shapes are made from


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
    check_masks(network)
    return _Lowering(network, config, refit).graph()


def _check_names(network: NetworkDefinition) -> None:
    """Checks that no two layers, and no two tensors, share a name.

    Raises:
        RefusedError: Two do.
    """
    layers = network._layers
    tensors = [*network._inputs, *(tensor for layer in layers for tensor in layer._outputs)]
    named = (
        ("layer", [layer._name for layer in layers]),
        ("tensor", [tensor._name for tensor in tensors]),
    )
    for what, names in named:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                message = f"Repeated {what} name: {name} ({what}s must have distinct names)"
                raise RefusedError(message)
            seen.add(name)


class _Lowering:
    """Lowers the layers of one scope: the network, or the body of a loop."""

    def __init__(
        self,
        network: NetworkDefinition,
        config: BuilderConfig,
        refit: Refittable,
        scope: Set[int] | None = None,
    ) -> None:
        self._network = network
        self._config = config
        self._refit = refit
        self._slots: dict[int, int] = {}
        self._graph = Graph([], [], [], {}, {}, {}, {}, 0, network._strong)
        self._scope = scope  # the ids of the layers inside; None: all of them
        self._captured: list[tuple[Tensor, int]] = []

    def graph(self) -> Graph:
        """The whole network."""
        network, graph = self._network, self._graph
        graph.inputs = [self._input(tensor) for tensor in network._inputs]
        inside = self._add_all(network._layers) | inside_conditionals(network._layers)
        graph.outputs = [self._output(tensor, inside) for tensor in network._outputs]
        for tensor in network._debug:
            if id(tensor._producer) not in inside:  # what is inside a loop has many values
                fact = tensor._facts()
                graph.debug.append(Port(tensor._name, self._slot(tensor), fact.dtype, fact.shape))
        fold(graph, network._rules)
        graph.drop_unused()
        return graph

    def _input(self, tensor: Tensor) -> Port:
        """Returns the port of a network input.

        Raises:
            RefusedError: The values of the input decide shapes, and its own shape is not fixed.
        """
        fact = tensor._facts()
        port = Port(
            tensor._name,
            self._slot(tensor),
            fact.dtype,
            fact.shape,
            self._network._needs_value(tensor),
            dict(tensor._dimension_names),
            tensor._formats,
        )
        if port.is_shape and not fact.is_static:
            message = (
                f"the shape input {tensor._name!r} must have a build-time shape, not {fact.shape}"
            )
            raise RefusedError(message)
        return port

    def _output(self, tensor: Tensor, inside: Set[int]) -> Port:
        """The port of an output, behind a conversion where its type is not the one its layer gives it."""
        if id(tensor._producer) in inside:
            message = (
                f"{tensor._name}: network output not allowed to be in a loop or conditional: "
                "it leaves it through a loop output or conditional output only"
            )
            raise RefusedError(message)
        fact, dtype, slot = tensor._facts(), output_type(tensor), self._slot(tensor)
        if dtype != fact.dtype:
            converted = self._graph.new_slot()
            self._graph.nodes.append(
                Node("identity", tensor._name, (slot,), (converted,), {}, (dtype,))
            )
            slot = converted
        return Port(tensor._name, slot, dtype, fact.shape, formats=tensor._formats)

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
        """Adds the node of a layer to the graph, or what replaces it: a constant, an identity, or nothing."""
        graph, name = self._graph, layer._operation.name
        facts = layer._output_facts()
        inputs = self._operand_slots(layer)
        if reads_narrowed(layer, self._config):
            floats = [x is not None and x._facts().dtype == "FLOAT" for x in layer._operands()]
            read = [self._narrow(s) if f else s for s, f in zip(inputs, floats, strict=False)]
            inputs = (*read, *inputs[len(read) :])
        if name == "constant":
            # The tensor of a constant layer is the constant itself.
            self._slots[id(layer._outputs[0])] = inputs[0]
            return
        if name == "condition":
            return  # checked; the outputs of the conditional read it
        outputs = tuple(self._slot(tensor) for tensor in layer._outputs)
        if is_dropped(layer, self._config):
            graph.nodes.append(Node("identity", layer._name, inputs[:1], outputs, {}, (None,)))
            return
        if outputs and self._refit == "none" and all(fact.constant is not None for fact in facts):
            for slot, fact in zip(outputs, facts, strict=True):
                assert fact.constant is not None
                graph.constants[slot], graph.constant_types[slot] = fact.constant, fact.dtype
            return
        if isinstance(layer, PluginV3Layer):
            input_facts = [fact for fact in layer._input_facts() if fact is not None]
            record = layer._attributes["record"]
            configure(self._network._trt, layer._plugin, record, input_facts, facts)
        attributes = {
            key: None if isinstance(value, Weights) else value
            for key, value in layer._attributes.items()
        }
        types = tuple(tensor._asked_type() for tensor in layer._outputs)
        graph.nodes.append(
            Node(name, layer._name, inputs, outputs, attributes, types, layer._metadata)
        )
        for index, tensor in enumerate(layer._outputs):
            if is_narrowed(layer, index, self._config):
                self._slots[id(tensor)] = self._narrow(outputs[index])

    def _narrow(self, slot: int) -> int:
        """Returns where the values of a slot are as float16 holds them."""
        for dtype in ("HALF", "FLOAT"):
            made = self._graph.new_slot()
            node = Node("cast", "narrowed", (slot,), (made,), {"to_type": dtype})
            self._graph.nodes.append(node)
            slot = made
        return slot

    def _operand_slots(self, layer: Layer) -> tuple[int, ...]:
        """The slots that a layer reads: its tensors, and its weights as constants."""
        slots = [ABSENT if tensor is None else self._slot(tensor) for tensor in layer._operands()]
        operation, attributes = layer._operation, layer._attributes
        for index, (name, shape) in operation.weights(attributes).items():
            role = operation.weights_roles.get(name)
            slots += [ABSENT] * (index + 1 - len(slots))
            slots[index] = self._constant(attributes[name], shape, layer._name, role)
        return tuple(slots)

    def _add_loop(self, loop: Loop, layers: Sequence[Layer]) -> None:
        """Adds a loop as one node that holds its body."""
        parts = LoopParts.of(loop)
        parts.check(self._network._rules)
        boundary = {id(layer) for layer in loop._layers}
        scope = boundary | {id(layer) for layer in layers}
        body = _Lowering(self._network, self._config, self._refit, scope)
        body._add_body(parts, [layer for layer in layers if id(layer) not in boundary])
        read = [*parts.operands(), *(tensor for tensor, _ in body._captured)]
        self._graph.nodes.append(
            Node(
                "loop",
                loop.name,
                tuple(self._slot(tensor) for tensor in read),
                tuple(self._slot(layer._outputs[0]) for layer in parts.outputs),
                {"body": body._graph, **parts.attributes()},
            )
        )

    def _add_body(self, parts: LoopParts, layers: Sequence[Layer]) -> None:
        """Makes this scope's graph the body of a loop with these layers inside."""
        carried = [(layer._outputs[0], self._slot(layer._outputs[0])) for layer in parts.carried()]
        self._add_all(layers)
        results = [self._slot(tensor) for tensor in parts.results()]
        self._graph.inputs = [
            Port("", slot, tensor._facts().dtype, tensor._facts().shape)
            for tensor, slot in [*carried, *self._captured]
        ]
        self._graph.outputs = [Port("", slot, "", ()) for slot in results]

    def _constant(
        self, weights: Weights, shape: Sequence[int], layer: str, role: str | None
    ) -> int:
        """Adds a constant and returns its slot. A refit finds it by its name, or by the layer and the role."""
        slot = self._graph.new_slot()
        self._graph.constants[slot] = weights._tensor().view(tuple(shape))
        self._graph.constant_types[slot] = weights._dtype
        name = self._network._weights_names.get(weights._identity())
        if self._refit == "all" or (self._refit == "marked" and name in self._network._refittable):
            if name is not None:
                self._graph.weights_names[slot] = name
            if role is not None and weights._dtype not in _SHAPE_TYPES:
                self._graph.weights_roles[slot] = (layer, role)
        return slot
