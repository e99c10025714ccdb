"""The executable form of a graph: for each set of input shapes a flat list of PyTorch calls.

Shape inference runs once per set of shapes. Whatever it can compute (all shape arithmetic) is a value before the
executable starts, and every call has its dimensions, axes and starts resolved. Sizes that depend on data, such as
the columns of a NonZero and all that follows from them, are inferred and bound when they are reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from torchtrt_reference.graphs.graph import ABSENT, Graph, Node
from torchtrt_reference.operations import OPERATIONS
from torchtrt_reference.rules import Rules
from torchtrt_reference.semantics.evaluation import as_tuple, bind, infer
from torchtrt_reference.semantics.operation import Call, Function
from torchtrt_reference.semantics.tensor_facts import (
    RefusedError,
    TensorFacts,
    constant_facts,
    facts_of,
)


@dataclass(slots=True)
class Step:
    """One call of an executable.

    Attributes:
        function: What is called with the values of ``reads``.
        reads: The slots it reads; the last slot is always None and stands for absent inputs.
        writes: The slots it writes.
        frees: The slots that no later step reads.
        name: The layer's name, for errors.
    """

    function: Function
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]
    name: str


@dataclass(slots=True)
class Watch:
    """The observations while an executable runs.

    Attributes:
        shows: What to do with the value of a slot, once it is known.
        device: Where the executable runs.
        times: For each step the layer's name and the time it took, in milliseconds.
    """

    shows: Mapping[int, Callable[[torch.Tensor], None]]
    device: torch.device
    times: list[tuple[str, float]] = field(default_factory=list)

    def over(self, steps: Sequence[Step], values: Sequence[Any]) -> Iterator[Step]:
        """Yields the steps, and notices between them what became of ``values``."""
        for slot in self.shows:
            if values[slot] is not None:
                self.shows[slot](values[slot])
        for step in steps:
            # A step frees what no later step reads, so what is to be shown is freed afterwards.
            kept = tuple(slot for slot in step.frees if slot in self.shows)
            started = self._now()
            yield replace(step, frees=tuple(slot for slot in step.frees if slot not in kept))
            self.times.append((step.name, self._now() - started))
            for slot in step.writes:
                if slot in self.shows:
                    self.shows[slot](values[slot])

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() * 1e3


@dataclass(slots=True)
class Executable:
    """A graph bound to input shapes.

    Attributes:
        steps: The calls, in order.
        values: The initial value of every slot: constants and computed shapes; None where a step writes.
        facts: What inference found about every slot.
    """

    steps: list[Step]
    values: list[torch.Tensor | None]
    facts: dict[int, TensorFacts]

    def run(
        self,
        inputs: Mapping[int, torch.Tensor],
        outputs: Sequence[int],
        watch: Watch | None = None,
    ) -> list[torch.Tensor]:
        """Returns the values of the output slots.

        Args:
            inputs: The values of the input slots.
            outputs: The slots to return.
            watch: Receives what happens on the way.

        Raises:
            RefusedError: A rule is broken that only data could break; the text names the layer.
        """
        values: list[Any] = self.values.copy()
        for slot, tensor in inputs.items():
            values[slot] = tensor
        name = ""
        try:
            for step in self.steps if watch is None else watch.over(self.steps, values):
                name = step.name
                result = step.function(*[values[slot] for slot in step.reads])
                writes = step.writes
                if len(writes) == 1:
                    values[writes[0]] = result
                else:
                    for slot, value in zip(writes, result, strict=True):
                        values[slot] = value
                for slot in step.frees:
                    values[slot] = None
        except RefusedError as error:
            message = f"{name}: {error}"
            raise RefusedError(message) from error
        except (RuntimeError, IndexError) as error:
            message = f"{name}: PyTorch could not compute the layer: {error}"
            raise RefusedError(message) from error
        return [values[slot] for slot in outputs]


@dataclass(frozen=True, slots=True)
class _GraphInside:
    """A graph inside a node, as the node's operation uses it: ``Subgraph``."""

    graph: Graph
    rules: Rules

    def infer(self, input_facts: Sequence[TensorFacts]) -> list[TensorFacts]:
        facts = infer_graph(self.graph, self._by_slot(input_facts), self.rules)
        return [facts[port.slot] for port in self.graph.outputs]

    def bind(
        self, input_facts: Sequence[TensorFacts], device: torch.device
    ) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """Returns the function for inputs of these types and shapes. Its tensors are in the order of the ports."""
        constants = move_constants(self.graph, device)
        executable = bind_graph(
            self.graph, self._by_slot(input_facts), self.rules, constants, device
        )
        inputs = [port.slot for port in self.graph.inputs]
        outputs = [port.slot for port in self.graph.outputs]

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            return executable.run(dict(zip(inputs, tensors, strict=True)), outputs)

        return run

    def _by_slot(self, input_facts: Sequence[TensorFacts]) -> dict[int, TensorFacts]:
        return {port.slot: fact for port, fact in zip(self.graph.inputs, input_facts, strict=True)}


def call_of(node: Node, facts: Sequence[TensorFacts | None], rules: Rules, strong: bool) -> Call:
    """Returns a node as its operation sees it."""
    attributes: Mapping[str, Any] = node.attributes
    bodies = node.bodies()
    if bodies:
        inside = {name: _GraphInside(body, rules) for name, body in bodies.items()}
        attributes = {**attributes, **inside}
    return Call(attributes, facts, rules, strong, node.output_types)


