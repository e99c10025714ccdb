"""``prim::If`` and ``prim::Loop`` that depend on data: they become PyTorch's ``cond`` and ``while_loop``.

Those are free of side effects. Values that the inside reads from outside become operands; a tensor from outside
that the inside writes to is copied on the way in, returned, and written outside. A result that
is a tensor from outside on every way through is that tensor; one that is so on some ways is a stand-in for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx.traceback import annotate
from torch.utils import _pytree as pytree

from torchtrt.errors import ExportError, TorchTRTError
from torchtrt.graphs.memory import storage_of
from torchtrt_torchscript.graphs import Environment, all_nodes, base_of, written_inputs
from torchtrt_torchscript.memory import Memory, StandIn, is_same_memory
from torchtrt_torchscript.numbers import Undecided, Uninitialized, is_undecided, number_as_tensor
from torchtrt_torchscript.site import SITE, Site, source_line

_NO_LIMIT = 2**31 - 1
"""TorchScript writes a number from here on where a loop's trips are not counted."""


class BlockRunner(Protocol):
    """Runs the blocks inside a branch or a loop."""

    graph: torch._C.Graph
    memory: Memory

    def assign(self, env: Environment, values: Iterable[Any], results: Sequence[Any]) -> None:
        """Gives values of the graph their results."""

    def run_block(self, block: Any, env: Environment) -> list[Any]:
        """Runs the nodes of a block; returns its outputs."""

    def run_node(self, node: torch._C.Node, env: Environment) -> None:
        """Runs one node."""


def run_branch(
    runner: BlockRunner, node: torch._C.Node, condition: Any, env: Environment
) -> list[Any]:
    """Returns what a ``prim::If`` makes whose condition is known only when the engine runs."""
    captured = _Captured(runner, node, env)
    while True:
        try:
            return _run_branch(runner, node, condition, captured)
        except _UnforeseenWriteError as unforeseen:
            captured.will_write(unforeseen.places)


def _run_branch(
    runner: BlockRunner, node: torch._C.Node, condition: Any, captured: _Captured
) -> list[Any]:
    blocks, count = list(node.blocks()), len(list(node.outputs()))
    ways: dict[int, _Way] = {}
    # Where a result may be unset, or nothing comes out, both ways are computed one after the other.
    straight = captured.leaves_unset or not (count or captured.written)

    def run(index: int, operands: Sequence[Any]) -> list[Any]:
        given = captured.copied(operands, everything=straight and captured.has_writes)
        with captured.within(given) as inner:
            results = runner.run_block(blocks[index], inner)
            ways[index] = _Way.of(runner.memory, results, given, node)
            captured.check_writes(runner.memory, given)
        return [*results, *(given[place] for place in captured.written)]

    def branch(index: int) -> Callable[..., tuple[Tensor, ...]]:
        return lambda *operands: _as_tensors(run(index, operands), operands, node)

    predicate = _as_predicate(condition)
    if straight:
        both = zip(*(run(index, captured.operands) for index in range(2)), strict=True)
        merged = [_either(predicate, pair, node) for pair in both]
    else:
        with _exporting(
            runner, node, lambda: zip(*(way.results for way in ways.values()), strict=True)
        ):
            merged = torch.ops.higher_order.cond(predicate, branch(0), branch(1), captured.apart())
    captured.write_back(merged[count:])
    return _branch_values(runner.memory, node, captured, predicate, (ways[0], ways[1]), merged)


