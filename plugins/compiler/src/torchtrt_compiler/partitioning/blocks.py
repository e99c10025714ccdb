"""Groups the nodes that TensorRT can run into as few blocks as data flow allows.

Every node gets a level. PyTorch and blocks alternate: PyTorch -1, block 0, PyTorch 0, block 1, ... A
TensorRT node's level is the maximum among its TensorRT inputs' levels and its PyTorch inputs'
levels plus one; a PyTorch node's is the maximum of all its inputs'. TensorRT nodes of one level
form one block. No block can depend on itself through PyTorch, and the whole takes linear time.

Where nodes have groups (see ``groups``), those of one group have higher levels than those of the groups before.
PyTorch's nodes at the beginning of a group have the highest level before, behind PyTorch's nodes there.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from torchtrt.graphs.nodes import declares_alias, group_of, resolution_of
from torchtrt.registry.candidate import Rejection, RejectionCode
from torchtrt.settings import CompilationSettings
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.partitioning.data_sizes import has_unbounded_size
from torchtrt_runtime.weights.graph_attributes import written_attributes


@dataclass(frozen=True)
class TorchNode:
    """A node that stays in PyTorch.

    Attributes:
        node: The graph node.
        reason: Why, in one or more lines.
        rejections: The same as data: what became of each candidate, or the one rule that applied.
    """

    node: Node
    reason: str
    rejections: tuple[Rejection, ...]


_Reason = tuple[str, tuple[Rejection, ...]]
"""Why a node stays in PyTorch: as text of one or more lines, and as data."""

NOT_COMPUTED = frozenset({"write", "view"})
"""The codes of nodes that stay in PyTorch in any case, and that compute nothing."""


@dataclass(frozen=True)
class Partition:
    """Which nodes go where.

    Attributes:
        blocks: For each block, its level and its nodes in graph order.
        torch_nodes: The nodes that stay in PyTorch, in graph order, with the reason for each.
        levels: The level of every call of either kind.
    """

    blocks: Mapping[int, tuple[Node, ...]]
    torch_nodes: tuple[TorchNode, ...]
    levels: Mapping[Node, int]


def group_nodes(graph: Graph, settings: CompilationSettings) -> Partition:
    """Returns the blocks of a graph whose nodes have been resolved, however large they are.

    A node stays in PyTorch if no converter accepts it, or if its block would be smaller than ``min_block_size``.
    It also stays there if an engine would need an input whose size depends on data and has no maximum.
    No block is too small if nothing but writes and views stays in PyTorch, or with ``require_full_compilation``.
    """
    reasons: dict[Node, _Reason] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_scalar(node):
            continue
        producer = _producer(node)
        if producer is not node:
            if producer in reasons:
                reasons[node] = reasons[producer]
        elif reason := _rejection(node):
            reasons[node] = reason
    written = written_attributes(graph)
    while True:
        is_whole = _is_whole(graph, reasons)
        smallest = 1 if is_whole or settings.require_full_compilation else settings.min_block_size
        levels = _assign_levels(graph, reasons)
        blocks: dict[int, list[Node]] = {}
        for node, level in levels.items():
            if node not in reasons:
                blocks.setdefault(level, []).append(node)
        if not (demoted := _demotions(blocks, smallest, written)):
            break
        reasons.update(demoted)
    return Partition(
        {level: tuple(nodes) for level, nodes in sorted(blocks.items())},
        tuple(
            TorchNode(node, *reasons[node])
            for node in graph.nodes
            if node in reasons and node.target is not operator.getitem
        ),
        levels,
    )


def leave_block(partition: Partition, level: int, reason: str) -> Partition:
    """Returns a partition in which the nodes of one block stay in PyTorch."""
    blocks = dict(partition.blocks)
    left = (TorchNode(node, *_rule(reason, "unbuilt")) for node in blocks.pop(level))
    return Partition(blocks, (*partition.torch_nodes, *left), partition.levels)


def readers(node: Node) -> set[Node]:
    """Returns the nodes that read a node's tensors, directly or through sizes."""
    nodes: set[Node] = set()
    for user in node.users:
        nodes |= readers(user) if is_scalar(user) else {user}
    return nodes


def is_scalar(node: Node) -> bool:
    """Returns whether a call makes a number rather than tensors: sizes and arithmetic on them.

    Such nodes have no side: PyTorch computes them where it needs them, and each block repeats what it needs.
    """
    return node.op == "call_function" and isinstance(
        node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
    )


