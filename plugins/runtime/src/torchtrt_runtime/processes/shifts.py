"""Shifts: each process of a group passes a tensor to another one, while it computes something else.

The op ``torchtrt_collectives::shift`` begins an exchange, and ``_c10d_functional::wait_tensor`` waits for its end, as
for PyTorch's functional collectives. JAX and MPI have the same exchange as ``ppermute`` and ``MPI_Sendrecv``.

GPUs that can write to each other's memory have copy engines for that. They leave all multiprocessors to the kernels
that run meanwhile, which the kernels of NCCL do not. So a shift between such GPUs is a copy to a buffer that all
processes of the group can write to, in a stream of its own. Everywhere else it is an all-to-all of PyTorch.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchtrt.errors import EngineError
from torchtrt_runtime.torch_internals import (
    SharedBuffer,
    has_shared_buffers,
    is_capturing,
    named_process_group,
    register_work,
)

NAMESPACE = "torchtrt_collectives"
"""The namespace of torchtrt's own collectives."""
IS_DIVIDED = "divided among"
"""The beginning of the outcome of an all-reduce that ``async_tensor_parallel`` divides."""
IN_ENGINE = "its engine exchanges the tensor."
"""Why the rows around an all-reduce stay together: an engine that exchanges tensors lets no other one run."""
_library = torch.library.Library(NAMESPACE, "DEF")
_library.define("shift(Tensor input, int distance, str group_name) -> Tensor")
_lock = threading.Lock()
_memories: weakref.WeakKeyDictionary[Any, dict[torch.device, Buffers | None]]
_memories = weakref.WeakKeyDictionary()
"""The buffers of each process group, for each GPU that this process has used in it; None where there are none."""


@torch.library.register_fake(f"{NAMESPACE}::shift", lib=_library)  # type: ignore[untyped-decorator]
def _described(input: Tensor, distance: int, group_name: str) -> Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@torch.library.impl(_library, "shift", "CompositeExplicitAutograd")
def _shift(input: Tensor, distance: int, group_name: str) -> Tensor:
    """Begins to exchange tensors, and returns the one that will be received.

    All processes of the group call it in the same order, with tensors of the same sizes and dtype.

    Args:
        input: What this process passes. It keeps its values until the wait.
        distance: The number of places in the group between this process and the one from which it receives. Behind the
            last process comes the first one.
        group_name: The name of the process group.

    Returns:
        A contiguous tensor that ``wait_tensor`` completes.
    """
    group = named_process_group(group_name)
    tensor = input.contiguous()
    buffers = _buffers_of(group, input.device)
    if buffers is None:
        return _all_to_all(tensor, distance, group)
    return buffers.shift(tensor, distance)


def _all_to_all(tensor: Tensor, distance: int, group: Any) -> Tensor:
    """Passes one tensor to one process, and none to the others."""
    size, rank = group.size(), group.rank()
    sent, received = [0] * size, [0] * size
    sent[(rank - distance) % size] = received[(rank + distance) % size] = 1
    exchange = torch.ops._c10d_functional.all_to_all_single
    # As bytes: no backend exchanges all dtypes.
    result: Tensor = exchange(_bytes(tensor).view(1, -1), received, sent, group.group_name)
    return result.view(-1).view(tensor.dtype).view(tensor.shape)


def _buffers_of(group: Any, device: torch.device) -> Buffers | None:
    """Returns the buffers that GPUs of a group can write to; None where they cannot. All processes ask together."""
    if device.type != "cuda":
        return None
    with _lock:
        by_device = _memories.setdefault(group, {})
        if device not in by_device:
            by_device[device] = (
                Buffers(group, device) if has_shared_buffers(group, device) else None
            )
        return by_device[device]


class Gpu:
    """The streams, recordings and shared memory of a GPU: all of it by which a shift is a copy."""

    is_capturing = staticmethod(is_capturing)
    register_work = staticmethod(register_work)
    shared_buffer = SharedBuffer
    stream = staticmethod(partial(torch.cuda.Stream, priority=-1))
    stream_in_use = staticmethod(torch.cuda.current_stream)
    using = staticmethod(torch.cuda.stream)
    event = torch.cuda.Event


class Buffers:
    """Buffers of a GPU that the others of its process group can write to, one for each size.

    A shift writes to the buffer of another process, which copies the contents elsewhere. All copies run in one stream,
    in the same order in each process. A process enters the next exchange behind its own copy, so that no buffer is
    written to before it was read.

    Args:
        group: The process group.
        device: This process's GPU.
        gpu: What the copies need of it; a test gives another one.
    """

    def __init__(self, group: Any, device: torch.device, gpu: Any = Gpu) -> None:
        self._group = weakref.ref(group)
        self._device = device
        self._gpu = gpu
        self._buffers: dict[int, SharedBuffer] = {}
        self._stream = gpu.stream(device)

    def shift(self, tensor: Tensor, distance: int) -> Tensor:
        """Begins to copy a tensor to another process, and what arrives from the opposite side."""
        buffer = self._buffer(tensor.nbytes)
        received = torch.empty_like(tensor)
        now = self._gpu.stream_in_use(self._device)
        with self._gpu.using(self._stream):
            # Behind an earlier exchange of a CUDA graph, the stream is part of the graph already.
            if not self._gpu.is_capturing():
                self._stream.wait_stream(now)
            buffer.wait_for_all(0)  # have read what they received last
            self._stream.wait_stream(now)
            buffer.of_neighbour(-distance).copy_(_bytes(tensor))
            buffer.wait_for_all(1)  # have written
            _bytes(received).copy_(buffer.own)
            end = self._gpu.event()
            end.record(self._stream)
        self._gpu.register_work(received, _Copy(end, tensor))
        return received

    def _buffer(self, size: int) -> SharedBuffer:
        """Returns the buffer of a size.

        Raises:
            EngineError: It would have to be made while calls are recorded as a CUDA graph.
        """
        with _lock:
            if size not in self._buffers:
                if self._gpu.is_capturing():
                    raise EngineError(
                        f"An exchange of {size:,} bytes needs a buffer that all GPUs of the process group can write "
                        "to. None can be made while a CUDA graph is recorded. Call the model once before, outside of "
                        "the recording."
                    )
                self._buffers[size] = self._gpu.shared_buffer(size, self._device, self._group())
            return self._buffers[size]


class _Copy(getattr(torch.distributed, "Work", object)):  # type: ignore[misc]  # some builds of PyTorch lack it
    """The copies of a shift.

    Args:
        end: Recorded behind the copies.
        tensor: The tensor that the process passes, whose memory is read until then.
    """

    def __init__(self, end: torch.cuda.Event, tensor: Tensor) -> None:
        super().__init__()
        self._end = end
        self._tensor: Tensor | None = tensor

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002  (part of the interface)
        """Lets the current stream wait for the copies."""
        self._end.wait()
        self._tensor = None
        return True


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