def _branch_values(
    memory: Memory,
    node: torch._C.Node,
    captured: _Captured,
    predicate: Any,
    ways: Sequence[_Way],
    merged: Sequence[Any],
) -> list[Any]:
    """Returns what a branch makes: the tensors from outside themselves where both ways return them."""
    values: list[Any] = _as_values(merged[: len(list(node.outputs()))], node)
    for index, value in enumerate(values):
        setting = [way for way in ways if way.results[index] is not Uninitialized]
        if not isinstance(value, Tensor) or not setting:
            continue
        outside = [way.outside(index, captured.operands) for way in setting]
        twins = {earlier for way in setting for earlier in way.twins[index]}
        exact = [twin for twin in twins if all(way.twins[index].get(twin) for way in setting)]
        if outside[0] is not None and all(each is outside[0] for each in outside):
            values[index] = outside[0]
            continue
        if exact:
            values[index] = values[exact[0]]
            continue
        if not all(way.in_rows[index] for way in setting):
            memory.lays_out_anew(value)
        for twin in sorted(twins):
            memory.stand_in(StandIn(value, [values[twin]], node))
        if len(setting) == 2 and all(way.is_clear(index) for way in setting):
            memory.choice(value, predicate, outside, node)
        else:
            shared = {place for way in setting for place in way.shares[index]}
            originals = [captured.operands[place] for place in sorted(shared)]
            memory.stand_in(StandIn(value, originals, node))
    return values


def run_loop(
    runner: BlockRunner,
    node: torch._C.Node,
    trip: int,
    limit: Any,
    condition: Any,
    carried: Sequence[Any],
    env: Environment,
) -> list[Any]:
    """Returns what a ``prim::Loop`` makes whose trips are known only when the engine runs.

    Args:
        runner: Runs the body.
        node: The loop.
        trip: The trips that have been run already.
        limit: How many trips there are at most.
        condition: Whether there is another trip.
        carried: What the next trip starts with.
        env: The values outside.
    """
    captured = _Captured(runner, node, env)
    runner.memory.reads(carried, node)
    while True:
        try:
            return _run_loop(runner, node, (trip, limit, condition), carried, captured)
        except _UnforeseenWriteError as unforeseen:
            captured.will_write(unforeseen.places)


def _run_loop(
    runner: BlockRunner,
    node: torch._C.Node,
    course: tuple[int, Any, Any],
    carried: Sequence[Any],
    captured: _Captured,
) -> list[Any]:
    (body,) = node.blocks()
    trip, limit, condition = course
    last = 2 + len(carried)
    written = [captured.operands[place] for place in captured.written]
    start = _as_tensors((trip, condition, *carried, *written), captured.operands, node)
    is_limited = not isinstance(limit, int) or limit < _NO_LIMIT
    limits = _as_tensors((limit,) if is_limited else (), (), node)
    ways: list[_Way] = []
    changed: set[int] = set()

    def test(*operands: Any) -> Tensor:
        index, going, *_ = operands
        return torch.logical_and(going, index < operands[-1]) if limits else going.clone()

    def step(*operands: Any) -> tuple[Tensor, ...]:
        inside, outside = operands[: len(start)], list(operands[len(start) :])
        if captured.has_writes:
            inside = tuple(tensor.clone() for tensor in inside)
        for place, tensor in zip(captured.written, inside[last:], strict=True):
            outside[place] = tensor
        given = outside[: len(captured.operands)]
        with captured.within(given) as inner:
            runner.memory.outlives(inside)
            runner.assign(
                inner, body.inputs(), (Undecided(inside[0]), *_as_values(inside[2:last], node))
            )
            going, *results = runner.run_block(body, inner)
            ways[:] = [_Way.of(runner.memory, results, (*inside[2:last], *given), node)]
            changed.clear()
            changed.update(
                cell
                for cell, tensor in enumerate((*inside[2:last], *given))
                if isinstance(tensor, Tensor) and runner.memory.is_written(tensor)
            )
            captured.check_writes(runner.memory, given)
        made = (going, *results, *inside[last:])
        return (inside[0] + 1, *_as_tensors(made, operands, node))

    with _exporting(
        runner, node, lambda: zip(carried, ways[0].results if ways else carried, strict=True)
    ):
        ran, _, *merged = torch.ops.higher_order.while_loop(
            test, step, start, (*captured.apart(), *limits)
        )
    captured.write_back(merged[len(carried) :])
    cells = _Cells(runner.memory, (*carried, *captured.operands), ways[0], changed)
    return _loop_values(
        runner.memory, node, cells, ran, trip, _as_values(merged[: len(carried)], node)
    )