def infer_graph(
    graph: Graph, input_facts: Mapping[int, TensorFacts], rules: Rules
) -> dict[int, TensorFacts]:
    """Returns the facts of every slot of a graph whose inputs have the given facts.

    Raises:
        RefusedError: A rule is broken; the text names the layer.
    """
    facts = dict(input_facts)
    for slot, constant in graph.constants.items():
        facts[slot] = constant_facts(constant, graph.constant_types[slot])
    for node in graph.nodes:
        facts.update(zip(node.outputs, _infer_node(node, facts, rules, graph.strong), strict=True))
    return facts


def _infer_node(
    node: Node, facts: Mapping[int, TensorFacts], rules: Rules, strong: bool
) -> tuple[TensorFacts, ...]:
    inputs = [None if slot == ABSENT else facts[slot] for slot in node.inputs]
    try:
        return infer(OPERATIONS[node.operation], call_of(node, inputs, rules, strong))
    except RefusedError as error:
        message = f"{node.name}: {error}"
        raise RefusedError(message) from error


def maximum_shapes(
    graph: Graph, facts: Mapping[int, TensorFacts], rules: Rules
) -> dict[int, tuple[int, ...]]:
    """Returns the maximum shape of every slot; -1 where the data decides a dimension and no bound is known.

    Dimensions that depend on data take their bounds, but values computed from them stay unknown: what shrinks when
    another tensor grows has no bound here.
    """
    shapes = {slot: fact.shape for slot, fact in facts.items()}
    for node in graph.nodes:
        is_known = all(facts[slot].is_static for slot in node.outputs)
        if is_known or node.bodies():
            continue
        inputs = [
            None
            if slot == ABSENT
            else TensorFacts(facts[slot].dtype, shapes[slot], facts[slot].value)
            for slot in node.inputs
        ]
        try:
            maximum_facts = OPERATIONS[node.operation].infer_maximum(
                call_of(node, inputs, rules, graph.strong)
            )
        except RefusedError:
            continue
        shapes.update(
            (slot, fact.shape) for slot, fact in zip(node.outputs, maximum_facts, strict=True)
        )
    return shapes


def bind_graph(
    graph: Graph,
    input_facts: Mapping[int, TensorFacts],
    rules: Rules,
    constants: Mapping[int, torch.Tensor],
    device: torch.device,
) -> Executable:
    """Returns the executable of a graph for inputs with the given facts.

    Args:
        graph: The graph.
        input_facts: The facts of its inputs; every dimension known.
        rules: The rules of the version.
        constants: The graph's constants on the device.
        device: Where the executable runs.

    Raises:
        RefusedError: A rule is broken; the text names the layer.
    """
    facts = infer_graph(graph, input_facts, rules)
    values: list[torch.Tensor | None] = [None] * (graph.slot_count + 1)
    for slot, constant in constants.items():
        values[slot] = constant
    steps: list[Step] = []
    for node in graph.nodes:
        if node.outputs and all(facts[slot].constant is not None for slot in node.outputs):
            for slot in node.outputs:
                value = facts[slot].constant
                assert value is not None
                values[slot] = value.to(device)
            continue
        steps.append(
            Step(
                _function(node, facts, rules, graph.strong, device),
                node.inputs,
                node.outputs,
                (),
                node.name,
            )
        )
    _free_after_last_use(steps, keep={port.slot for port in graph.outputs} | set(constants))
    return Executable(steps, values, facts)


def _function(
    node: Node, facts: Mapping[int, TensorFacts], rules: Rules, strong: bool, device: torch.device
) -> Function:
    """Returns the function of a node: bound once where all facts are known, otherwise at each call."""
    operation = OPERATIONS[node.operation]
    inputs = [None if slot == ABSENT else facts[slot] for slot in node.inputs]
    needed = operation.values_needed(node.attributes)
    if all(_is_complete(index, fact, needed) for index, fact in enumerate(inputs)):
        outputs = [facts[slot] for slot in node.outputs]
        function = bind(operation, call_of(node, inputs, rules, strong), outputs)
        if inputs or device.type == "cpu":
            return function
        return lambda: function().to(device)
    types = [None if fact is None else fact.dtype for fact in inputs]

    def late(*tensors: torch.Tensor | None) -> Any:
        seen = [
            None if tensor is None else facts_of(tensor, str(dtype), with_value=index in needed)
            for index, (tensor, dtype) in enumerate(zip(tensors, types, strict=True))
        ]
        call = call_of(node, seen, rules, strong)
        output_facts = infer(operation, call)
        result = bind(operation, call, output_facts)(*tensors)
        return (
            tuple(tensor.to(device) for tensor in as_tuple(result))
            if len(output_facts) != 1
            else result.to(device)
        )

    return late


def _is_complete(index: int, fact: TensorFacts | None, needed: frozenset[int]) -> bool:
    return fact is None or (fact.is_static and (index not in needed or fact.constant is not None))


def _free_after_last_use(steps: list[Step], keep: set[int]) -> None:
    seen = set(keep) | {ABSENT}
    for step in reversed(steps):
        last = tuple(
            dict.fromkeys(slot for slot in (*step.reads, *step.writes) if slot not in seen)
        )
        seen.update(last)
        step.frees = last


def move_constants(graph: Graph, device: torch.device) -> dict[int, torch.Tensor]:
    """Returns the graph's constants on a device; on the CPU they stay where they are, and so do stripped ones."""
    return {
        slot: constant if constant.is_meta else constant.to(device)
        for slot, constant in graph.constants.items()
    }
