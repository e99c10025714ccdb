"""Execution memory that engines share: PyTorch's allocator lends it for one call at a time."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt.tensorrt import Capability, supports
from torchtrt_runtime.torch_internals import empty_strided_of

_ALIGNMENT = 256
"""TensorRT's. PyTorch aligns less on the CPU."""


class ExecutionMemory:
    """The memory in which an execution context computes, from PyTorch's allocator.

    The allocator gives the memory that a call frees to the next user on the same stream: an engine, or an op of
    PyTorch. So engines that do not run at the same time share memory, and no call waits.

    Args:
        engine: The engine.
        context: Its execution context, created without memory.
        device: Where it runs.
    """

    def __init__(self, engine: Any, context: Any, device: torch.device) -> None:
        self._engine = engine
        self._context = context
        self._empty = empty_strided_of(device.type)
        self._size = 0
        # Other threads, in which another TensorRT may be in use, call this context too.
        self._has_strategies = supports(Capability.ALLOCATION_STRATEGIES)

    def fit(self) -> None:
        """Takes the size that the context needs for the shapes of its inputs; in TensorRT 8.6 for the largest ones."""
        if self._has_strategies:
            self._size = self._context.update_device_memory_size_for_shapes()
        else:
            self._size = self._engine.device_memory_size

    def lend(self) -> torch.Tensor:
        """Returns memory that the context uses for its next execution. It must live until that is enqueued."""
        memory: torch.Tensor = self._empty((self._size + _ALIGNMENT,), (1,), torch.uint8)
        address = memory.data_ptr()
        address += -address % _ALIGNMENT
        if self._has_strategies:
            self._context.set_device_memory(address, self._size)
        else:
            self._context.device_memory = address
        return memory
