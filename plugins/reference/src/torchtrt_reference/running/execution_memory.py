"""The memory that a caller lends to an execution context."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.graph import Port
from torchtrt_reference.semantics.tensor_facts import RefusedError

ALIGNMENT = 256
_MARK = 0xA5


def memory_size(ports: Iterable[tuple[Port, tuple[int, ...]]]) -> int:
    """Returns the bytes that an execution needs for these shapes of the inputs.

    PyTorch allocates what the reference computes. The reference asks for the size of its inputs all the same. So a
    caller fails as on a GPU if it lends no memory, too little, or memory that others use.
    """
    sizes = (math.prod(shape) * dtypes.TORCH[port.dtype].itemsize for port, shape in ports)
    return ALIGNMENT * (1 + sum(math.ceil(size / ALIGNMENT) for size in sizes))


class LentMemory:
    """The memory that a caller lends to a context.

    Attributes:
        address: Where it is; 0 where there is none.
        size: Its size in bytes; None where the caller did not tell.
    """

    def __init__(self) -> None:
        self.address = 0
        self.size: int | None = None

    @contextlib.contextmanager
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
