"""Which tensors share memory, where PyTorch's own views cannot express it.

TorchScript takes an element at a place that depends on data as a view, and a branch or a loop returns one of
several tensors as it is. A trace has a copy there: a stand-in for the original, or for one of several. A write
to either is brought over when the other is read. If that is impossible, the read is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchtrt.errors import ExportError
from torchtrt.torch_internals import pytree
from torchtrt_torchscript.numbers import is_undecided
from torchtrt_torchscript.source_location import source_line
from torchtrt_torchscript.torch_internals import ScriptNode


class StandIn(NamedTuple):
    """A tensor that has memory of its own where TorchScript's may be that of others.

    Attributes:
        tensor: The stand-in.
        originals: The tensors whose memory it may be in TorchScript.
        read: Makes what it holds from what the originals hold now; ``None`` if that cannot be determined.
        write: Writes what it holds to the originals.
        node: The node that made it.
    """

    tensor: Tensor
    originals: Sequence[Tensor]
    node: ScriptNode
    read: Callable[[], Tensor] | None = None
    write: Callable[[], None] | None = None


class Memory:
    """The memory of one trace: of a graph, of a branch, or of a loop's body."""

    def __init__(self) -> None:
        self._stand_ins: list[StandIn] = []
        self._stale: dict[int, tuple[StandIn, ScriptNode]] = {}
        self._outside: set[int] = set()
        self._kept: dict[int, Any] = {}  # so that no number is given twice
        self._laid_out_anew: set[int] = set()
        self.written: set[int] = set()

    def outlives(self, values: Any) -> None:
        """Records that the memory of these tensors is read after the trace."""
        for tensor in tensors_in(values):
            self._outside.add(self._number(tensor))

    def may_share(self, first: Tensor, second: Tensor) -> bool:
        """Returns whether two tensors may have memory in common in TorchScript."""
        return not self.related(first).isdisjoint(self.related(second))

    def lays_out_anew(self, tensor: Tensor) -> None:
        """Records that a tensor has its elements in rows, and in TorchScript perhaps not."""
        self._laid_out_anew.add(self._number(tensor))

    def is_laid_out_anew(self, tensor: Tensor) -> bool:
        """Returns whether it is uncertain which views of a tensor would be copies in TorchScript."""
        return self._number(tensor) in self._laid_out_anew

    def is_written(self, tensor: Tensor) -> bool:
        """Returns whether anything has been written to a tensor's memory."""
        return self._number(tensor) in self.written

    def stand_in(self, stand_in: StandIn) -> None:
        """Adds a stand-in, unless the memory is the same for PyTorch, as that of a view."""
        number = self._number(stand_in.tensor)
        originals = [
            original for original in stand_in.originals if self._number(original) != number
        ]
        if originals:
            self._stand_ins.append(stand_in._replace(originals=originals))

    def choice(
        self,
        tensor: Tensor,
        predicate: Tensor | Callable[[], Tensor],
        sides: Sequence[Tensor | None],
        node: ScriptNode,
    ) -> None:
        """Adds a stand-in for the first tensor where the predicate holds, else for the second.

        ``None`` is a tensor that nothing else uses.
        """
        first, second = sides
        if first is None and second is None:
            return

        def holds() -> Tensor:
            return predicate() if callable(predicate) else predicate

        def read() -> Tensor:
            return torch.where(
                holds(), tensor if first is None else first, tensor if second is None else second
            )

        def write() -> None:
            if first is not None:
                first.copy_(torch.where(holds(), tensor, first))
            if second is not None:
                second.copy_(torch.where(holds(), second, tensor))

        originals = [side for side in sides if side is not None]
        self.stand_in(StandIn(tensor, originals, node, read, write))

    def related(self, tensor: Tensor) -> set[int]:
        """Returns the numbers of all memory that may be this tensor's in TorchScript."""
        numbers, waiting = set(), {self._number(tensor)}
        while waiting:
            number = waiting.pop()
            numbers.add(number)
            for stand_in in self._stand_ins:
                group = {self._number(it) for it in (stand_in.tensor, *stand_in.originals)}
                if number in group:
                    waiting |= group - numbers
        return numbers

    def reads(self, values: Any, node: ScriptNode) -> None:
        """Brings what is read up to date.

        Raises:
            ExportError: That cannot be done.
        """
        for tensor in tensors_in(values):
            self._read(tensor, node)

    def _read(self, tensor: Tensor, node: ScriptNode) -> None:
        """Brings one tensor up to date after a write to a tensor that it may share memory with.

        Raises:
            ExportError: What it holds now cannot be computed.
        """
        stale = self._stale.get(self._number(tensor))
        if stale is None:
            return
        stand_in, written = stale
        if stand_in.read is None or self._number(stand_in.tensor) != self._number(tensor):
            raise ExportError(_cannot_follow(stand_in, written, node))
        for original in stand_in.originals:
            self._read(original, node)
        stand_in.tensor.copy_(stand_in.read())
        del self._stale[self._number(tensor)]

    def writes(self, tensor: Tensor, node: ScriptNode) -> None:
        """Records that a tensor has been written to, and writes to those it stands in for.

        Raises:
            ExportError: What outlives the trace may have to be written, and it is not known what.
        """
        self._write(tensor, node, None)

    def _write(self, tensor: Tensor, node: ScriptNode, source: StandIn | None) -> None:
        number = self._number(tensor)
        self.written.add(number)
        for stand_in in self._stand_ins:
            if stand_in is source:
                continue
            if self._number(stand_in.tensor) == number:
                self._write_through(stand_in, node)
            if any(self._number(original) == number for original in stand_in.originals):
                self._mark(stand_in.tensor, stand_in, node)

    def _write_through(self, stand_in: StandIn, node: ScriptNode) -> None:
        if stand_in.write is None:
            self.loses(stand_in, node)
            return
        for original in stand_in.originals:
            self._read(original, node)
        stand_in.write()
        for original in stand_in.originals:
            self._write(original, node, stand_in)

    def loses(self, stand_in: StandIn, node: ScriptNode) -> None:
        """Records that the originals of a stand-in may have been written to, which cannot be decided.

        Raises:
            ExportError: One of them outlives the trace.
        """
        for original in stand_in.originals:
            self._mark(original, stand_in, node)
            for other in self._stand_ins:
                if self._number(other.tensor) == self._number(original):
                    self.loses(StandIn(stand_in.tensor, other.originals, stand_in.node), node)

    def _mark(self, tensor: Tensor, stand_in: StandIn, node: ScriptNode) -> None:
        """Notes that a tensor is out of date since ``node`` wrote, and all stand-ins that were made of it.

        Raises:
            ExportError: The tensor outlives the trace, so that its new content would have to be computed.
        """
        number = self._number(tensor)
        stale = self._stale.get(number)
        if stale is not None and stale[0].read is None:
            return
        is_original = number != self._number(stand_in.tensor)
        if number in self._outside and is_original:
            raise ExportError(_cannot_follow(stand_in, node))
        self._stale[number] = stand_in, node
        for other in self._stand_ins:
            if other is not stand_in and any(
                self._number(original) == number for original in other.originals
            ):
                self._mark(other.tensor, other, node)

    def _number(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        number: int = storage._cdata
        self._kept.setdefault(number, storage)
        return number


def _cannot_follow(stand_in: StandIn, written: ScriptNode, read: ScriptNode | None = None) -> str:
    """Returns the message for a write that cannot be followed, with the lines where each part of it happens."""
    steps = [("made here", stand_in.node), ("written here", written)]
    if read is not None:
        steps.append(("read under another name here", read))
    message = (
        "The model writes to a tensor that may be another one under a new name, depending on data. A compiled model "
        "cannot follow that. Take a clone() where the new name is made."
    )
    return "\n".join((message, *(f"It is {what}:\n{source_line(node)}" for what, node in steps)))


def tensors_in(values: Any) -> Iterable[Tensor]:
    """Yields the tensors among values, also those in lists, tuples and dictionaries; not undecided numbers."""
    for leaf in pytree.tree_leaves(values, is_leaf=is_undecided):
        if isinstance(leaf, Tensor):
            yield leaf
