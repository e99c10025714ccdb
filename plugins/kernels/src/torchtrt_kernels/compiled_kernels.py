"""Kernels that a plan keeps: compiled code, and the launch as expressions of the sizes of the inputs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.contract import Reject
from torchtrt.expressions.data import InexpressibleError, Size
from torchtrt.packs.state import current_packs
from torchtrt_kernels.calls import ARGUMENTS, DTYPES, PluginCall, describe_call, tensor_nodes
from torchtrt_kernels.dimensions import to_size
from torchtrt_kernels.operators import PluginOp
from torchtrt_kernels.ptx import Parameters, fitted
from torchtrt_kernels.torch_internals import SymbolicCall

_THREADS, _BLOCKS, _SHARED_MEMORY = (1024, 1024, 64), (2**31 - 1, 65535, 65535), 227 << 10
"""The limits of a launch on every GPU that TensorRT runs on: in a block, in a grid, and bytes."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A compiled kernel of an op, and how TensorRT launches it for one call.

    TensorRT gives the kernel the addresses of the op's tensors in the order of its arguments, then the scalars, then
    the addresses of the results. All tensors are contiguous.

    Attributes:
        name: The name of the kernel in the code.
        code: PTX, as text or bytes.
        grid: The number of blocks in one to three dimensions. Each is a number, or an expression of the sizes of the
            tensors, such as ``((x.numel() + 255) // 256,)``.
        block: The number of threads of a block in one to three dimensions, likewise.
        scalars: The 32-bit integers that the kernel takes, likewise.
        shared_memory: The bytes of dynamic shared memory of a block, likewise.
    """

    name: str
    code: str | bytes
    grid: Sequence[int | torch.SymInt]
    block: Sequence[int | torch.SymInt]
    scalars: Sequence[int | torch.SymInt] = ()
    shared_memory: int | torch.SymInt = 0

    @classmethod
    def of_triton(
        cls,
        compiled: Any,
        grid: Sequence[int | torch.SymInt],
        scalars: Sequence[int | torch.SymInt] = (),
    ) -> CompiledKernel:
        """Returns a kernel that Triton compiled; its block and its shared memory are Triton's.

        Args:
            compiled: What ``triton.compile`` returned for an NVIDIA GPU.
            grid: The number of programs in one to three dimensions.
            scalars: The 32-bit integers that the kernel takes between its inputs and its outputs.

        Raises:
            ValueError: The kernel was compiled for clusters of blocks or for a cooperative launch, which TensorRT
                does not do.
        """
        made = compiled.metadata
        for option, usual in (("num_ctas", 1), ("launch_cooperative_grid", False)):
            if getattr(made, option, usual) != usual:
                message = (
                    f"TensorRT launches no kernel of Triton with {option}={getattr(made, option)}"
                )
                raise ValueError(message)
        block = (made.num_warps * made.target.warp_size,)
        return cls(made.name, compiled.asm["ptx"], grid, block, scalars, made.shared)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel as a plan keeps it: its PTX, and its launch as data."""

    name: str
    code: bytes
    grid: tuple[Size, ...]
    block: tuple[Size, ...]
    scalars: tuple[Size, ...]
    shared_memory: Size


def describe_kernel(plugin: PluginOp, node: Node) -> KernelLaunch:
    """Returns the compiled kernel of a node's call of an op.

    The function that compiles it runs once for the same arguments, dtypes, and fixed sizes.

    Raises:
        InexpressibleError: There is none; the text is the reason.
    """
    call = describe_call(plugin, node)
    values: list[Any] = [tensor.meta["val"] for tensor in tensor_nodes(node)]
    shapes = tuple(
        tuple(size if isinstance(size, int) else None for size in value.shape) for value in values
    )
    arguments = call.to_fields()[ARGUMENTS]
    return _compile(plugin, arguments, call.inputs, shapes, len(call.outputs))


def kernel_digest(node: Node) -> str:
    """Returns a text that changes with the compiled kernel that a plan keeps of a node; ``""`` if there is none."""
    kernels = []
    for loaded in current_packs().loaded:
        for plugin in loaded.pack.plugins:
            if plugin.aot and plugin.op is node.target:
                with contextlib.suppress(InexpressibleError):
                    kernels.append(repr(describe_kernel(plugin, node)))
    return hashlib.sha256("".join(kernels).encode()).hexdigest() if kernels else ""


@functools.lru_cache(maxsize=256)
def _compile(
    plugin: PluginOp,
    arguments: bytes,
    dtypes: tuple[str, ...],
    shapes: tuple[tuple[int | None, ...], ...],
    outputs: int,
) -> KernelLaunch:
    """Returns what the pack's function compiles for a call, with a symbol for each dynamic size."""
    symbolic = SymbolicCall(may_be_one=True)
    tensors = [
        symbolic.tensor(
            index,
            [2 if size is None else size for size in shape],
            [size is None for size in shape],
            torch.empty(0, dtype=getattr(torch, dtype)),
        )
        for index, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))
    ]
    args, kwargs = PluginCall.with_arguments(arguments, dtypes).bind(tensors)
    assert plugin.aot is not None
    try:
        kernel = plugin.aot(*args, **kwargs)
    except Exception as error:
        message = f"its function aot raised {type(error).__name__}: {error}"
        raise InexpressibleError(message) from error
    if assumed := symbolic.assumptions():
        message = (
            f"its function aot decides by the dynamic sizes of its inputs ({', '.join(assumed)}), and a plan has one "
            "kernel for all of them"
        )
        raise InexpressibleError(message)
    if not isinstance(kernel, CompiledKernel):
        message = f"its function aot returned {type(kernel).__name__}, and no CompiledKernel"
        raise InexpressibleError(message)
    launch = _Launch(symbolic)
    grid, block = launch.sizes("grid", kernel.grid, _BLOCKS), launch.block(kernel.block)
    scalars = launch.scalars(kernel.scalars)
    parameters = Parameters(len(dtypes), len(scalars), outputs)
    code = fitted(kernel.name, kernel.code, parameters, block)
    shared = launch.size("shared memory", kernel.shared_memory, 0, _SHARED_MEMORY)
    return KernelLaunch(kernel.name, code, grid, block, scalars, shared)


