"""The memory that a caller lends to an execution context."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.graph import Port
from torchtrt_reference.semantics.tensor_facts import RefusedError

ALIGNMENT = 256
_MARK = 0xA5


def memory_size(ports: Iterable[tuple[Port, tuple[int, ...]]]) -> int:
    """Returns the bytes that an execution needs for these shapes of the inputs.

    PyTorch allocates what the reference computes. Yet the reference requires memory of the size of its inputs. So a
    caller fails as on a GPU if it lends no memory, too little, or memory that others use.
    """
    sizes = (math.prod(shape) * dtypes.TORCH[port.dtype].itemsize for port, shape in ports)
    return ALIGNMENT * (1 + sum(math.ceil(size / ALIGNMENT) for size in sizes))


class LentMemory:
    """The memory that a caller lends to a context.

    Attributes:
        address: Where it is; 0 where there is none.
        size: Its size in bytes; None where the caller gave none.
    """

    def __init__(self) -> None:
        self.address = 0
        self.size: int | None = None

    @contextmanager
    def in_use(self, needed: int, device: torch.device) -> Iterator[None]:
        """Writes to the memory while an engine runs, as an engine that computes in it does.

        Raises:
            RefusedError: There is no memory or too little. Or something else wrote to it meanwhile.
        """
        if not self.address:
            message = "the context was created without device memory, and none was set"
            raise RefusedError(message)
        if self.address % ALIGNMENT:
            message = f"the device memory is not aligned to {ALIGNMENT} bytes"
            raise RefusedError(message)
        if self.size is not None and self.size < needed:
            message = f"{self.size} bytes of device memory were set, and the engine needs {needed}"
            raise RefusedError(message)
        memory = dtypes.tensor_at(self.address, torch.uint8, (needed,), device)
        memory.fill_(_MARK)
        yield
        if device.type == "cpu" and bool((memory != _MARK).any()):
            message = "something else wrote to the device memory while the engine ran"
            raise RefusedError(message)


class ContextMemory:
    """The methods of an execution context about its memory.

    Attributes:
        torch_device: Where the context runs.
    """

    _engine: Any
    _memory: LentMemory | None
    _shapes: dict[str, tuple[int, ...]]
    torch_device: torch.device

    def _memory_in_use(self) -> AbstractContextManager[None]:
        if self._memory is None:
            return nullcontext()
        return self._memory.in_use(self._memory_size(), self.torch_device)

    def _memory_size(self) -> int:
        inputs = self._engine._inputs.items()
        return memory_size((port, self._shapes[name]) for name, port in inputs)

    def set_device_memory(self, memory: int, size: int) -> None:
        """Lends the context its memory.

        Raises:
            RuntimeError: The context was created with memory of its own.
        """
        self.device_memory = memory
        assert self._memory is not None
        self._memory.size = size

    @property
    def device_memory(self) -> Any:
        """The memory that the caller lends; it can only be set.

        Raises:
            AttributeError: Always.
        """
        message = "unreadable attribute 'device_memory'"
        raise AttributeError(message)

    @device_memory.setter
    def device_memory(self, address: int) -> None:
        if self._memory is None:
            message = "The context was created with device memory of its own."
            raise RuntimeError(message)
        self._memory.address, self._memory.size = address, None

    def update_device_memory_size_for_shapes(self) -> int:
        """Returns the memory that the current shapes need from the caller.

        Raises:
            RuntimeError: The shape of an input was not set.
        """
        if missing := [name for name in self._engine._inputs if name not in self._shapes]:
            message = f"The shape of the input {missing[0]!r} was not set: call set_input_shape."
            raise RuntimeError(message)
        return self._memory_size()
