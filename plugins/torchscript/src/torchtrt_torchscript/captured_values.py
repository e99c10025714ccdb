"""The values that a data-dependent branch or loop reads from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from torch import Tensor

from torchtrt.errors import ExportError
from torchtrt.graphs.memory import is_same_memory, storage_of
from torchtrt.torch_internals import pytree
from torchtrt_torchscript.graphs import Environment, all_nodes, base_of, written_inputs
from torchtrt_torchscript.memory import Memory
from torchtrt_torchscript.numbers import Uninitialized, is_undecided
from torchtrt_torchscript.operands import is_operand, knows_another_name, like, unwrapped
from torchtrt_torchscript.source_location import source_line
from torchtrt_torchscript.torch_internals import ScriptGraph, ScriptNode


class BlockRunner(Protocol):
    """Runs the blocks inside a branch or a loop."""

    graph: ScriptGraph
    memory: Memory

    def assign(self, env: Environment, values: Iterable[Any], results: Sequence[Any]) -> None:
        """Gives values of the graph their results."""

    def run_block(self, block: Any, env: Environment) -> list[Any]:
        """Runs the nodes of a block; returns its outputs."""

    def run_node(self, node: ScriptNode, env: Environment) -> None:
        """Runs one node."""


class UnforeseenWriteError(Exception):
    """The inside writes to operands, at these places, that were not copied for it."""

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__(positions)
        self.positions = positions


class CapturedValues:
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

    def __init__(self, runner: BlockRunner, node: ScriptNode, env: Environment) -> None:
        self._env, self._node, self._runner = env, node, runner
        self._trees: dict[int, tuple[list[Any], pytree.TreeSpec, list[int | None]]] = {}
        self.operands: list[Any] = []
        self.written: list[int] = []
        nodes = [inner for block in node.blocks() for inner in all_nodes(block)]
        writes = [
            value
            for node in nodes
            for value in written_inputs(node)
            if value.type().kind() == "TensorType"  # not a list
        ]
        self.has_writes = bool(writes) or any(
            node.kind() in ("prim::CallMethod", "prim::fork") for node in nodes
        )
        bases = {base_of(value, env).unique() for value in writes}
        self._read_early(nodes, bases)
        names = self._names_from_outside(nodes)
        self.leaves_unset = any(env[name] is Uninitialized for name in names) or any(
            node.kind() == "prim::Uninitialized" for node in nodes
        )
        for name in names:
            self._add(name)
        runner.memory.reads(self.operands, node)
        self.will_write(
            position
            for name in names
            if name in bases and isinstance(env[name], Tensor)
            for position in self._trees[name][2]
        )

    def _read_early(self, nodes: Sequence[ScriptNode], bases: set[int]) -> None:
        """Reads the attributes and constants of the inside, so that they come from outside.

        Raises:
            ExportError: The inside stores into an attribute, or writes to what it reads from one.
        """
        for node in nodes:
            is_read = node.kind() == "prim::GetAttr"
            if node.kind() == "prim::SetAttr":
                raise ExportError(_stores(self._node, node))
            if (is_read or node.kind() == "prim::Constant") and all(
                value.unique() in self._env for value in node.inputs()
            ):
                self._runner.run_node(node, self._env)
            if is_read and node.output().unique() in bases:
                raise ExportError(_stores(self._node, node))

    def _names_from_outside(self, nodes: Sequence[ScriptNode]) -> list[int]:
        """Returns the values that the inside reads and does not make."""
        blocks = [block for node in (self._node, *nodes) for block in node.blocks()]
        read = [value for node in nodes for value in node.inputs()]
        read += [value for block in blocks for value in block.outputs()]
        made = {
            value.unique()
            for node in nodes
            if node.kind() not in ("prim::GetAttr", "prim::Constant")
            for value in node.outputs()
        }
        return sorted(({value.unique() for value in read} & self._env.keys()) - made)

    def _add(self, name: int) -> None:
        value = self._env[name]
        leaves, tree = pytree.tree_flatten(value, is_leaf=is_undecided)
        positions = [self._position_of(leaf) if is_operand(leaf) else None for leaf in leaves]
        if isinstance(value, (list, dict)) or any(position is not None for position in positions):
            self._trees[name] = leaves, tree, positions

    def _position_of(self, leaf: Any) -> int:
        """Returns the place of an operand. A tensor with two names has one place."""
        tensor = unwrapped(leaf)
        for index, operand in enumerate(self.operands):
            if (
                isinstance(tensor, Tensor)
                and isinstance(operand, Tensor)
                and is_same_memory(tensor, operand)
            ):
                return index
        self.operands.append(tensor)
        return len(self.operands) - 1

    def will_write(self, positions: Iterable[int | None]) -> None:
        """Records that the inside writes to the operands at these places.

        Raises:
            ExportError: The inside has such a tensor by another view too.
        """
        memory = self._runner.memory
        self.written = sorted(
            {*self.written, *(position for position in positions if position is not None)}
        )
        for position in self.written:
            for other, operand in enumerate(self.operands):
                if (
                    other != position
                    and isinstance(operand, Tensor)
                    and memory.may_share(self.operands[position], operand)
                ):
                    raise ExportError(knows_another_name(self._node))

    def check_writes(self, memory: Memory, operands: Sequence[Any]) -> None:
        """Raises an error, caught by the export, if the inside has written to an operand that has no copy."""
        unforeseen = [
            index
            for index, tensor in enumerate(operands)
            if isinstance(tensor, Tensor)
            and index not in self.written
            and memory.is_written(tensor)
        ]
        if unforeseen:
            raise UnforeseenWriteError(unforeseen)

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
            operand.clone()
            if isinstance(operand, Tensor) and (everything or index in self.written)
            else operand
            for index, operand in enumerate(operands)
        ]

    def write_back(self, results: Sequence[Any]) -> None:
        """Writes what the inside made of the written operands to the tensors outside."""
        for position, value in zip(self.written, results, strict=True):
            self.operands[position].copy_(value)
            self._runner.memory.writes(self.operands[position], self._node)

    @contextlib.contextmanager
    def within(self, operands: Sequence[Any]) -> Iterator[Environment]:
        """Yields the values for the inside; until it returns, the runner has a memory for the inside.

        Raises:
            ExportError: The inside has changed a list or dictionary from outside.
        """
        inner, entered, outer = dict(self._env), {}, self._runner.memory
        for name, (leaves, tree, positions) in self._trees.items():
            inner_leaves = [
                leaf if position is None else like(leaf, operands[position])
                for leaf, position in zip(leaves, positions, strict=True)
            ]
            inner[name] = pytree.tree_unflatten(inner_leaves, tree)
            entered[name] = inner[name], inner_leaves
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


def _stores(node: ScriptNode, access: ScriptNode) -> str:
    return (
        f"{node.kind()} depends on data, and inside it the model stores into its attribute {access.s('name')!r}. "
        f"Store what the branch or loop returns, after it.\n{source_line(access)}"
    )