def tensor_inputs(node: Node) -> dict[Node, None]:
    """Returns the nodes whose tensors ``node`` reads, directly or through the sizes it uses, in order."""
    return {source: None for source in _sources(node) if not is_scalar(source)}


def _sources(node: Node) -> Iterator[Node]:
    """Yields what a node reads, directly or through numbers, in order, and these numbers."""
    pending = list(reversed(node.all_input_nodes))
    while pending:
        source = pending.pop()
        yield source
        if is_scalar(source):
            pending.extend(reversed(source.all_input_nodes))


def _producer(node: Node) -> Node:
    """Returns the call whose output ``node`` picks, for ``getitem`` on a call with several outputs; else ``node``."""
    while node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, Node)
        if source.op != "call_function":
            break
        node = source
    return node


def _rejection(node: Node) -> _Reason | None:
    """Returns why a node stays in PyTorch, or None if it need not."""
    if (resolution := resolution_of(node)) is None:
        return _rule("It was never resolved.", "no-converter")
    if not resolution:
        reasons = resolution.reasons
        return "\n".join(resolution.details()) or reasons[0].reason, reasons
    for scalar in filter(is_scalar, _sources(node)):
        scalar_resolution = resolution_of(scalar)
        if not scalar_resolution:
            text = f"It uses the number {scalar.name} ({scalar.target}), which cannot be computed in TensorRT."
            return _rule(text, "number")
    return None


def _is_whole(graph: Graph, reasons: Mapping[Node, _Reason]) -> bool:
    """Returns whether engines compute all that a graph computes; a graph that only views memory computes nothing."""
    if not all(_computes_nothing(rejections) for _, rejections in reasons.values()):
        return False
    calls = (node for node in graph.nodes if node.op == "call_function" and node not in reasons)
    return any(
        not (isinstance(node.target, OpOverload) and declares_alias(node.target))
        for node in calls
        if not is_scalar(node) and node.target is not operator.getitem
    )


def _computes_nothing(rejections: Iterable[Rejection]) -> bool:
    """Returns whether a node stays in PyTorch because it only writes or views memory."""
    return any(rejection.code in NOT_COMPUTED for rejection in rejections)


def _rule(reason: str, code: RejectionCode) -> _Reason:
    return reason, (Rejection(None, reason, code),)


def _assign_levels(graph: Graph, reasons: Mapping[Node, _Reason]) -> dict[Node, int]:
    """Returns the level of each call that makes tensors, as the top of this module defines it."""
    levels: dict[Node, int] = {}
    group, floor, top = None, -1, -1
    for node in graph.nodes:
        if node.op != "call_function" or is_scalar(node):
            continue
        if (own := group_of(node)) is not None and own != group:
            group, floor = own, top  # behind all groups before
        level = floor if node in reasons else floor + 1
        for source in tensor_inputs(node):
            if source not in levels:
                continue
            enters_engine = source in reasons and node not in reasons
            level = max(level, levels[source] + 1 if enters_engine else levels[source])
        levels[node] = level
        top = max(top, level)
    return levels


def _demotions(
    blocks: Mapping[int, list[Node]], smallest: int, written: Collection[str]
) -> dict[Node, _Reason]:
    """Returns the nodes that have to leave their blocks, with the reasons."""
    demoted: dict[Node, _Reason] = {}
    for nodes in blocks.values():
        members = set(nodes)
        calls = [node for node in nodes if node.target is not operator.getitem]
        inputs = {source for node in nodes for source in tensor_inputs(node)} - members
        if all(input_.op == "get_attr" and str(input_.target) not in written for input_ in inputs):
            reason = "It depends on no input of the model, so an engine would have none."
            demoted.update(dict.fromkeys(nodes, _rule(reason, "no-input")))
        elif len(calls) < smallest:
            count = "1 op" if len(calls) == 1 else f"{len(calls)} ops"
            reason = f"TensorRT could run it, but its block has {count} and min_block_size is {smallest}."
            demoted.update(dict.fromkeys(nodes, _rule(reason, "block-too-small")))
        for node in nodes:
            for source in tensor_inputs(node):
                if source not in members and has_unbounded_size(source):
                    reason = (
                        f"Its input {source.name} comes from outside the engine with a size that depends on data, and "
                        "the program has no maximum for it that an engine could be built for. In the model, "
                        "torch._check(n <= ...) gives one."
                    )
                    demoted[node] = _rule(reason, "unbounded-size")
    for node in list(demoted):  # what picks an output follows the call
        demoted.update({user: demoted[node] for user in node.users if _producer(user) is node})
    return demoted
