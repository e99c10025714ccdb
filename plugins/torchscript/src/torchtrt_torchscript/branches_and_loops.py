"""``prim::If`` and ``prim::Loop`` that depend on data: they become PyTorch's ``cond`` and ``while_loop``.

Those are free of side effects. Values that the inside reads from outside become operands; a tensor from outside
that the inside writes to is copied on the way in, returned, and written outside. A result that
is a tensor from outside on every way through is that tensor; one that is so on some ways is a stand-in for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.fx.traceback import annotate

from torchtrt.errors import ExportError, TorchTRTError
from torchtrt.graphs.memory import is_same_memory
from torchtrt_torchscript.captured_values import BlockRunner, CapturedValues, UnforeseenWriteError
from torchtrt_torchscript.graphs import Environment
from torchtrt_torchscript.memory import Memory, StandIn
from torchtrt_torchscript.numbers import Undecided, Uninitialized
from torchtrt_torchscript.operands import (
    as_predicate,
    as_tensors,
    as_values,
    description,
    is_in_rows,
    knows_another_name,
)
from torchtrt_torchscript.source_location import SITE, Site, source_line
from torchtrt_torchscript.torch_internals import ScriptNode

_NO_LIMIT = 2**31 - 1
"""TorchScript writes a number from here on where a loop's trips are not counted."""


def run_branch(
    runner: BlockRunner, node: ScriptNode, condition: Any, env: Environment
) -> list[Any]:
    """Returns what a ``prim::If`` makes whose condition is known only when the engine runs."""
    captured = CapturedValues(runner, node, env)
    while True:
        try:
            return _run_branch(runner, node, condition, captured)
        except UnforeseenWriteError as unforeseen:
            captured.will_write(unforeseen.positions)


def _run_branch(
    runner: BlockRunner, node: ScriptNode, condition: Any, captured: CapturedValues
) -> list[Any]:
    """Returns the results of TorchScript's ``if``: of one ``cond``, or of both branches and an elementwise choice."""
    blocks, count = list(node.blocks()), len(list(node.outputs()))
    ways: dict[int, _Way] = {}
    # Where a result may be unset, or nothing comes out, both ways are computed one after the other.
    straight = captured.leaves_unset or not (count or captured.written)

    def run(index: int, operands: Sequence[Any]) -> list[Any]:
        inner_operands = captured.copied(operands, everything=straight and captured.has_writes)
        with captured.within(inner_operands) as inner:
            results = runner.run_block(blocks[index], inner)
            ways[index] = _Way.of(runner.memory, results, inner_operands, node)
            captured.check_writes(runner.memory, inner_operands)
        return [*results, *(inner_operands[position] for position in captured.written)]

    def branch(index: int) -> Callable[..., tuple[Tensor, ...]]:
        return lambda *operands: as_tensors(run(index, operands), operands, node)

    predicate = as_predicate(condition)
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
    node: ScriptNode,
    captured: CapturedValues,
    predicate: Any,
    ways: Sequence[_Way],
    merged: Sequence[Any],
) -> list[Any]:
    """Returns what a branch makes: the tensors from outside themselves where both ways return them."""
    values: list[Any] = as_values(merged[: len(list(node.outputs()))], node)
    for index, value in enumerate(values):
        setting = [way for way in ways if way.results[index] is not Uninitialized]
        if not isinstance(value, Tensor) or not setting:
            continue
        outside = [way.outside(index, captured.operands) for way in setting]
        twins = {earlier for way in setting for earlier in way.twins[index]}
        exact = [twin for twin in twins if all(way.twins[index].get(twin) for way in setting)]
        if outside[0] is not None and all(tensor is outside[0] for tensor in outside):
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
            shared = {position for way in setting for position in way.shares[index]}
            originals = [captured.operands[position] for position in sorted(shared)]
            memory.stand_in(StandIn(value, originals, node))
    return values


