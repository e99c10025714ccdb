"""Rewrites a graph whose rows are divided among processes, as ``division.py`` found them.

A node that computes a process's own rows is replaced by one, and a node that computes all rows in parts by several. The
graph gets an order of *turns*. First comes what is whole, and the process's own rows of what is equal everywhere. Then
come the parts: the process's own, up to the product before a sum, those of the other processes, and its own part of
that product. The nodes of a turn are a *group*, and no engine has nodes of two groups.

Rows travel by shifts (``torchtrt_runtime.processes.shifts``): in each, all processes pass a tensor the same number of
places along the group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.contract import arguments_of
from torchtrt.errors import ProcessGroupError, UnsupportedProgramError
from torchtrt.graphs import (
    draws_random_numbers,
    leave_in_torch,
    never_fold,
    put_into_group,
    writes,
)
from torchtrt.targets import qualified_name
from torchtrt_converters_distributed.rows.division import (
    ALL_REDUCE,
    SUMS,
    WAIT,
    Division,
    Form,
)
from torchtrt_converters_distributed.rows.rules import REARRANGEMENTS, RESHAPES, sizes_of
from torchtrt_converters_distributed.torch_internals import OpOverload, python_dispatcher
from torchtrt_runtime.processes.groups import Processes
from torchtrt_runtime.processes.meetings import equal_digests
from torchtrt_runtime.processes.shifts import NAMESPACE
from torchtrt_runtime.torch_internals import is_fake

aten = torch.ops.aten
_TAKE_ROWS = frozenset({aten.slice.Tensor, aten.select.int})
SHIFT = getattr(torch.ops, NAMESPACE).shift.default

_ROWS_OF = "torchtrt_rows_of"
_ALIGNMENT = 256
"""TensorRT documents that the address of a tensor is a multiple of this number of bytes."""
_Key = tuple[float, int, int]
"""The place of a node: its stage, its turn in the stage, and its place in the turn."""


def divide_rows(graph_module: GraphModule, division: Division) -> None:
    """Divides the rows of a graph among processes.

    Args:
        graph_module: The program's graph, before its nodes are looked up.
        division: What is divided.

    Raises:
        UnsupportedProgramError: A part of an op's result has other sizes than expected.
        ProcessGroupError: The processes would exchange different rows. Or another process does not arrive, or has
            failed.
    """
    _Rewriting(graph_module, division).run()
    shifts = graph_module.graph.find_nodes(op="call_function", target=SHIFT, sort=True)
    exchanges = {f"{index}": _description(node) for index, node in enumerate(shifts)}
    processes = Processes.of(graph_module)
    digests = equal_digests(processes, "the rows of a model", exchanges, division.group)
    if None in digests.values():
        raise ProcessGroupError(
            "async_tensor_parallel=True would divide other rows in each process. Compile the same model in all of "
            "them, with the same settings and with inputs of the same sizes."
        )
    graph_module.recompile()


class _Rewriting:
    """Replaces nodes by those for a part of their rows, and orders the graph.

    Args:
        graph_module: The program.
        division: What is divided.

    Attributes:
        own: The node with this process's rows of each node that has the form ``OWN``.
        parts: The nodes with each part of each node that has the form ``PARTS``, in the order of the group.
        keys: The place of each node of the new graph.
    """

    def __init__(self, graph_module: GraphModule, division: Division) -> None:
        self.graph = graph_module.graph
        self.division = division
        self.own: dict[Node, Node] = {}
        self.parts: dict[Node, list[Node]] = {}
        self.gathered: dict[Node, list[Node]] = {}
        self.wholes: dict[Node, Node] = {}
        self.cuts: dict[tuple[Node, int], list[Node]] = {}
        self.keys: dict[Node, _Key] = {}
        # The stage of the last node with an effect, which the next one follows.
        self.last_effect = 0.0

    def run(self) -> None:
        """Changes the graph."""
        output = self.graph.output_node()
        nodes = list(self.graph.nodes)
        forms = self.division.forms
        with self.graph.inserting_before(output):
            for node in nodes:
                if node not in forms:
                    self.keep(node)
                elif node.target is ALL_REDUCE:
                    self.reduce(node)
                elif node.target is WAIT and forms[node] is Form.OWN:
                    self.own[node] = self.own[node.args[0]]
                elif forms[node] is Form.OWN:
                    self.compute_own(node)
                else:
                    self.compute_parts(node)
        for node in reversed(nodes):
            if node in forms:
                self.graph.erase_node(node)
        self.order()

    def keep(self, node: Node) -> None:
        """Lets a node that stays whole read whole tensors, or the rows that it takes."""
        stage = self.take_rows(node)
        for source in node.all_input_nodes:
            if source in self.division.forms:
                node.replace_input_with(source, self.whole(source))
        is_last = node.op == "output" or writes(node)
        stage = math.inf if is_last else max(stage, self.stage_of(node, 0))
        if not is_last and _has_effect(node):
            stage = self.last_effect = max(stage, self.last_effect)
        self.schedule(node, stage, 0)

    def take_rows(self, node: Node) -> float:
        """Lets a node that takes some rows of one process read only these; returns the stage of that, or 0.

        All processes pass rows at the same places, so that the exchange is the same in each.
        """
        source = node.args[0] if node.target in _TAKE_ROWS else None
        if not isinstance(source, Node) or source not in self.own:
            return 0
        dim = self.division.rows[source].dim
        size = sizes_of(self.own[source].meta["val"])[dim]
        if size is None or dim != _dim_of(node):
            return 0
        rows = _rows_taken(node, size * self.division.count)
        if rows is None or rows.start // size != (rows.stop - 1) // size:
            return 0
        part, start = divmod(rows.start, size)
        taken = self.slice(self.own[source], dim, start, len(rows))
        stage = self.keys[taken][0] + 1
        rest = (0,) if node.target is aten.select.int else (0, len(rows))
        node.args = (self.gather(node, taken)[part], dim, *rest)
        return stage

    def compute_own(self, node: Node) -> None:
        """Adds a node for the rows of this process."""
        rows = self.division.rows[node]
        mine = self.division.group_rank
        own_inputs: dict[Node, Node] = {}
        for source in node.all_input_nodes:
            if source in rows.cut:
                own_inputs[source] = self.cut(source, rows.cut[source])[mine]
            elif source in self.own:
                own_inputs[source] = self.own[source]
            elif source in self.parts:
                own_inputs[source] = self.parts[source][mine]
        made = self.own[node] = self.add(node, rows.dim, own_inputs, mine)
        self.schedule(made, self.stage_of(made, 0), 0)

    def compute_parts(self, node: Node) -> None:
        """Adds a node for each part of the rows."""
        rows = self.division.rows[node]
        inputs: dict[Node, list[Node]] = {}
        for source in node.all_input_nodes:
            if source in rows.cut:
                inputs[source] = self.cut(source, rows.cut[source])
            elif source in self.division.forms:
                inputs[source] = self.parts_of(source)
        self.parts[node] = []
        for part in range(self.division.count):
            part_inputs = {source: parts[part] for source, parts in inputs.items()}
            made = self.add(node, rows.dim, part_inputs, part)
            turn = self.turn_of(part, node in self.division.late or self.follows_late(made))
            self.schedule(made, self.stage_of(made, turn), turn)
            self.parts[node].append(made)

    def reduce(self, node: Node) -> None:
        """Adds the terms of this process's rows, and passes the others to the processes whose rows they are."""
        kind, count, mine = str(node.args[1]), self.division.count, self.division.group_rank
        source = node.args[0]
        assert isinstance(source, Node)
        parts = self.parts_of(source)
        shifts = []
        for distance in range(1, count):
            part = (mine - distance) % count
            turn = self.turn_of(part, is_late=True)
            shifts.append(self.shift(node, parts[part], distance, turn))
        total = parts[mine]
        stage = 1 + max(self.keys[operand][0] for operand in (total, *shifts))
        for shift in shifts:
            term = self.wait(shift, stage, 0)
            total = self.call(SUMS[kind], (total, term), total.meta["val"])
            self.schedule(total, stage, 0)
        self.own[node] = total

    def parts_of(self, node: Node) -> list[Node]:
        """Returns all parts of a node; of one whose own rows this process has, it receives the others."""
        if node not in self.parts and node.target in REARRANGEMENTS and node.args[0] in self.own:
            self.rearrange(node)
        return self.parts[node] if node in self.parts else self.gather(node, self.own[node])

    def rearrange(self, node: Node) -> None:
        """Adds a node for each part that is received in the order of elements before a view."""
        source = node.args[0]
        assert isinstance(source, Node)
        parts = self.parts_of(source)
        self.parts[node] = []
        for part in range(self.division.count):
            made = self.own[node]
            if part != self.division.group_rank:
                made = self.add(node, self.division.rows[node].dim, {source: parts[part]}, part)
                turn = self.turn_of(part, False)
                self.schedule(made, self.stage_of(made, turn), turn)
            self.parts[node].append(made)

    def gather(self, node: Node, own: Node) -> list[Node]:
        """Returns what all processes have at the place of this one's rows of a node."""
        if own not in self.gathered:
            count, mine = self.division.count, self.division.group_rank
            parts = self.gathered[own] = [own] * count
            shifts = {
                (mine - step) % count: self.shift(node, own, count - step, 0)
                for step in range(1, count)
            }
            for part, shift in shifts.items():
                parts[part] = self.wait(shift, self.keys[shift][0], self.turn_of(part, False))
        return self.gathered[own]

    def shift(self, node: Node, source: Node, distance: int, turn: int) -> Node:
        """Begins to pass rows of a node to the process so many places ahead, and to receive some."""
        shift = self.call(SHIFT, (source, distance, self.division.group), None)
        leave_in_torch(shift, "It exchanges rows with another process.", "divided")
        shift.meta[_ROWS_OF] = node.name
        self.schedule(shift, self.stage_of(shift, turn), turn)
        return shift

    def wait(self, shift: Node, stage: float, turn: int) -> Node:
        """Waits for what a shift receives."""
        waited = self.call(WAIT, (shift,), shift.meta["val"])
        leave_in_torch(waited, "It waits for the rows of another process.", "divided")
        self.schedule(waited, stage, turn)
        return waited

    def turn_of(self, part: int, is_late: bool) -> int:
        """Returns when a part is computed: the process's own one first, or last."""
        count = self.division.count
        distance = (self.division.group_rank - part) % count
        return count + 1 if is_late and not distance else distance + 1

    def follows_late(self, node: Node) -> bool:
        """Returns whether a node of this process's own part reads what is computed last."""
        turns = {self.keys[source][:2] for source in node.all_input_nodes}
        last = max((stage for stage, _ in turns), default=0)
        return (last, self.division.count + 1) in turns

    def add(self, node: Node, dim: int, inputs: Mapping[Node, Node], part: int) -> Node:
        """Returns a new node that computes a part of the rows."""
        args, kwargs = torch.fx.map_arg(
            (node.args, node.kwargs), lambda source: inputs.get(source, source)
        )
        target: Any = node.target
        shape = self.sizes_of_part(node, dim)
        if target in RESHAPES or target is aten.expand.default:
            is_expand = target is aten.expand.default
            target, kwargs = (target if is_expand else aten.reshape.default), {}
            args = args[0], shape
        name = f"{node.name}_part_{part}"
        made = self.graph.create_node("call_function", target, args, kwargs, name=name)
        made.meta = {**node.meta, "val": _value(made)}
        value = made.meta["val"]
        if isinstance(value, torch.Tensor) and sizes_of(value) != shape:
            raise UnsupportedProgramError(
                f"async_tensor_parallel=True divides the rows of {node.name} ({qualified_name(target)}), and a part "
                f"has the sizes {list(value.shape)} in place of {shape}. Compile without the setting, and report it."
            )
        return made

    def sizes_of_part(self, node: Node, dim: int) -> list[int | None]:
        """Returns the sizes of a part of a node's result; those of several tensors are not needed."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return []
        shape = sizes_of(value)
        size = shape[dim]
        assert size is not None
        shape[dim] = size // self.division.count
        return shape

    def whole(self, node: Node) -> Node:
        """Returns the node that joins the parts of another one."""
        if node not in self.wholes:
            parts = self.parts_of(node)
            dim = self.division.rows[node].dim
            whole = self.call(aten.cat.default, (parts, dim), node.meta["val"])
            whole.meta = {**node.meta}
            reason = "It joins the rows that async_tensor_parallel divides."
            leave_in_torch(whole, reason, "divided")
            self.schedule(whole, self.stage_of(whole, 0), 0)
            self.wholes[node] = whole
        return self.wholes[node]

    def cut(self, node: Node, dim: int) -> list[Node]:
        """Returns the nodes that take each part of the rows of a whole tensor."""
        source = self.whole(node) if node in self.division.forms else node
        if (source, dim) not in self.cuts:
            size = sizes_of(source.meta["val"])[dim]
            assert size is not None
            step = size // self.division.count
            self.cuts[source, dim] = [
                self.slice(source, dim, part * step, step) for part in range(self.division.count)
            ]
        return self.cuts[source, dim]

    def slice(self, source: Node, dim: int, start: int, step: int) -> Node:
        """Returns a node that takes some rows: a view, or a copy where an engine cannot read them in place."""
        made = self.call(aten.slice.Tensor, (source, dim, start, start + step), None)
        leave_in_torch(made, "It takes a part of the rows, without a copy.", "view")
        never_fold(made)  # a constant would make the engines of equal parts different
        self.schedule(made, self.keys[source][0], 0)
        if _is_aligned(source.meta["val"], dim, start):
            return made
        copied = self.call(aten.clone.default, (made,), None)
        leave_in_torch(copied, "It copies a part of the rows to an aligned address.", "divided")
        never_fold(copied)
        self.schedule(copied, self.keys[source][0], 0)
        return copied

    def call(self, target: Any, args: tuple[Any, ...], value: Any) -> Node:
        made = self.graph.call_function(target, args)
        made.meta["val"] = _value(made) if value is None else value
        return made

    def stage_of(self, node: Node, turn: int) -> float:
        """Returns the first stage in which a node can run: whole tensors follow the parts of an earlier stage."""
        stages = (
            stage + (turn == 0 < before)
            for stage, before, _ in (self.keys[source] for source in node.all_input_nodes)
        )
        return max(stages, default=0)

    def schedule(self, node: Node, stage: float, turn: int) -> None:
        self.keys[node] = stage, turn, len(self.keys)

    def order(self) -> None:
        """Brings the graph into the order of the keys, and numbers the groups."""
        output = self.graph.output_node()
        group, before = -1, None
        for node in sorted(
            self.graph.nodes, key=lambda node: (node.op != "placeholder", self.keys[node])
        ):
            key = self.keys[node][:2]
            group, before = group + (key != before), key
            if node.op == "call_function":
                put_into_group(node, group)
            if node is not output:
                output.prepend(node)


def _description(shift: Node) -> str:
    """Returns what is equal in all processes for an exchange of the same rows."""
    value = shift.meta["val"]
    return f"{shift.meta[_ROWS_OF]} {shift.args[1]} {value.dtype} {sizes_of(value)}"


def _dim_of(node: Node) -> int:
    """Returns the dimension along which ``slice`` or ``select`` takes rows."""
    dim = arguments_of(node).dim
    return int(dim) % int(node.args[0].meta["val"].dim())  # type: ignore[union-attr]


def _rows_taken(node: Node, size: int) -> range | None:
    """Returns the rows that ``slice`` or ``select`` takes of so many; None if they are not known or have gaps."""
    op = arguments_of(node)
    if node.target is aten.select.int:
        return range(op.index % size, op.index % size + 1) if isinstance(op.index, int) else None
    bounds = (op.start, op.end, op.step)
    if not all(bound is None or isinstance(bound, int) for bound in bounds) or op.step != 1:
        return None
    rows = range(size)[slice(*bounds)]
    return rows if rows else None


def _is_aligned(value: torch.Tensor, dim: int, start: int) -> bool:
    """Returns whether rows of a contiguous tensor begin where an engine can read them, or are copied anyway."""
    inner = sizes_of(value)[dim + 1 :]
    if any(size not in (None, 1) for size in sizes_of(value)[:dim]):
        return True  # they are not contiguous
    if None in inner:
        return not start
    return start * math.prod(filter(None, inner)) * value.itemsize % _ALIGNMENT == 0


def _has_effect(node: Node) -> bool:
    """Returns whether a call does more than to compute its result: others like it run in the model's order."""
    return node.op == "call_function" and (
        node.is_impure() or (isinstance(node.target, OpOverload) and draws_random_numbers(node))
    )


def _value(node: Node) -> Any:
    """Returns what a call makes of PyTorch's values of its arguments."""
    values = [leaf for source in node.all_input_nodes for leaf in _leaves(source.meta.get("val"))]
    fakes: list[Any] = [value for value in values if is_fake(value)]
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    target: Any = node.target
    with torch.no_grad(), fakes[0].fake_mode, python_dispatcher():
        return target(*args, **kwargs)


def _leaves(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (list, tuple)) else (value,)
