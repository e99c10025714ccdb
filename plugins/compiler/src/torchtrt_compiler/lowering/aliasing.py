"""Which tensors of a graph may share memory, and what follows for its results and its writes.

A lowered graph reads, computes, and only then writes to inputs and attributes. ``copy_`` writes all of one or, where a
pass found the new part, that part. The views that are these parts come before the first write. Inside the graph a value
is a value, and copies may go as they please. Memory can be seen from outside in two places only, both settled here:

* **A result that the caller writes to.** Writing into a result changes nothing that it would not change in eager
  PyTorch.
* **A write at the end.** What is returned, or written elsewhere, is what it was when the program read it.

Facts
    ``memory_of_calls`` has those about single ops.

Sets
    The *memories* of a node are the inputs, storages of attributes, and calls whose memory it may be, along
    ``may_share``. Attributes that are views of one storage have one memory. A node *repeats* when several of its
    elements may be one place in memory, as after ``expand``. The *origin* of a result is the input or call whose memory
    it surely is in the model as it was written, along ``certain_source``. It includes whether the result repeats there.

Conclusions
    * Functionalization rewrites ``y = op_(x)`` as ``y = op(x)`` where no other node may hold the memory of ``x``. It
      has PyTorch rewrite the rest, with what is undeclared declared, and refuses writes to what repeats.
    * No weight that is read may lie in memory that is written under another name (``written_inputs``).
    * Copy removal and constant folding need no check: they change no value, and origins are taken before them
      (``origins_of``).
    * Once the graph is complete, ``clone_aliased_outputs`` copies each result that may be an attribute's memory: no
      caller gets a weight or a folded constant. It copies results that may be memory that is written at the end,
      and results that may share memory with an input or an earlier result of another origin. It copies results that may
      repeat where their origin does not, and values to be written that may lie in memory that a write changes.
    * Inputs are taken to share memory with nothing; a call in which one does, and is written, is an error
      (``torchtrt_runtime.checks.memory``).
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from torchtrt.contract import constant_of
from torchtrt.expressions.bounds import holds_for_all_sizes
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import mutates
from torchtrt_compiler.memory_of_calls import (
    NUMBERS,
    REPEATING,
    certain_source,
    copies_by_strides,
    may_share,
)

aten = torch.ops.aten


class Origin(NamedTuple):
    """The certain facts about a result's memory in the model as it was written.

    Attributes:
        memory: An input, by its position, or a call, by its name. Two results share only where theirs are equal.
        repeats: Whether several elements of the result may be one place in memory, as after ``expand``.
    """

    memory: Hashable
    repeats: bool


def writes_by_strides(graph_module: GraphModule) -> set[Node]:
    """Returns the ops whose strides determine what a write changes, of what the graph reads afterwards or is given.

    The graph still has its writes where the model has them.
    """
    nodes = list(graph_module.graph.nodes)
    if not any(map(copies_by_strides, nodes)):
        return set()
    memories = _memories(graph_module)
    return set().union(
        *(
            _deciding(memories, node, nodes[index + 1 :])
            for index, node in enumerate(nodes)
            if mutates(node)
        )
    )


def _deciding(
    memories: Mapping[Node, frozenset[Hashable]], write: Node, later: Sequence[Node]
) -> set[Node]:
    """Returns the ops by which a later node, or the caller, reads what a write changes for some strides only."""
    written = memories.get(write.args[0], frozenset())  # type: ignore[arg-type]
    copies = _perhaps_copies(written, write)
    deciding = set(copies) if any(map(_is_input, written)) else set()
    for node in later:
        for source in node.all_input_nodes:
            read = memories.get(source, frozenset())
            if not read.isdisjoint(written):
                deciding |= _perhaps_copies(read, write) ^ copies
    return deciding


def _perhaps_copies(memories: Iterable[Hashable], write: Node) -> set[Node]:
    """Returns those of memories that are copies for some strides, made before a write."""
    nodes = (memory for memory in memories if isinstance(memory, Node))
    return {node for node in nodes if copies_by_strides(node) and node < write}


def _is_input(memory: Hashable) -> bool:
    return isinstance(memory, Node) and memory.op == "placeholder"


def origins_of(exported: ExportedProgram) -> tuple[Origin, ...]:
    """Returns the origin of each of a program's outputs; that of an input is its position.

    The program still has its writes: what is rewritten without them may return what was written in place of where it
    was written to. An input counts only where the example was contiguous: exporting leaves no trace of a copy that
    such an example did not need.
    """
    signature = exported.graph_signature
    users = (spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT)
    inputs = {spec.arg.name: index for index, spec in enumerate(users)}
    outputs: Any = exported.graph.output_node().args[0]
    kinds = [spec.kind is OutputKind.USER_OUTPUT for spec in signature.output_specs]
    written = {value for value, is_result in zip(outputs, kinds, strict=True) if not is_result}

    def origin(result: Any) -> Origin:
        """Returns the origin of one result."""
        if not isinstance(result, Node):
            return Origin(None, False)
        repeats = _may_repeat(result)
        while source := certain_source(result):
            result, repeats = source, repeats or _may_repeat(source)
        is_input = result.op == "placeholder" and result.name in inputs and result not in written
        if is_input and is_contiguous(result.meta.get("val")):
            return Origin(inputs[result.name], repeats)
        if result.target is operator.getitem:
            return Origin((str(result.args[0]), result.args[1]), repeats)
        return Origin(result.name, repeats)

    return tuple(
        origin(value) for value, is_result in zip(outputs, kinds, strict=True) if is_result
    )


def written_inputs(graph_module: GraphModule) -> set[Node]:
    """Returns the placeholders whose memory a graph may write to."""
    destinations = [node.args[0] for node in graph_module.graph.nodes if mutates(node)]
    if not destinations:
        return set()
    memories = _memories(graph_module)
    written: set[Hashable] = set()
    for node in destinations:
        written |= memories.get(node, frozenset())
    return {node for node in graph_module.graph.find_nodes(op="placeholder") if node in written}


def is_contiguous(value: Any) -> bool:
    """Returns whether a tensor, whose sizes may be symbols, is known to be contiguous."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if not holds_for_all_sizes(size == 1) and not holds_for_all_sizes(stride == expected):
            return False
        expected = expected * size
    return True


