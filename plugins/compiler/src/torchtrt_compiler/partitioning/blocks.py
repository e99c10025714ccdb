"""Groups the nodes that TensorRT can run into as few blocks as data flow allows.

Every node gets a level. PyTorch and blocks alternate: PyTorch -1, block 0, PyTorch 0, block 1, ... A
TensorRT node's level is the maximum among its TensorRT inputs' levels and its PyTorch inputs'
levels plus one; a PyTorch node's is the maximum of all its inputs'. TensorRT nodes of one level
form one block. No block can depend on itself through PyTorch, and the whole takes linear time.

Where nodes have groups (see ``groups``), those of one group have higher levels than those of the groups before.
PyTorch's nodes at the beginning of a group have the highest level before, behind PyTorch's nodes there.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from torchtrt.graphs.nodes import resolution_of
from torchtrt.registry.candidate import Rejection, RejectionCode
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.groups import group_of


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


def partition_nodes(graph: Graph, settings: CompilationSettings) -> Partition:
    """Returns the blocks of a graph whose nodes have been resolved.

    A node stays in PyTorch if no converter accepts it, or if its block would be smaller than ``min_block_size``.
    It also stays there if an engine would need an input whose size has no bound.
    With ``require_full_compilation`` no block is too small.
    A block whose weights have more than ``max_engine_bytes`` is split.
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
    smallest = 1 if settings.require_full_compilation else settings.min_block_size
    while True:
        levels = _assign_levels(graph, reasons)
        blocks: dict[int, list[Node]] = {}
        for node, level in levels.items():
            if node not in reasons:
                blocks.setdefault(level, []).append(node)
        if not (demoted := _demotions(blocks, smallest)):
            break
        reasons.update(demoted)
    partition = Partition(
        {level: tuple(nodes) for level, nodes in sorted(blocks.items())},
        tuple(
            TorchNode(node, *reasons[node])
            for node in graph.nodes
            if node in reasons and node.target is not operator.getitem
        ),
        levels,
    )
    return _limited(partition, settings.max_engine_bytes)


