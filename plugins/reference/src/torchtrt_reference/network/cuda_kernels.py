"""Compiled kernels on a GPU: CUDA's driver loads and launches them, as it does for TensorRT's runtime."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchtrt_reference.semantics.tensor_facts import RefusedError

_FREE_SHARED_MEMORY = 48 << 10
_MAXIMUM_DYNAMIC_SHARED_MEMORY = 8
"""CUDA's attribute of a function: it needs to be set where a block takes more than 48 KiB."""


class CudaKernel:
    """A kernel in the memory of a GPU.

    Args:
        name: The name of the kernel.
        code: PTX.
        device: The GPU.

    Raises:
        RefusedError: The driver does not take the code, or it has no such kernel.
    """

    def __init__(self, name: str, code: str, device: torch.device) -> None:
        self._name = name
        self._device = device
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # makes the context
            self._ask("cuModuleLoadData", ctypes.byref(self._module), code.encode())
            self._ask(
                "cuModuleGetFunction", ctypes.byref(self._function), self._module, name.encode()
            )

    def launch(
        self,
        numbers: Mapping[str, int],
        addresses: Sequence[int],
        scalars: Sequence[int],
        inputs: int,
    ) -> None:
        """Launches the kernel on PyTorch's current stream of the device.

        Args:
            numbers: The grid, the block and the bytes of shared memory, by TensorRT's names.
            addresses: Those of the inputs, and then of the outputs.
            scalars: The integers between them.
            inputs: The number of inputs.

        Raises:
            RefusedError: The driver refuses the launch.
        """
        pointers = [ctypes.c_uint64(address) for address in addresses]
        values = [*pointers[:inputs], *map(ctypes.c_int32, scalars), *pointers[inputs:]]
        arguments = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        shared = numbers["shared_mem"]
        grid = [numbers[f"{what}_{axis}"] for what in ("grid", "block") for axis in "xyz"]
        with torch.cuda.device(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            if shared > _FREE_SHARED_MEMORY:
                self._ask(
                    "cuFuncSetAttribute", self._function, _MAXIMUM_DYNAMIC_SHARED_MEMORY, shared
                )
            self._ask("cuLaunchKernel", self._function, *grid, shared, stream, arguments, None)

    def _ask(self, function: str, *arguments: Any) -> None:
        """Calls a function of the driver.

        Raises:
            RefusedError: It failed.
        """
        status = getattr(_driver(), function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            _driver().cuGetErrorString(status, ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            message = f"{function} of the kernel {self._name}: {reason} ({status})"
            raise RefusedError(message)


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
