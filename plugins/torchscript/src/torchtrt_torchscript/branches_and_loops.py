"""Branches and loops that depend on data: they become PyTorch's ``cond`` and ``while_loop``.

Those are free of side effects. What the inside reads from outside becomes operands; a tensor from outside
that the inside writes to is copied on the way in, returned, and written outside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx.traceback import annotate
from torch.utils import _pytree as pytree

from torchtrt.errors import ExportError, TorchTRTError
from torchtrt_torchscript.graphs import Environment, all_nodes, base_of, is_view, written_inputs
from torchtrt_torchscript.numbers import Undecided, Uninitialized, is_undecided
from torchtrt_torchscript.site import SITE, Site, source_line

_NO_LIMIT = 2**31 - 1
"""TorchScript writes a number from here on where a loop's trips are not counted."""


class BlockRunner(Protocol):
    """Runs the blocks inside a branch or a loop."""

    graph: torch._C.Graph

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
    blocks = list(node.blocks())
    captured = _Captured(runner, node, env)

    def run(block: Any, operands: Sequence[Tensor]) -> tuple[list[Any], list[Tensor]]:
        operands, written = captured.copied(operands)
        with captured.within(operands) as inner:
            return runner.run_block(block, inner), written

    def branch(block: Any) -> Callable[..., tuple[Tensor, ...]]:
        def run_traced(*operands: Any) -> tuple[Tensor, ...]:
            results, written = run(block, operands)
            return _as_tensors((*results, *written), operands, node)

        return run_traced

    predicate = _unwrapped(condition)
    if captured.leaves_unset:
        outcomes = [run(block, captured.operands) for block in blocks]
        ways = [(*results, *written) for results, written in outcomes]
        merged = [_either(predicate, pair, node) for pair in zip(*ways, strict=True)]
    else:
        with _exporting(runner, node):
            merged = torch.ops.higher_order.cond(
                predicate, *map(branch, blocks), tuple(captured.operands)
            )
    return _finish(node, captured, merged)


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
    (body,) = node.blocks()
    captured = _Captured(runner, node, env)
    kinds = [str(value.type()) for value in node.outputs()]
    written = [captured.operands[place].clone() for place in captured.written]
    start = _as_tensors((trip, condition, *carried, *written), captured.operands, node)
    is_limited = not isinstance(limit, int) or limit < _NO_LIMIT
    limits = _as_tensors((limit,) if is_limited else (), (), node)

    def test(*operands: Any) -> Tensor:
        index, going, *_ = operands
        return torch.logical_and(going, index < operands[-1]) if limits else going.clone()

    def step(*operands: Any) -> tuple[Tensor, ...]:
        inside, outside = operands[: len(start)], list(operands[len(start) :])
        if captured.has_writes:
            inside = tuple(tensor.clone() for tensor in inside)
        changed = inside[2 + len(kinds) :]
        for place, tensor in zip(captured.written, changed, strict=True):
            outside[place] = tensor
        with captured.within(outside[: len(captured.operands)]) as inner:
            values = (Undecided(inside[0]), *_as_values(inside[2 : 2 + len(kinds)], kinds))
            runner.assign(inner, body.inputs(), values)
            results = runner.run_block(body, inner)
        return (inside[0] + 1, *_as_tensors((*results, *changed), operands, node))

    with _exporting(runner, node):
        _, _, *merged = torch.ops.higher_order.while_loop(
            test, step, start, (*captured.operands, *limits)
        )
    return _finish(node, captured, merged)