def _loop_values(
    memory: Memory,
    node: torch._C.Node,
    cells: _Cells,
    ran: Tensor,
    trip: int,
    values: list[Any],
) -> list[Any]:
    """Returns what a loop makes: the tensor itself where every trip gives on the tensor that it was given.

    Raises:
        ExportError: A trip writes to a tensor that it knows under another name too.
    """
    cells.check(node)
    for index, value in enumerate(values):
        start = cells.outside[index]
        if not isinstance(value, Tensor) or not isinstance(start, Tensor):
            continue
        if cells.way.same[index] == index:
            if index in cells.changed:
                start.copy_(value)
                memory.writes(start, node)
            values[index] = start
            continue
        if not (cells.way.in_rows[index] and _is_in_rows(start)):
            memory.lays_out_anew(value)
        originals = [cells.outside[cell] for cell in sorted(cells.group_of(index))]
        if index in cells.changed:
            stand_in = StandIn(value, originals, node)
            memory.stand_in(stand_in)
            memory.loses(stand_in, node)
        elif len(originals) == 1 and not cells.way.shares[index]:
            memory.choice(value, lambda: torch.eq(ran, trip), (start, None), node)
        else:
            memory.stand_in(StandIn(value, originals, node))
        for twin in cells.way.twins[index]:
            memory.stand_in(StandIn(value, [values[twin]], node))
    return values


@dataclass
class _Cells:
    """The tensors that a loop's trip knows: those that are carried, then those from outside.

    Attributes:
        memory: The memory outside.
        outside: What each is before the first trip.
        way: What a trip makes of them.
        changed: The places of those that a trip writes to.
    """

    memory: Memory
    outside: Sequence[Any]
    way: _Way
    changed: set[int]

    def group_of(self, cell: int) -> set[int]:
        """Returns the places of all that may have memory in common with one, in some trip."""
        found: set[int] = set()
        waiting = {cell}
        while waiting:
            one = waiting.pop()
            found.add(one)
            waiting |= {
                other
                for other, tensor in enumerate(self.outside)
                if isinstance(tensor, Tensor) and other not in found and self._meet(one, other)
            }
        return found

    def _meet(self, one: int, other: int) -> bool:
        low, high = sorted((one, other))
        count = len(self.way.results)
        if low < count and high in self.way.shares[low]:
            return True
        if high < count and (low in self.way.shares[high] or low in self.way.twins[high]):
            return True
        first, second = self.outside[one], self.outside[other]
        return isinstance(first, Tensor) and self.memory.may_share(first, second)

    def check(self, node: torch._C.Node) -> None:
        """Raises an error if a trip writes to a tensor that it knows under another name too."""
        for cell in self.changed:
            if isinstance(self.outside[cell], Tensor) and len(self.group_of(cell)) > 1:
                raise ExportError(_knows_another_name(node))


@dataclass
class _Way:
    """The results of one way through a branch, or of a trip of a loop, and their memory.

    Attributes:
        results: What it makes.
        same: For each result the place of the given tensor that it is, or ``None``.
        shares: For each result the places of the given tensors with which it may have memory in common.
        twins: For each result the earlier results that may share its memory. ``True`` marks the same tensor.
        in_rows: For each result whether its elements are in memory one row after the other.
    """

    results: Sequence[Any]
    same: list[int | None]
    shares: list[set[int]]
    twins: list[dict[int, bool]]
    in_rows: list[bool]

    def outside(self, index: int, operands: Sequence[Any]) -> Tensor | None:
        """Returns the tensor from outside that a result is, if it is one."""
        place = self.same[index]
        return None if place is None else operands[place]

    def is_clear(self, index: int) -> bool:
        """Returns whether a result is a tensor from outside, or shares memory with none."""
        return self.same[index] is not None or not self.shares[index]

    @classmethod
    def of(
        cls, memory: Memory, results: Sequence[Any], given: Sequence[Any], node: torch._C.Node
    ) -> _Way:
        """Returns what there is to know of the results."""
        memory.reads(list(results), node)
        way = cls(results, [], [], [], [])
        for index, result in enumerate(results):
            is_tensor = isinstance(result, Tensor)
            near = {
                place
                for place, each in enumerate(given)
                if is_tensor and isinstance(each, Tensor) and memory.may_share(result, each)
            }
            same = next((place for place in near if is_same_memory(result, given[place])), None)
            way.in_rows.append(not is_tensor or _is_in_rows(result))
            way.same.append(same)
            way.shares.append(near if same is None else {same})
            way.twins.append(
                {
                    place: is_same_memory(result, earlier)
                    for place, earlier in enumerate(results[:index])
                    if is_tensor
                    and isinstance(earlier, Tensor)
                    and memory.may_share(result, earlier)
                }
            )
        return way