class _Launch:
    """Turns the numbers and the expressions of a launch into data, and checks the numbers.

    Args:
        symbolic: The call whose symbols the expressions have.
    """

    def __init__(self, symbolic: SymbolicCall) -> None:
        self._symbolic = symbolic

    def sizes(self, what: str, values: Any, limits: Sequence[int]) -> tuple[Size, ...]:
        """Returns the sizes of all dimensions: 1 for those that are missing."""
        if not isinstance(values, (tuple, list)) or not 0 < len(values) <= len(limits):
            message = (
                f"the {what} of its kernel has one to {len(limits)} dimensions, and is {values!r}"
            )
            raise InexpressibleError(message)
        made = (*values, *(1 for _ in limits[len(values) :]))
        return tuple(
            self.size(what, value, 1, limit) for value, limit in zip(made, limits, strict=True)
        )

    def block(self, values: Any) -> tuple[Size, ...]:
        """Returns the threads of a block."""
        block = self.sizes("block", values, _THREADS)
        fixed = [threads for threads in block if isinstance(threads, int)]
        self.size("block", math.prod(fixed), 1, _THREADS[0])
        return block

    def scalars(self, values: Any) -> tuple[Size, ...]:
        """Returns the scalars."""
        if not isinstance(values, (tuple, list)):
            message = f"the scalars of its kernel are several, and not {values!r}"
            raise InexpressibleError(message)
        return tuple(self.size("scalars", value, -(2**31), 2**31 - 1) for value in values)

    def size(self, what: str, value: Any, low: int, high: int) -> Size:
        """Returns a number that is within limits, or an expression.

        Raises:
            InexpressibleError: It is neither.
        """
        if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
            message = f"the {what} of its kernel has {value!r}, which is no integer"
            raise InexpressibleError(message)
        try:
            made = to_size(self._symbolic.expression(value), self._symbolic.place_of)
        except InexpressibleError as error:
            message = f"a plan cannot compute the {what} {value} of its kernel: {error}"
            raise InexpressibleError(message) from error
        if isinstance(made, int) and not low <= made <= high:
            message = f"the {what} of its kernel has {made}, and can have {low} to {high}"
            raise InexpressibleError(message)
        return made


class PluginCheck:
    """A validator: why an engine cannot run a call of an op by the op's own kernel.

    Args:
        plugin: The op.
    """

    __name__ = "runs_as_plugin"

    def __init__(self, plugin: PluginOp) -> None:
        self.plugin = plugin
        self.dtypes = DTYPES

    def __call__(self, node: Node) -> Reject | None:
        """Returns the reason, and what to do about it; ``None`` if it can."""
        try:
            describe_call(self.plugin, node)
            if self.plugin.aot:
                describe_kernel(self.plugin, node)
        except InexpressibleError as error:
            return Reject(str(error))
        device = tensor_nodes(node)[0].meta["val"].device.type
        if self.plugin.aot and device == "cuda":
            return None
        return self.plugin.objection_to(device) if device in ("cpu", "cuda") else None
