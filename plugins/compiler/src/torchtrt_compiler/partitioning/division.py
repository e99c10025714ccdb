"""Partitions a graph: divides the blocks that are too large for one engine, and those that TensorRT cannot build.

``max_engine_bytes`` limits the weights of an engine. On TensorRT without strong types, which is 8.6, an engine also
reads and writes few float16 tensors. TensorRT 8.6 builds a Transformer as one node. If it has more than about 20,
each call converts them to float32 or from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.fx import Graph, Node

from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports
from torchtrt_compiler.partitioning.blocks import (
    Partition,
    group_nodes,
    readers,
    tensor_inputs,
)
from torchtrt_compiler.partitioning.data_sizes import has_unbounded_size

aten = torch.ops.aten
_PRODUCTS = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.matmul.default,
        aten.linear.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.scaled_dot_product_attention.default,
    }
)
"""The ops with which TensorRT 8.6 builds a block without convolutions as one node."""
MOST_HALVES = 18
"""How many float16 tensors an engine of 8.6 may read and write in sum.

Observed on 8.6.0 with steps of GPT-2: 18 stayed float16, and also 12 inputs with two outputs.
Of 21, the outputs did not, and of 25 none did.
"""


def partition_nodes(graph: Graph, settings: CompilationSettings) -> Partition:
    """Returns the blocks of a graph whose nodes have been resolved, each for one engine.

    A block whose weights have more than ``max_engine_bytes`` is divided.
    Without strong types, so is a block that reads and writes more than ``MOST_HALVES`` float16 tensors.
    """
    partition = group_nodes(graph, settings)
    if (most := settings.max_engine_bytes) is not None:
        partition = _divide(partition, lambda nodes: _fitting_weights(nodes, most))
    if not supports(Capability.STRONG_TYPING):
        partition = _divide(partition, _fitting_halves)
    return partition


def _divide(partition: Partition, fitting_of: Callable[[Sequence[Node]], int]) -> Partition:
    """Returns a partition in which blocks are divided as long as they do not fit and can be cut.

    ``fitting_of`` returns how many of a block's first nodes fit into one engine. A block is cut in the last quarter of
    these, where the fewest tensors cross. If none fits, it is cut as early as possible.
    """
    level, last = min(partition.blocks, default=0), max(partition.blocks, default=-1)
    while level <= last:
        nodes = partition.blocks.get(level, ())
        fitting = fitting_of(nodes)
        cut = _cut_behind(nodes, fitting) if fitting < len(nodes) else None
        if cut is not None:
            partition = cut_block(partition, level, cut)
            last += 1
        level += 1
    return partition


def _cut_behind(nodes: Sequence[Node], fitting: int) -> int | None:
    """Returns where to cut a block whose first ``fitting`` nodes fit into an engine; None if it cannot be cut."""
    crossings = crossings_of(nodes)
    positions = [index for index in range(fitting, 0, -1) if index in crossings]
    late = [position for position in positions if position >= fitting - fitting // 4]
    beyond = [index for index in range(fitting + 1, len(nodes)) if index in crossings]
    return first_cut(nodes, [*sorted(late, key=crossings.__getitem__), *positions, *beyond])


def _fitting_weights(nodes: Sequence[Node], most: int) -> int:
    """Returns how many first nodes of a block have at most ``most`` bytes of weights."""
    counted: set[str] = set()
    total = 0
    for index, node in enumerate(nodes):
        total += _new_weight_bytes(node, counted)
        if total > most:
            return index
    return len(nodes)


def _fitting_halves(nodes: Sequence[Node]) -> int:
    """Returns how many first nodes of a block read and write few float16 tensors; all, if no division helps."""
    if any(str(node.target).startswith("aten.conv") for node in nodes):
        return len(nodes)  # it is built layer by layer, each with types of its own
    numbers = {node: number for number, node in enumerate(nodes)}
    changes = [0] * (len(nodes) + 2)  # of how many cross, from one place to the next
    read: set[Node] = set()
    for number, node in enumerate(nodes):
        outside = {
            input_ for input_ in tensor_inputs(node) if input_ not in numbers and _is_half(input_)
        }
        changes[number + 1] += len(outside - read)
        read |= outside
        if _is_half(node) and (users := readers(node)):
            changes[number + 1] += 1
            changes[max(numbers.get(user, len(nodes)) for user in users) + 1] -= 1
    fitting = max(
        index
        for index, count in enumerate(itertools.accumulate(changes[: len(nodes) + 1]))
        if count <= MOST_HALVES
    )
    return fitting if any(node.target in _PRODUCTS for node in nodes[:fitting]) else len(nodes)


def _is_half(node: Node) -> bool:
    """Returns whether a node is a float16 tensor from outside the weights."""
    value = node.meta.get("val")
    return (
        node.op != "get_attr" and isinstance(value, torch.Tensor) and value.dtype == torch.float16
    )


def split_block(partition: Partition, level: int) -> Partition | None:
    """Returns a partition in which one block has become two, or ``None`` if it cannot be parted.

    It is cut in its middle half, where the fewest tensors go from the first part to the second.
    """
    nodes = partition.blocks[level]
    count, crossings = len(nodes), crossings_of(nodes)
    positions = [
        index for index in range(max(1, count // 4), count - count // 4) if index in crossings
    ]
    positions.sort(key=lambda position: (crossings[position], abs(position - count // 2), position))
    cut = first_cut(nodes, positions)
    return None if cut is None else cut_block(partition, level, cut)


def cut_block(partition: Partition, level: int, cut: int) -> Partition:
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


def weight_bytes(nodes: Sequence[Node]) -> int:
    """Returns the bytes of the weights that nodes read, each weight once."""
    counted: set[str] = set()
    return sum(_new_weight_bytes(node, counted) for node in nodes)


def _new_weight_bytes(node: Node, counted: set[str]) -> int:
    """Returns the bytes of the weights that a node reads and that are not counted yet."""
    total = 0
    for source in node.all_input_nodes:
        if source.op == "get_attr" and str(source.target) not in counted:
            counted.add(str(source.target))
            value = source.meta.get("val")
            total += value.nbytes if isinstance(value, torch.Tensor) else 0
    return total


def crossings_of(nodes: Sequence[Node]) -> dict[int, int]:
    """Returns the positions at which a block can be cut, each with the number of tensors that go from part to part.

    A position is the number of nodes before the cut.
    """
    numbers = {node: number for number, node in enumerate(nodes)}
    crossing = [0] * (len(nodes) + 1)  # changes from one position to the next
    stuck = crossing.copy()
    for number, node in enumerate(nodes):
        last = max((numbers.get(user, 0) for user in readers(node)), default=0)
        if last <= number:
            continue
        for changes in (crossing, stuck) if _must_stay_inside(node) else (crossing,):
            changes[number + 1] += 1
            changes[last + 1] -= 1
    totals = zip(itertools.accumulate(crossing), itertools.accumulate(stuck), strict=True)
    counts = enumerate(totals)
    return {
        position: count
        for position, (count, held) in counts
        if not held and 0 < position < len(nodes)
    }


def first_cut(nodes: Sequence[Node], positions: Iterable[int]) -> int | None:
    """Returns the first of the positions at which both parts of a block have an input, or None."""
    cuts = (
        position
        for position in positions
        if _has_input(nodes[:position]) and _has_input(nodes[position:])
    )
    return next(cuts, None)


def _has_input(nodes: Sequence[Node]) -> bool:
    """Returns whether nodes read a tensor from outside that is no weight: an engine needs an input."""
    inside = set(nodes)
    sources = (source for node in nodes for source in tensor_inputs(node))
    return any(source.op != "get_attr" and source not in inside for source in sources)


def _must_stay_inside(node: Node) -> bool:
    """Returns whether no engine can hand on what a node makes: several tensors at once, or a size without bound."""
    return isinstance(node.meta.get("val"), (list, tuple)) or has_unbounded_size(node)