class _UnforeseenWriteError(Exception):
    """The inside writes to operands, at these places, that were not copied for it."""

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__(places)
        self.places = places


class _Captured:
    """The values that a branch or a loop's body reads from outside: tensors and sizes become operands.

    Args:
        runner: Reads attributes and constants early.
        node: The branch or loop.
        env: The values outside.

    Attributes:
        operands: The tensors and symbolic sizes, in order, also those inside lists and dictionaries.
        written: The places of those operands that the inside writes to.
        has_writes: Whether the inside writes to any tensor.
        leaves_unset: Whether some way through leaves a result unset, because it returns early.
    """

    def __init__(self, runner: BlockRunner, node: torch._C.Node, env: Environment) -> None:
        self._env, self._node, self._runner = env, node, runner
        self._trees: dict[int, tuple[list[Any], pytree.TreeSpec, list[int | None]]] = {}
        self.operands: list[Any] = []
        self.written: list[int] = []
        nodes = [inner for block in node.blocks() for inner in all_nodes(block)]
        writes = [
            value
            for each in nodes
            for value in written_inputs(each)
            if value.type().kind() == "TensorType"  # not a list
        ]
        self.has_writes = bool(writes) or any(
            each.kind() in ("prim::CallMethod", "prim::fork") for each in nodes
        )
        bases = {base_of(value, env).unique() for value in writes}
        self._read_early(nodes, bases)
        names = self._names_from_outside(nodes)
        self.leaves_unset = any(env[name] is Uninitialized for name in names) or any(
            each.kind() == "prim::Uninitialized" for each in nodes
        )
        for name in names:
            self._add(name)
        runner.memory.reads(self.operands, node)
        self.will_write(
            place
            for name in names
            if name in bases and isinstance(env[name], Tensor)
            for place in self._trees[name][2]
        )

    def _read_early(self, nodes: Sequence[torch._C.Node], bases: set[int]) -> None:
        """Reads the attributes and constants of the inside, so that they come from outside.

        Raises:
            ExportError: The inside stores into an attribute, or writes to what it reads from one.
        """
        for each in nodes:
            is_read = each.kind() == "prim::GetAttr"
            if each.kind() == "prim::SetAttr":
                raise ExportError(_stores(self._node, each))
            if (is_read or each.kind() == "prim::Constant") and all(
                value.unique() in self._env for value in each.inputs()
            ):
                self._runner.run_node(each, self._env)
            if is_read and each.output().unique() in bases:
                raise ExportError(_stores(self._node, each))

    def _names_from_outside(self, nodes: Sequence[torch._C.Node]) -> list[int]:
        """Returns the values that the inside reads and does not make."""
        blocks = [block for each in (self._node, *nodes) for block in each.blocks()]
        read = [value for each in nodes for value in each.inputs()]
        read += [value for block in blocks for value in block.outputs()]
        made = {
            value.unique()
            for each in nodes
            if each.kind() not in ("prim::GetAttr", "prim::Constant")
            for value in each.outputs()
        }
        return sorted(({value.unique() for value in read} & self._env.keys()) - made)

    def _add(self, name: int) -> None:
        value = self._env[name]
        leaves, tree = pytree.tree_flatten(value, is_leaf=is_undecided)
        places = [self._place_of(leaf) if _is_operand(leaf) else None for leaf in leaves]
        if isinstance(value, (list, dict)) or any(place is not None for place in places):
            self._trees[name] = leaves, tree, places

    def _place_of(self, leaf: Any) -> int:
        """Returns the place of an operand. A tensor with two names has one place."""
        tensor = _unwrapped(leaf)
        for place, known in enumerate(self.operands):
            if (
                isinstance(tensor, Tensor)
                and isinstance(known, Tensor)
                and is_same_memory(tensor, known)
            ):
                return place
        self.operands.append(tensor)
        return len(self.operands) - 1

    def will_write(self, places: Iterable[int | None]) -> None:
        """Says that the inside writes to the operands at these places.

        Raises:
            ExportError: The inside knows such a tensor by another view too.
        """
        memory = self._runner.memory
        self.written = sorted({*self.written, *(place for place in places if place is not None)})
        for place in self.written:
            for other, operand in enumerate(self.operands):
                if (
                    other != place
                    and isinstance(operand, Tensor)
                    and memory.may_share(self.operands[place], operand)
                ):
                    raise ExportError(_knows_another_name(self._node))

    def check_writes(self, memory: Memory, given: Sequence[Any]) -> None:
        """Raises an error, which nobody sees, if the inside has written to an operand that was not copied for it."""
        unforeseen = [
            place
            for place, tensor in enumerate(given)
            if isinstance(tensor, Tensor)
            and place not in self.written
            and memory.is_written(tensor)
        ]
        if unforeseen:
            raise _UnforeseenWriteError(unforeseen)

    def apart(self) -> tuple[Any, ...]:
        """Returns the operands, with copies of those that are views of the memory of earlier ones."""
        taken: set[int] = set()
        apart = []
        for operand in self.operands:
            if isinstance(operand, Tensor):
                number = storage_of(operand)
                apart.append(operand.clone() if number in taken else operand)
                taken.add(number)
            else:
                apart.append(operand)
        return tuple(apart)

    def copied(self, operands: Sequence[Any], *, everything: bool) -> list[Any]:
        """Returns the operands with copies of those that are written, or of every tensor."""
        return [
            each.clone()
            if isinstance(each, Tensor) and (everything or place in self.written)
            else each
            for place, each in enumerate(operands)
        ]

    def write_back(self, results: Sequence[Any]) -> None:
        """Writes what the inside made of the written operands to the tensors outside."""
        for place, value in zip(self.written, results, strict=True):
            self.operands[place].copy_(value)
            self._runner.memory.writes(self.operands[place], self._node)

    @contextlib.contextmanager
    def within(self, operands: Sequence[Any]) -> Iterator[Environment]:
        """Yields the values for the inside; until it returns, the runner has a memory for the inside.

        Raises:
            ExportError: The inside has changed a list or dictionary from outside.
        """
        inner, entered, outer = dict(self._env), {}, self._runner.memory
        for name, (leaves, tree, places) in self._trees.items():
            given = [
                leaf if place is None else _like(leaf, operands[place])
                for leaf, place in zip(leaves, places, strict=True)
            ]
            inner[name] = pytree.tree_unflatten(given, tree)
            entered[name] = inner[name], given
        self._runner.memory = Memory()
        self._runner.memory.outlives(list(operands))
        try:
            yield inner
        finally:
            self._runner.memory = outer
        for name, (_, tree, _) in self._trees.items():
            value, before = entered[name]
            leaves, after = pytree.tree_flatten(value, is_leaf=is_undecided)
            if after != tree or any(
                new is not old for new, old in zip(leaves, before, strict=True)
            ):
                message = (
                    f"{self._node.kind()} depends on data and changes a list or dictionary from outside. Build it "
                    f"from tensors that the branch or loop returns.\n{source_line(self._node)}"
                )
                raise ExportError(message)