class _Captured:
    """What a branch or a loop's body reads from outside: its tensors and sizes become operands.

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
        self._env, self._node = env, node
        self._trees: dict[int, tuple[list[Any], pytree.TreeSpec]] = {}
        self.operands: list[Any] = []
        self.written: list[int] = []
        nodes = [inner for block in node.blocks() for inner in all_nodes(block)]
        for each in nodes:
            known = all(value.unique() in env for value in each.inputs())
            if each.kind() == "prim::SetAttr":
                raise ExportError(_stores(node, each))
            if each.kind() in ("prim::GetAttr", "prim::Constant") and known:
                runner.run_node(each, env)
        writes = [
            value
            for each in nodes
            for value in written_inputs(each)
            if value.type().kind() == "TensorType"  # not a list
        ]
        self.has_writes = bool(writes)
        bases = {base.unique(): base for base in (base_of(value, env) for value in writes)}
        made = {value.unique() for each in nodes for value in each.outputs()}
        for each in nodes:
            if each.kind() == "prim::GetAttr" and each.output().unique() in bases:
                raise ExportError(_stores(node, each))
            if each.kind() in ("prim::GetAttr", "prim::Constant"):
                made -= {each.output().unique()}
        names = sorted((_read_by(node, nodes) & env.keys()) - made)
        self.leaves_unset = any(env[name] is Uninitialized for name in names) or any(
            each.kind() == "prim::Uninitialized" for each in nodes
        )
        for name in names:
            leaves, tree = pytree.tree_flatten(env[name], is_leaf=is_undecided)
            if isinstance(env[name], (list, dict)) or any(map(_is_operand, leaves)):
                self._trees[name] = leaves, tree
            for leaf in filter(_is_operand, leaves):
                if name in bases and isinstance(leaf, Tensor):
                    self.written.append(len(self.operands))
                self.operands.append(_unwrapped(leaf))
        self._check_memory([base for base in bases.values() if base.unique() in env])

    def _check_memory(self, written: Sequence[torch._C.Value]) -> None:
        memory = [
            each.untyped_storage()._cdata if isinstance(each, Tensor) else None
            for each in self.operands
        ]
        if any(memory.count(memory[place]) > 1 for place in self.written) or any(
            _is_placed_by_data(value, self._env) for value in written
        ):
            message = (
                f"{self._node.kind()} depends on data and writes to a tensor of which it knows another view from "
                "outside. Take the view inside, or write to a clone."
            )
            raise ExportError(f"{message}\n{source_line(self._node)}")

    def copied(self, operands: Sequence[Any]) -> tuple[list[Any], list[Tensor]]:
        """Returns the operands with copies of those that are written, and these copies."""
        copies = list(operands)
        for place in self.written:
            copies[place] = copies[place].clone()
        return copies, [copies[place] for place in self.written]

    @contextlib.contextmanager
    def within(self, operands: Sequence[Any]) -> Iterator[Environment]:
        """Yields the values for the inside.

        Raises:
            ExportError: The inside has changed a list or dictionary from outside.
        """
        given, inner = iter(operands), dict(self._env)
        before = {}
        for name, (leaves, tree) in self._trees.items():
            before[name] = [_given(leaf, given) for leaf in leaves]
            inner[name] = pytree.tree_unflatten(before[name], tree)
        entered = {name: inner[name] for name in before}
        yield inner
        for name, (_, tree) in self._trees.items():
            leaves, after = pytree.tree_flatten(entered[name], is_leaf=is_undecided)
            if after != tree or any(
                new is not old for new, old in zip(leaves, before[name], strict=True)
            ):
                message = (
                    f"{self._node.kind()} depends on data and changes a list or dictionary from outside. Build it "
                    f"from tensors that the branch or loop returns.\n{source_line(self._node)}"
                )
                raise ExportError(message)


def _read_by(node: torch._C.Node, nodes: Sequence[torch._C.Node]) -> set[int]:
    """Returns the values that the blocks of a node read, given all nodes in them."""
    blocks = [block for each in (node, *nodes) for block in each.blocks()]
    read = [value for each in nodes for value in each.inputs()]
    read += [value for block in blocks for value in block.outputs()]
    return {value.unique() for value in read}


def _stores(node: torch._C.Node, access: torch._C.Node) -> str:
    return (
        f"{node.kind()} depends on data, and inside it the model stores into its attribute {access.s('name')!r}. "
        f"Store what the branch or loop returns, after it.\n{source_line(access)}"
    )


def _is_placed_by_data(value: torch._C.Value, env: Environment) -> bool:
    """Returns whether a value is an element whose place depends on data: it is a copy, not a view."""
    while is_view(value.node()):
        node = value.node()
        if node.kind() == "aten::select" and is_undecided(env.get(node.inputsAt(2).unique())):
            return True
        value = node.inputsAt(0)
    return False


@contextlib.contextmanager
def _exporting(runner: BlockRunner, node: torch._C.Node) -> Iterator[None]:
    try:
        with annotate({SITE: Site(node, runner.graph)}):
            yield
    except TorchTRTError:
        raise
    except Exception as error:
        message = (
            f"{node.kind()} depends on data, and PyTorch cannot export it: {type(error).__name__}: {error}\n"
            "Every way through it must make tensors of the same shapes and dtypes, and so must every trip of a loop.\n"
            f"{source_line(node)}"
        )
        raise ExportError(message) from error


def _finish(node: torch._C.Node, captured: _Captured, merged: Sequence[Any]) -> list[Any]:
    """Writes to the tensors outside; returns what the node makes, by the types in the graph."""
    kinds = [str(value.type()) for value in node.outputs()]
    for place, value in zip(captured.written, merged[len(kinds) :], strict=True):
        captured.operands[place].copy_(value)
    return _as_values(merged[: len(kinds)], kinds)


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
    return torch.where(torch.as_tensor(predicate), *tensors)


def _given(leaf: Any, operands: Iterator[Any]) -> Any:
    if not _is_operand(leaf):
        return leaf
    return Undecided(next(operands)) if is_undecided(leaf) else next(operands)


def _is_operand(leaf: Any) -> bool:
    return isinstance(leaf, (Undecided, Tensor, torch.SymInt))


def _unwrapped(leaf: Any) -> Any:
    return leaf.tensor if isinstance(leaf, Undecided) else leaf


def _as_tensors(
    results: Sequence[Any], inputs: Sequence[Any], node: torch._C.Node
) -> tuple[Tensor, ...]:
    """Returns what a branch or a loop's body makes as tensors, none of which is another or one of its inputs.

    Raises:
        ExportError: It makes something other than tensors and numbers.
    """
    tensors: list[Tensor] = []
    for result in results:
        value = _unwrapped(result)
        if isinstance(value, (bool, int, float, torch.SymInt)):
            value = _number(value)
        if not isinstance(value, Tensor):
            raise ExportError(_no_tensor(value, node))
        is_taken = any(value is each for each in (*inputs, *tensors))
        tensors.append(value.clone() if is_taken else value)
    return tuple(tensors)


def _no_tensor(value: Any, node: torch._C.Node) -> str:
    if value is Uninitialized:
        what = (
            "returns from inside, before anything is there to return otherwise. Give the result a value of the "
            "same shape before it"
        )
    else:
        what = f"makes a {type(value).__name__}. What a compiled branch or loop makes must be tensors and numbers"
    return f"{node.kind()} depends on data and {what}.\n{source_line(node)}"


def _as_values(results: Sequence[Any], kinds: Sequence[str]) -> list[Any]:
    """Returns what a branch or loop made by its types in the graph: numbers are undecided."""
    return [
        Undecided(result)
        if kind in ("int", "float", "bool") and isinstance(result, Tensor)
        else result
        for result, kind in zip(results, kinds, strict=True)
    ]


def _number(value: Any) -> Tensor:
    kind = torch.float64 if isinstance(value, float) else torch.int64
    return torch.full((), value, dtype=torch.bool if isinstance(value, bool) else kind)