def clone_aliased_outputs(graph_module: GraphModule, origins: Sequence[Origin]) -> frozenset[int]:
    """Copies what the caller, or a write at the end, could change through memory that eager PyTorch does not share.

    Args:
        graph_module: The complete graph, with an engine or a graph module for each block.
        origins: Those of its results, taken before anything was removed.

    Returns:
        The positions of the inputs whose memory results may still be.
    """
    return _AliasedOutputs(graph_module).run(origins)


class _AliasedOutputs:
    """Copies results and written values that must not share memory as they do in a graph.

    Attributes:
        memories: For each node the memories that it may be.
        repeating: The nodes whose elements may share a place in memory.
        writes: The writes at the end of the graph, in order.
        copies: The copy of a value for the results of an origin; without origin, for writes.
    """

    def __init__(self, graph_module: GraphModule) -> None:
        self.graph_module = graph_module
        self.graph = graph_module.graph
        self.memories = _memories(graph_module)
        self.repeating = self_overlapping_nodes(self.graph)
        self.writes = [node for node in self.graph.nodes if mutates(node)]
        self.copies: dict[tuple[Node, Origin | None], Node] = {}

    def run(self, origins: Sequence[Origin]) -> frozenset[int]:
        """Copies what has to be copied, and returns the positions of inputs whose memory results may still be."""
        output = self.graph.output_node()
        results = self.separate_results(output.args[0], origins)
        self.separate_writes()
        output.args = (tuple(results),)
        self.graph_module.recompile()
        returned: set[Hashable] = set()
        for result in results:
            returned |= self.memories_of(result)
        inputs = self.graph.find_nodes(op="placeholder")
        return frozenset(index for index, node in enumerate(inputs) if node in returned)

    def separate_results(self, results: Any, origins: Sequence[Origin]) -> list[Any]:
        """Returns results, with copies of those that may be memory that is not of their origin."""
        inputs = self.graph.find_nodes(op="placeholder")
        # The memory of each origin that has been returned; an input's origin is its position.
        owners: dict[Hashable, Hashable] = {node: index for index, node in enumerate(inputs)}
        written: set[Hashable] = set()
        for node in self.writes:
            written |= self.memories_of(node.args[0])
        separate: list[Any] = []
        for result, origin in zip(results, origins, strict=True):
            memories = self.memories_of(result)
            is_foreign = any(
                isinstance(memory, _Storage)
                or memory in written
                or owners.get(memory, origin.memory) != origin.memory
                for memory in memories
            )
            if is_foreign or (result in self.repeating and not origin.repeats):
                separate.append(self.copy(result, origin))
            else:
                owners.update(dict.fromkeys(memories, origin.memory))
                separate.append(result)
        return separate

    def separate_writes(self) -> None:
        """Copies what is written from memory that an earlier write, or the same one, changes."""
        changed: set[Hashable] = set()

        def before(value: Node) -> Node:
            return value if changed.isdisjoint(self.memories_of(value)) else self.copy(value, None)

        for node in self.writes:
            destination, *values = node.args
            changed |= self.memories_of(destination)
            node.args = (destination, *torch.fx.map_arg(values, before))

    def memories_of(self, value: Any) -> frozenset[Hashable]:
        """Returns the memories that a value may be: none where it is no node."""
        return self.memories.get(value, frozenset()) if isinstance(value, Node) else frozenset()

    def copy(self, value: Node, origin: Origin | None) -> Node:
        """Returns a copy of ``value`` from before the first write, one for all results of an origin."""
        if (value, origin) not in self.copies:
            first = self.writes[0] if self.writes else self.graph.output_node()
            if first < value:  # an attribute that only the writes name
                first.prepend(value)
            with self.graph.inserting_before(first):
                copy = self.graph.call_function(aten.clone.default, (value,))
            fake = value.meta.get("val")
            if isinstance(fake, torch.Tensor) and fake.layout is torch.strided:
                # As what an engine returns.
                copy.kwargs = {"memory_format": torch.contiguous_format}
            copy.meta = dict(value.meta)
            self.copies[value, origin] = copy
        return self.copies[value, origin]