def _stores(node: torch._C.Node, access: torch._C.Node) -> str:
    return (
        f"{node.kind()} depends on data, and inside it the model stores into its attribute {access.s('name')!r}. "
        f"Store what the branch or loop returns, after it.\n{source_line(access)}"
    )


@contextlib.contextmanager
def _exporting(
    runner: BlockRunner, node: torch._C.Node, made: Callable[[], Iterable[tuple[Any, Any]]]
) -> Iterator[None]:
    """Exports a branch or loop, and says what is wrong with one that PyTorch cannot export.

    Args:
        runner: Runs the graph.
        node: The branch or loop.
        made: Gives pairs of values that must be alike.
    """
    try:
        with annotate({SITE: Site(node, runner.graph)}):
            yield
    except (TorchTRTError, _UnforeseenWriteError):
        raise
    except Exception as error:
        unlike = [pair for pair in made() if _description(pair[0]) != _description(pair[1])]
        reason = "; ".join(" and ".join(map(_description, pair)) for pair in unlike)
        if not unlike:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        message = (
            f"{node.kind()} depends on data and cannot be exported: {reason}. "
            "Every way through it must make tensors of the same shapes and dtypes, and so must every trip of a loop.\n"
            f"{source_line(node)}"
        )
        raise ExportError(message) from (None if unlike else error)


