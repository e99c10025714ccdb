"""Moves a model's weights from the GPU to the CPU while TensorRT builds, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from torchtrt.settings import CompilationSettings
from torchtrt_compiler.lowering import Program
from torchtrt_runtime.weights.forms import inner_tensors

OFFLOADED = frozenset({"cuda"})
"""The types of the devices whose memory is freed."""


@contextmanager
def offloaded(
    settings: CompilationSettings, model: torch.nn.Module | ExportedProgram, program: Program
) -> Iterator[None]:
    """Keeps the weights of a model in the memory of the CPU inside a ``with`` block, if the settings specify it.

    Each storage is moved as a whole, and comes back as the same storage. So tied weights stay tied, and other
    views of the same memory are views again.

    Args:
        settings: The settings of the compilation.
        model: The model, or the program that the user exported.
        program: The lowered program. Its watcher takes weights in the memory of the CPU for the same ones.
    """
    owners = model, program.exported, program.graph_module
    moves = _moves(_tensors(*owners)) if settings.offload_module_to_cpu else {}
    with ExitStack() as stack:
        moved = {}
        for memory, move in moves.items():
            stack.callback(move.back)
            moved[memory] = move.away()
        if moves and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # TensorRT allocates without PyTorch
        stack.enter_context(program.watcher.moved(moved))
        yield


def has_weights_to_offload(exported: ExportedProgram) -> bool:
    """Returns whether a program has weights that are not on the CPU."""
    return bool(_moves(_tensors(exported)))


@dataclass
class _Move:
    """A storage on its way to the CPU and back.

    Attributes:
        storage: The storage.
        members: The tensors in it whose memory is replaced, each with what it was.
        host: Its contents meanwhile.
    """

    storage: torch.UntypedStorage
    members: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    host: torch.Tensor | None = None

    def away(self) -> torch.Tensor:
        """Moves the contents to the CPU, frees the memory, and returns a tensor over the contents."""
        host = torch.empty(self.storage.nbytes(), dtype=torch.uint8)
        host.copy_(self._contents())
        # Not before it has the contents: a copy may fail, and ``back`` trusts them.
        self.host = host
        for tensor, before in self.members:
            there = torch.empty(0, dtype=tensor.dtype)
            geometry = before.storage_offset(), before.shape, before.stride()
            tensor.data = there.set_(host.untyped_storage(), *geometry)
        self.storage.resize_(0)
        return host

    def back(self) -> None:
        """Moves the contents back."""
        if self.host is None:
            return
        self.storage.resize_(self.host.numel())
        self._contents().copy_(self.host)
        for tensor, before in self.members:
            tensor.data = before
        self.host = None

    def _contents(self) -> torch.Tensor:
        flat: Any = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        made: torch.Tensor = flat.set_(self.storage, 0, (self.storage.nbytes(),), (1,))
        return made


def _tensors(*owners: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of modules and programs, and of wrappers those inside."""
    for owner in owners:
        if isinstance(owner, ExportedProgram):
            values: list[Any] = [*owner.state_dict.values(), *owner.constants.values()]
        else:
            values = [
                value
                for module in owner.modules()
                for namespace in (module._parameters, module._buffers, vars(module))
                for value in namespace.values()
            ]
        tensors = {
            str(index): value
            for index, value in enumerate(values)
            if isinstance(value, torch.Tensor)
        }
        yield from inner_tensors(tensors).values()


def _moves(tensors: Iterable[torch.Tensor]) -> Mapping[int, _Move]:
    """Returns the storages of some tensors that can be moved, by what identifies them."""
    moves: dict[int, _Move] = {}
    fixed: set[int] = set()
    seen: set[int] = set()
    for tensor in tensors:
        if tensor.device.type not in OFFLOADED or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if tensor.layout is not torch.strided or tensor.is_nested:
            continue
        storage = tensor.untyped_storage()
        memory = int(storage._cdata)
        moves.setdefault(memory, _Move(storage)).members.append((tensor, tensor.data))
        if not storage.resizable() or tensor.is_conj() or tensor.is_neg():
            fixed.add(memory)
    return {memory: move for memory, move in moves.items() if memory not in fixed}