class _Storage(int):
    """The memory of an attribute, by its storage."""


def _memories(graph_module: GraphModule) -> dict[Node, frozenset[Hashable]]:
    """Returns, for each node that makes tensors, the memories that they may be."""
    memories: dict[Node, frozenset[Hashable]] = {}
    for node in graph_module.graph.nodes:
        if node.op == "get_attr":
            value = constant_of(node)  # none for the graph of a branch
            memories[node] = frozenset(() if value is None else {_Storage(storage_of(value))})
        elif node.target is operator.getitem and not may_share(node.args[0]):
            memories[node] = frozenset({node.args})  # one of several new tensors
        elif node.op != "output" and not isinstance(node.meta.get("val"), NUMBERS):
            possible: set[Hashable] = set()
            for source in may_share(node):
                possible |= memories.get(source, frozenset())
            if certain_source(node) is None and node.target is not operator.getitem:
                possible.add(node)
            memories[node] = frozenset(possible)
    return memories


def self_overlapping_nodes(graph: Graph) -> set[Node]:
    """Returns the nodes whose results may have several elements in one place."""
    repeating: set[Node] = set()
    for node in graph.nodes:
        sources = may_share(node)
        is_view = _may_repeat(node) or node.op == "call_module"
        if (sources and is_view) or not repeating.isdisjoint(sources):
            repeating.add(node)
    return repeating


def _may_repeat(node: Node) -> bool:
    """Returns whether a view may have several elements in one place: of ``unfold``, where windows overlap."""
    if node.target is aten.unfold.default:
        *_, size, step = node.args
        return bool(size > step)  # type: ignore[operator]
    return node.target in REPEATING