def _description(value: Any) -> str:
    """Returns what must be alike in what the ways through a branch or the trips of a loop make."""
    value = _unwrapped(value)
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return "a number"


def _either(predicate: Any, pair: Sequence[Any], node: torch._C.Node) -> Any:
    """Returns the first or the second; one of them where the other is unset, because nothing reads it then."""
    first, second = pair
    if first is Uninitialized or second is Uninitialized:
        return second if first is Uninitialized else first
    tensors = _as_tensors(pair, (), node)
    if len({(tensor.shape, tensor.dtype) for tensor in tensors}) > 1:
        message = (
            f"{node.kind()} depends on data and makes tensors of different shapes or dtypes: "
            f"{', '.join(f'{tensor.dtype} {list(tensor.shape)}' for tensor in tensors)}.\n{source_line(node)}"
        )
        raise ExportError(message)
    return torch.where(predicate, *tensors)


def _like(leaf: Any, operand: Any) -> Any:
    return Undecided(operand) if is_undecided(leaf) else operand


def _is_operand(leaf: Any) -> bool:
    return isinstance(leaf, (Undecided, Tensor, torch.SymInt))


def _unwrapped(leaf: Any) -> Any:
    return leaf.tensor if isinstance(leaf, Undecided) else leaf


def _as_predicate(condition: Any) -> Any:
    return number_as_tensor(condition) if isinstance(condition, torch.SymBool) else condition.tensor


def _as_tensors(
    results: Sequence[Any], inputs: Sequence[Any], node: torch._C.Node
) -> tuple[Tensor, ...]:
    """Returns what a branch or a loop's body makes as tensors, each with memory of its own, one row after the other.

    Raises:
        ExportError: It makes something other than tensors and numbers.
    """
    taken = {storage_of(each) for each in inputs if isinstance(each, Tensor)}
    tensors: list[Tensor] = []
    for result in results:
        value = _unwrapped(result)
        if isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            value = number_as_tensor(value)
        if not isinstance(value, Tensor):
            raise ExportError(_no_tensor(value, node))
        if storage_of(value) in taken or not _is_in_rows(value):
            value = value.clone(memory_format=torch.contiguous_format)
        taken.add(storage_of(value))
        tensors.append(value)
    return tuple(tensors)


def _is_in_rows(tensor: Tensor) -> bool:
    """Returns whether a tensor has its elements one row after the other; assumes nothing about sizes that vary."""
    step: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if str(stride) != str(step):
            return False
        step = step * size
    return str(tensor.storage_offset()) == "0"


def _knows_another_name(node: torch._C.Node) -> str:
    return (
        f"{node.kind()} depends on data and writes to a tensor of which it knows another view from outside. "
        f"Take the view inside, or write to a clone.\n{source_line(node)}"
    )


def _no_tensor(value: Any, node: torch._C.Node) -> str:
    if value is Uninitialized:
        what = (
            "returns from inside, before anything is there to return otherwise. Give the result a value of the "
            "same shape before it"
        )
    else:
        what = f"makes a {type(value).__name__}. What a compiled branch or loop makes must be tensors and numbers"
    return f"{node.kind()} depends on data and {what}.\n{source_line(node)}"


def _as_values(results: Sequence[Any], node: torch._C.Node) -> list[Any]:
    """Returns what a branch or loop made by its types in the graph: numbers are undecided."""
    return [
        Undecided(result)
        if str(output.type()) in ("int", "float", "bool") and isinstance(result, Tensor)
        else result
        for result, output in zip(results, node.outputs(), strict=True)
    ]