def split_block(partition: Partition, level: int) -> Partition | None:
    """Returns a partition in which one block has become two, or ``None`` if it cannot be parted.

    It is cut in its middle half, where the fewest tensors go from the first part to the second.
    """
    nodes = partition.blocks[level]
    count, crossings = len(nodes), _crossings(nodes)
    places = [each for each in range(max(1, count // 4), count - count // 4) if each in crossings]
    places.sort(key=lambda place: (crossings[place], abs(place - count // 2), place))
    cut = _first_cut(nodes, places)
    return None if cut is None else _cut(partition, level, cut)


def _cut(partition: Partition, level: int, cut: int) -> Partition:
    """Returns a partition in which the nodes of one block from the place ``cut`` on are a block of their own."""
    nodes = partition.blocks[level]
    first = set(nodes[:cut])
    levels = {
        node: old if old < level or node in first else old + 1
        for node, old in partition.levels.items()
    }
    blocks: dict[int, tuple[Node, ...]] = {}
    for old, members in sorted(partition.blocks.items()):
        if old < level:
            blocks[old] = members
        elif old == level:
            blocks[level] = nodes[:cut]
            blocks[level + 1] = nodes[cut:]
        else:
            blocks[old + 1] = members
    return Partition(blocks, partition.torch_nodes, levels)


def _limited(partition: Partition, most: int | None) -> Partition:
    """Returns a partition in which each block has at most so many bytes of weights, or cannot be split further."""
    level, last = min(partition.blocks, default=0), max(partition.blocks, default=-1)
    while most is not None and level <= last:
        nodes = partition.blocks.get(level, ())
        cut = _cut_by_weights(nodes, most) if weight_bytes(nodes) > most else None
        if cut is not None:
            partition = _cut(partition, level, cut)
            last += 1
        level += 1
    return partition


def _cut_by_weights(nodes: Sequence[Node], most: int) -> int | None:
    """Returns where to cut a block so that the weights before the cut have at most ``most`` bytes.

    The last quarter of the fitting places is searched for the fewest crossing tensors. If no place fits, because a
    single op has more weights, the block is cut as early as possible.
    """
    known: set[str] = set()
    total, fitting = 0, 0
    for place, node in enumerate(nodes):
        total += _new_weight_bytes(node, known)
        if total > most:
            break
        fitting = place + 1
    crossings = _crossings(nodes)
    places = [each for each in range(fitting, 0, -1) if each in crossings]
    late = [each for each in places if each >= fitting - fitting // 4]
    beyond = [each for each in range(fitting + 1, len(nodes)) if each in crossings]
    return _first_cut(nodes, [*sorted(late, key=crossings.__getitem__), *places, *beyond])


def weight_bytes(nodes: Sequence[Node]) -> int:
    """Returns the bytes of the weights that nodes read, each weight once."""
    known: set[str] = set()
    return sum(_new_weight_bytes(node, known) for node in nodes)


def _new_weight_bytes(node: Node, known: set[str]) -> int:
    """Returns the bytes of the weights that a node reads and that are not known yet."""
    total = 0
    for source in node.all_input_nodes:
        if source.op == "get_attr" and str(source.target) not in known:
            known.add(str(source.target))
            value = source.meta.get("val")
            total += value.nbytes if isinstance(value, torch.Tensor) else 0
    return total


def leave_block(partition: Partition, level: int, reason: str) -> Partition:
    """Returns a partition in which the nodes of one block stay in PyTorch."""
    blocks = dict(partition.blocks)
    left = (TorchNode(node, *_rule(reason, "unbuilt")) for node in blocks.pop(level))
    return Partition(blocks, (*partition.torch_nodes, *left), partition.levels)


def _crossings(nodes: Sequence[Node]) -> dict[int, int]:
    """Returns the places where a block can be cut, each with the number of tensors that go from part to part.

    A place is the number of nodes before the cut.
    """
    numbers = {node: number for number, node in enumerate(nodes)}
    crossing = [0] * (len(nodes) + 1)  # changes from one place to the next
    stuck = crossing.copy()
    for number, node in enumerate(nodes):
        last = max((numbers.get(user, 0) for user in _readers(node)), default=0)
        if last <= number:
            continue
        for changes in (crossing, stuck) if _must_stay_inside(node) else (crossing,):
            changes[number + 1] += 1
            changes[last + 1] -= 1
    totals = zip(itertools.accumulate(crossing), itertools.accumulate(stuck), strict=True)
    counts = enumerate(totals)
    return {place: count for place, (count, held) in counts if not held and 0 < place < len(nodes)}


def _first_cut(nodes: Sequence[Node], places: Iterable[int]) -> int | None:
    """Returns the first of the places at which both parts of a block have an input, or None."""
    cuts = (each for each in places if _has_input(nodes[:each]) and _has_input(nodes[each:]))
    return next(cuts, None)


def _has_input(nodes: Sequence[Node]) -> bool:
    """Returns whether nodes read a tensor from outside that is no weight: an engine needs an input."""
    inside = set(nodes)
    sources = (source for node in nodes for source in tensor_inputs(node))
    return any(source.op != "get_attr" and source not in inside for source in sources)


def _must_stay_inside(node: Node) -> bool:
    """Returns whether no engine can hand on what a node makes: several tensors at once, or a size without bound."""
    return isinstance(node.meta.get("val"), (list, tuple)) or _has_unbounded_size(node)


def _readers(node: Node) -> set[Node]:
    """Returns the nodes that read a node's tensors, directly or through sizes."""
    readers: set[Node] = set()
    for user in node.users:
        readers |= _readers(user) if is_scalar(user) else {user}
    return readers


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


def _demotions(blocks: Mapping[int, list[Node]], smallest: int) -> dict[Node, _Reason]:
    """Returns the nodes that have to leave their blocks, with the reasons."""
    demoted: dict[Node, _Reason] = {}
    for nodes in blocks.values():
        members = set(nodes)
        calls = [node for node in nodes if node.target is not operator.getitem]
        inputs = {source for node in nodes for source in tensor_inputs(node)} - members
        if not any(source.op != "get_attr" for source in inputs):
            reason = "It depends on no input of the model, so an engine would have none."
            demoted.update(dict.fromkeys(nodes, _rule(reason, "no-input")))
        elif len(calls) < smallest:
            count = "1 op" if len(calls) == 1 else f"{len(calls)} ops"
            reason = f"TensorRT could run it, but its block has {count} and min_block_size is {smallest}."
            demoted.update(dict.fromkeys(nodes, _rule(reason, "block-too-small")))
        for node in nodes:
            for source in tensor_inputs(node):
                if source not in members and _has_unbounded_size(source):
                    reason = (
                        f"Its input {source.name} comes from outside the engine with a size that depends on data, "
                        "so there is no maximum size to build for."
                    )
                    demoted[node] = _rule(reason, "unbounded-size")
    for node in list(demoted):  # what picks an output follows the call
        demoted.update({user: demoted[node] for user in node.users if _producer(user) is node})
    return demoted


def _has_unbounded_size(node: Node) -> bool:
    leaves: list[Any] = pytree.tree_leaves(node.meta.get("val"))
    return any(
        isinstance(leaf, torch.Tensor) and bool(free_unbacked_symbols(leaf)) for leaf in leaves
    )
