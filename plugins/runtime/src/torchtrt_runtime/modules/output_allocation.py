"""Memory for outputs whose size is known only while the engine runs."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchtrt.tensorrt.selection import current

_LARGEST = torch.complex128.itemsize
"""The bytes of the largest element: some ops of PyTorch refuse memory that ends within one."""


def make_output_allocator(device: torch.device) -> Any:
    """Returns a ``trt.IOutputAllocator`` that allocates with PyTorch; ``take(dtype)`` returns the last output."""
    return _allocator_class(current())(device)


@functools.cache
def _allocator_class(module: Any) -> type:
    """Returns a class of output allocators that derives from a TensorRT's own interface."""

    class TorchOutputAllocator(module.IOutputAllocator):  # type: ignore[misc]
        def __init__(self, device: torch.device) -> None:
            module.IOutputAllocator.__init__(self)
            self.device = device
            self.buffer: torch.Tensor | None = None
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:  # noqa: ARG002
            whole = -(-max(size, 1) // _LARGEST) * _LARGEST
            self.buffer = torch.empty(whole, dtype=torch.uint8, device=self.device)
            return self.buffer.data_ptr()

        def reallocate_output_async(self, *arguments: Any) -> int:  # the same, and a stream
            return self.reallocate_output(*arguments[:4])

        def notify_shape(self, name: str, shape: Any) -> None:  # noqa: ARG002
            self.shape = tuple(shape)

        def take(self, dtype: torch.dtype) -> torch.Tensor:
            """Returns the output as a tensor that owns its memory."""
            assert self.buffer is not None
            count = torch.Size(self.shape).numel()
            return self.buffer[: count * dtype.itemsize].view(dtype).reshape(self.shape)

    return TorchOutputAllocator
