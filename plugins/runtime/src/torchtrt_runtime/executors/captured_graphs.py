"""Captured CUDA graphs of one combination of shapes, and the memory that they read and write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch import Tensor

from torchtrt_runtime import torch_internals
from torchtrt_runtime.checks.tensors import make_tensor_matcher
from torchtrt_runtime.executors.capture_sources import addresses_of

_STAYS = 16
"""The calls in a row with an input at one place after which it is read there."""
storage_use_count: Callable[[int], int] | None = torch_internals.storage_use_count
"""How many tensors use a storage; without it all outputs are copied."""


class CapturedGraph:
    """A captured call, which reads inputs in place or from buffers of its own.

    Args:
        capture: The stream that captures.
        run: The call.
        leaves: The inputs of the call.
        moved: The places of the inputs that are read from buffers.
    """

    def __init__(
        self,
        capture: Any,
        run: Callable[[Sequence[Any]], Sequence[Any]],
        leaves: Sequence[Any],
        moved: set[int],
    ) -> None:
        self.buffers = [(index, leaves[index].detach().clone()) for index in moved]
        self.addresses = [
            (index, leaf.data_ptr())
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, Tensor) and index not in moved
        ]
        buffers = dict(self.buffers)
        read = [buffers.get(index, leaf) for index, leaf in enumerate(leaves)]
        self.replay, self.outputs = capture.capture_graph(lambda: run(read))
        storages = {}
        for output in self.outputs:
            if isinstance(output, Tensor):
                storages[output.untyped_storage()._cdata] = output
        self.counts = (
            [(storage, storage_use_count(storage)) for storage in storages]
            if storage_use_count
            else []
        )
        inputs = {leaf.untyped_storage().data_ptr() for leaf in read if isinstance(leaf, Tensor)}
        self.returns_inputs = any(
            output.untyped_storage().data_ptr() in inputs
            for output in storages.values()
            if output.numel()
        )

    def run(self, leaves: Sequence[Any], overwrites: bool) -> list[Any] | None:
        """Returns the outputs for these inputs, or None where that takes another captured graph.

        That is where inputs that it does not copy are elsewhere, or the outputs that it overwrites are still in use.
        """
        for index, address in self.addresses:
            if leaves[index].data_ptr() != address:
                return None
        if not overwrites:
            for storage, count in self.counts:
                if storage_use_count(storage) != count:  # type: ignore[misc]  # without it nothing is handed out
                    return None
        for index, buffer in self.buffers:
            buffer.copy_(leaves[index].detach(), non_blocking=True)
        self.replay()
        outputs = []
        for output in self.outputs:  # a comprehension takes longer
            outputs.append(output.detach() if isinstance(output, Tensor) else output)
        return outputs


class CapturedShapes:
    """The state of one combination of shapes.

    Attributes:
        moved: The inputs that captured graphs read from buffers.
    """

    def __init__(self, leaves: Sequence[Any], exact: Collection[int]) -> None:
        self.matches = make_tensor_matcher(leaves, exact)
        self.last = addresses_of(leaves)
        self.moved: set[int] = set()
        self.graphs: list[CapturedGraph] = []
        self.copied: CapturedGraph | None = None
        self._stays: dict[int, tuple[int, int]] = {}
        self._settled: set[int] = set()

    def replay(self, leaves: Sequence[Any], overwrites: bool) -> list[Any] | None:
        """Returns the outputs for these inputs from a captured graph that can be replayed for them, if one can."""
        if self._stays and self._settled_now(leaves):
            return None
        for captured in self.graphs:
            outputs = captured.run(leaves, overwrites)
            if outputs is not None:
                self.count(leaves)
                return outputs
        return None

    def count(self, leaves: Sequence[Any]) -> None:
        """Counts a call with copied inputs, which stay where they were or move."""
        for position, (address, calls) in self._stays.items():
            now = leaves[position].data_ptr()
            self._stays[position] = now, calls + 1 if now == address else 1

    def _settled_now(self, leaves: Sequence[Any]) -> set[int]:
        """Returns the copied inputs that are where they were in so many calls that they are read there from now on."""
        return {
            position
            for position, (address, calls) in self._stays.items()
            if calls >= _STAYS and leaves[position].data_ptr() == address
        }

    def add(self, captured: CapturedGraph, is_copied: bool) -> None:
        """Keeps a captured graph, for results that are handed out or for those that are copied."""
        if is_copied:
            self.copied = captured
        else:
            self.graphs.append(captured)

    def note(self, leaves: Sequence[Any]) -> None:
        """Notices inputs that have moved or settled, and drops the captured graphs that read where they were."""
        now = addresses_of(leaves)
        moved = {index for index, address in enumerate(now) if address != self.last[index]}
        settled = self._settled_now(leaves)
        self.last = now
        if settled or not moved <= self.moved:
            self._settled |= settled
            self.moved = (self.moved | moved) - settled
            self.graphs, self.copied = [], None
            # An input that moves after it has settled is copied from then on.
            waiting = self.moved - self._settled
            self._stays = {position: self._stays.get(position, (0, 0)) for position in waiting}