def run_loop(
    runner: BlockRunner,
    node: ScriptNode,
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
    captured = CapturedValues(runner, node, env)
    runner.memory.reads(carried, node)
    while True:
        try:
            return _run_loop(runner, node, (trip, limit, condition), carried, captured)
        except UnforeseenWriteError as unforeseen:
            captured.will_write(unforeseen.positions)


def _run_loop(
    runner: BlockRunner,
    node: ScriptNode,
    course: tuple[int, Any, Any],
    carried: Sequence[Any],
    captured: CapturedValues,
) -> list[Any]:
    """Returns what a loop of TorchScript carries out, traced as one ``while_loop``."""
    (body,) = node.blocks()
    trip, limit, condition = course
    last = 2 + len(carried)
    written = [captured.operands[position] for position in captured.written]
    start = as_tensors((trip, condition, *carried, *written), captured.operands, node)
    is_limited = not isinstance(limit, int) or limit < _NO_LIMIT
    limits = as_tensors((limit,) if is_limited else (), (), node)
    ways: list[_Way] = []
    changed: set[int] = set()

    def test(*operands: Any) -> Tensor:
        index, going, *_ = operands
        return torch.logical_and(going, index < operands[-1]) if limits else going.clone()

    def step(*operands: Any) -> tuple[Tensor, ...]:
        inside, outside = operands[: len(start)], list(operands[len(start) :])
        if captured.has_writes:
            inside = tuple(tensor.clone() for tensor in inside)
        for position, tensor in zip(captured.written, inside[last:], strict=True):
            outside[position] = tensor
        inner_operands = outside[: len(captured.operands)]
        with captured.within(inner_operands) as inner:
            runner.memory.outlives(inside)
            runner.assign(
                inner, body.inputs(), (Undecided(inside[0]), *as_values(inside[2:last], node))
            )
            going, *results = runner.run_block(body, inner)
            ways[:] = [_Way.of(runner.memory, results, (*inside[2:last], *inner_operands), node)]
            changed.clear()
            changed.update(
                cell
                for cell, tensor in enumerate((*inside[2:last], *inner_operands))
                if isinstance(tensor, Tensor) and runner.memory.is_written(tensor)
            )
            captured.check_writes(runner.memory, inner_operands)
        made = (going, *results, *inside[last:])
        return (inside[0] + 1, *as_tensors(made, operands, node))

    with _exporting(
        runner, node, lambda: zip(carried, ways[0].results if ways else carried, strict=True)
    ):
        ran, _, *merged = torch.ops.higher_order.while_loop(
            test, step, start, (*captured.apart(), *limits)
        )
    captured.write_back(merged[len(carried) :])
    cells = _Cells(runner.memory, (*carried, *captured.operands), ways[0], changed)
    return _loop_values(
        runner.memory, node, cells, ran, trip, as_values(merged[: len(carried)], node)
    )


def _loop_values(
    memory: Memory,
    node: ScriptNode,
    cells: _Cells,
    ran: Tensor,
    trip: int,
    values: list[Any],
) -> list[Any]:
    """Returns what a loop makes: the tensor itself where every trip gives on the tensor that it was given.

    Raises:
        ExportError: A trip writes to a tensor that it has under another name too.
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
        if not (cells.way.in_rows[index] and is_in_rows(start)):
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
    """The tensors of a loop's trip: those that are carried, then those from outside.

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
        group: set[int] = set()
        waiting = {cell}
        while waiting:
            one = waiting.pop()
            group.add(one)
            waiting |= {
                other
                for other, tensor in enumerate(self.outside)
                if isinstance(tensor, Tensor) and other not in group and self._meet(one, other)
            }
        return group

    def _meet(self, one: int, other: int) -> bool:
        low, high = sorted((one, other))
        count = len(self.way.results)
        if low < count and high in self.way.shares[low]:
            return True
        if high < count and (low in self.way.shares[high] or low in self.way.twins[high]):
            return True
        first, second = self.outside[one], self.outside[other]
        return isinstance(first, Tensor) and self.memory.may_share(first, second)

    def check(self, node: ScriptNode) -> None:
        """Raises an error if a trip writes to a tensor that it has under another name too."""
        for cell in self.changed:
            if isinstance(self.outside[cell], Tensor) and len(self.group_of(cell)) > 1:
                raise ExportError(knows_another_name(node))


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
        position = self.same[index]
        return None if position is None else operands[position]

    def is_clear(self, index: int) -> bool:
        """Returns whether a result is a tensor from outside, or shares memory with none."""
        return self.same[index] is not None or not self.shares[index]

    @classmethod
    def of(
        cls, memory: Memory, results: Sequence[Any], operands: Sequence[Any], node: ScriptNode
    ) -> _Way:
        """Returns the facts about the results."""
        memory.reads(list(results), node)
        way = cls(results, [], [], [], [])
        for index, result in enumerate(results):
            is_tensor = isinstance(result, Tensor)
            near = {
                index
                for index, operand in enumerate(operands)
                if is_tensor and isinstance(operand, Tensor) and memory.may_share(result, operand)
            }
            same = next(
                (position for position in near if is_same_memory(result, operands[position])), None
            )
            way.in_rows.append(not is_tensor or is_in_rows(result))
            way.same.append(same)
            way.shares.append(near if same is None else {same})
            way.twins.append(
                {
                    position: is_same_memory(result, earlier)
                    for position, earlier in enumerate(results[:index])
                    if is_tensor
                    and isinstance(earlier, Tensor)
                    and memory.may_share(result, earlier)
                }
            )
        return way


@contextlib.contextmanager
def _exporting(
    runner: BlockRunner, node: ScriptNode, made: Callable[[], Iterable[tuple[Any, Any]]]
) -> Iterator[None]:
    """Exports a branch or loop, and raises an error about the model if PyTorch cannot export it.

    Args:
        runner: Runs the graph.
        node: The branch or loop.
        made: Gives pairs of values that must be alike.
    """
    try:
        with annotate({SITE: Site(node, runner.graph)}):
            yield
    except (TorchTRTError, UnforeseenWriteError):
        raise
    except Exception as error:
        unlike = [pair for pair in made() if description(pair[0]) != description(pair[1])]
        reason = "; ".join(" and ".join(map(description, pair)) for pair in unlike)
        if not unlike:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        message = (
            f"{node.kind()} depends on data and cannot be exported: {reason}. "
            "Every way through it must make tensors of the same shapes and dtypes, and so must every trip of a loop.\n"
            f"{source_line(node)}"
        )
        raise ExportError(message) from (None if unlike else error)


def _either(predicate: Any, pair: Sequence[Any], node: ScriptNode) -> Any:
    """Returns the first or the second; one of them where the other is unset, because nothing reads it then."""
    first, second = pair
    if first is Uninitialized or second is Uninitialized:
        return second if first is Uninitialized else first
    tensors = as_tensors(pair, (), node)
    if not _are_alike(*tensors):
        message = (
            f"{node.kind()} depends on data and makes tensors of different shapes or dtypes: "
            f"{', '.join(f'{tensor.dtype} {list(tensor.shape)}' for tensor in tensors)}.\n{source_line(node)}"
        )
        raise ExportError(message)
    return torch.where(predicate, *tensors)


def _are_alike(first: Tensor, second: Tensor) -> bool:
    """Returns whether two tensors have one shape and dtype. Equal dynamic sizes of the example become a condition."""
    return (
        first.dtype is second.dtype
        and first.dim() == second.dim()
        and all(
            guard_or_false(size == other)
            for size, other in zip(first.shape, second.shape, strict=True)
        )
    )
