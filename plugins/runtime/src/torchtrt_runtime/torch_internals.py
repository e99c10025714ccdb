"""The parts of PyTorch that the runtime uses and that PyTorch may change in any version.

Other modules of this distribution import them from here, as names: a function around them would cost every call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import _assert as assert_true
from torch._C import PyTorchFileWriter
from torch._C import _DisableAutocast as DisableAutocast
from torch._C import _DisableTorchDispatch as DisableTorchDispatch
from torch._C import _dispatch_has_kernel as is_dispatched
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled
from torch._C import _is_tracing as is_tracing
from torch._C._dynamo import guards as dynamo_guards
from torch._C._functorch import peek_interpreter_stack
from torch._export.verifier import load_verifier
from torch._subclasses.fake_tensor import FakeTensorMode, is_fake
from torch.nn.modules.module import _global_forward_hooks as global_forward_hooks
from torch.nn.modules.module import _global_forward_pre_hooks as global_forward_pre_hooks
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._sympy import functions as sympy_functions
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges

__all__ = [
    "PROGRAMS",
    "DisableAutocast",
    "DisableTorchDispatch",
    "FakeTensorMode",
    "PyTorchFileWriter",
    "PythonPrinter",
    "SharedBuffer",
    "ValueRanges",
    "add_hint",
    "assert_true",
    "compile_lock",
    "compile_package",
    "default_process_group",
    "default_store",
    "device_in_use",
    "dynamo_exception",
    "empty_strided_of",
    "global_forward_hooks",
    "global_forward_pre_hooks",
    "has_shared_buffers",
    "is_any_autocast_enabled",
    "is_capturing",
    "is_dispatched",
    "is_fake",
    "is_traceable_wrapper_subclass",
    "is_tracing",
    "load_verifier",
    "named_process_group",
    "nccl_communicator",
    "peek_interpreter_stack",
    "register_work",
    "storage_use_count",
    "stream_in_use",
    "sympy_functions",
    "tensor_guards",
    "tensors_are_at",
]

PROGRAMS = threading.RLock()
"""Held while PyTorch exports or reads a program, because the modes that it enters for it are those of all threads."""

tensor_guards: Any = dynamo_guards.TensorGuards
"""Makes what Dynamo compares tensors with."""
storage_use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""Returns how many tensors use a storage."""
tensors_are_at: Callable[..., bool] | None = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", None
)
"""Returns whether the memory of tensors is at these addresses; None where PyTorch was built without CUDA."""
# PyTorch without CUDA has none of these.
device_in_use: Any = getattr(torch._C, "_cuda_getDevice", None)
stream_in_use: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


def add_hint(environment: Any, symbol: Any, hint: int) -> None:
    """Gives a ``ShapeEnv`` the size that a symbol has in an example."""
    # Before PyTorch 2.10 it has the other name.
    add = getattr(environment, "add_backed_var_to_val", None) or environment.add_var_to_val
    add(symbol, hint)


def empty_strided_of(device_type: str) -> Any:
    """Returns the function that code compiled by PyTorch allocates with: it takes half the time."""
    return getattr(dynamo_guards, f"_empty_strided_{device_type}")


def compile_lock() -> Any:
    """Returns the lock that ``torch.compile`` holds; the first call takes a second."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


def dynamo_exception() -> type[Exception]:
    """Returns the class of what ``torch.compile`` raises; the first call takes a second."""
    from torch._dynamo import exc

    return exc.TorchDynamoException


def compile_package(program: Any, path: Path, texts: Mapping[str, str]) -> None:
    """Compiles an exported program with AOTInductor, and writes it with texts by name; the first call takes seconds."""
    from torch import _inductor as inductor

    configs = {"aot_inductor.metadata": dict(texts)}
    inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=configs)


def default_process_group() -> Any:
    """Returns the process group of all processes; an error where ``torch.distributed`` is not initialized."""
    return torch.distributed.distributed_c10d._get_default_group()


def nccl_communicator(group: Any, device: torch.device) -> int:
    """Returns the address of NCCL's communicator of a process group, which all of its ranks must read together."""
    backend = group._get_backend(torch.device("cuda"))
    if not backend._comm_ptr():  # PyTorch makes it for the first exchange
        torch.distributed.barrier(group, device_ids=[device.index])
    return int(backend._comm_ptr())


def default_store() -> Any:
    """Returns the store of the default process group."""
    return torch.distributed.distributed_c10d._get_default_store()


def named_process_group(name: str) -> Any:
    """Returns the process group of a name, as functional collectives find it; an error where there is none."""
    groups: Any = torch.distributed.distributed_c10d
    return groups._resolve_process_group(name)


def register_work(tensor: torch.Tensor, work: torch.distributed.Work) -> None:
    """Lets ``_c10d_functional.wait_tensor`` wait for an exchange before a tensor is read."""
    torch._C._distributed_c10d._register_work(tensor, work)


class SharedBuffer:
    """Memory of this process's GPU, and of the other GPUs of its group, that all of them can read and write.

    All processes of the group make the same buffers in the same order.

    Args:
        size: The number of bytes.
        device: The GPU.
        group: The process group.

    Attributes:
        own: The memory of this process's GPU: bytes.
    """

    def __init__(self, size: int, device: torch.device, group: Any) -> None:
        from torch.distributed import _symmetric_memory

        self.own = _symmetric_memory.empty(size, dtype=torch.uint8, device=device)
        self._handle: Any = _symmetric_memory.rendezvous(self.own, group.group_name)
        timeout = group._get_backend(device).options._timeout
        self._milliseconds = int(timeout.total_seconds() * 1000)

    def of_neighbour(self, distance: int) -> torch.Tensor:
        """Returns the memory of the process so many places behind this one in the group."""
        rank = (self._handle.rank + distance) % self._handle.world_size
        sizes: tuple[int, ...] = tuple(self.own.shape)
        return self._handle.get_buffer(rank, sizes, torch.uint8)  # type: ignore[no-any-return]

    def wait_for_all(self, channel: int) -> None:
        """Lets the current stream wait until the streams of all processes are here.

        The GPU stops the process after the timeout of the process group.
        """
        self._handle.barrier(channel, self._milliseconds)


def has_shared_buffers(group: Any, device: torch.device) -> bool:
    """Returns whether the GPUs of a process group can read each other's memory; all its processes ask together."""
    try:
        SharedBuffer(1024, device, group)
        has_it = 1
    except (RuntimeError, AttributeError, ImportError):
        has_it = 0
    flag = torch.tensor(has_it, device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN, group)
    return bool(flag)
