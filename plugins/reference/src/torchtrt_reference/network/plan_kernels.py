"""Plugins whose compiled kernels a plan keeps: what a build asks of them, and how an engine runs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchtrt_reference.network import plugins
from torchtrt_reference.network.cuda_kernels import CudaKernel
from torchtrt_reference.network.plugins import (
    asked,
    description,
    dynamic,
    empty_outputs,
    expressions,
)
from torchtrt_reference.semantics.plugins import Kernel, LaunchRecord, PluginRecord, Size
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

_SIZES = (
    *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
    "shared_mem",
)


def configure(
    trt: Any,
    plugin: Any,
    record: PluginRecord,
    inputs: Sequence[TensorFacts],
    outputs: Sequence[TensorFacts],
) -> None:
    """Checks, as a build does, that a plugin takes linear tensors of these types, and takes its kernel if it has one.

    Raises:
        RefusedError: It does not, or its launch is incomplete.
    """
    build = plugin.get_capability_interface(trt.PluginCapabilityType.__members__["BUILD"])
    if isinstance(build, trt.IPluginV3QuickAOTBuild):
        record.launch = _launch_of(trt, build, record.name, inputs, outputs)
    else:
        plugins.configure(trt, plugin, inputs, outputs)


def _launch_of(
    trt: Any, build: Any, name: str, inputs: Sequence[TensorFacts], outputs: Sequence[TensorFacts]
) -> LaunchRecord:
    """Returns the kernel and the launch of a plugin, given its capability of building."""
    read = [dynamic(trt, fact) for fact in inputs]
    written = [dynamic(trt, fact) for fact in outputs]
    wanted = [(tensor.desc.type, tensor.desc.format) for tensor in (*read, *written)]
    offered = asked(build, "get_supported_format_combinations", [*read, *written], len(read))
    pairs = [(tensor.type, tensor.format) for tensor in offered]
    groups = [pairs[start : start + len(wanted)] for start in range(0, len(pairs), len(wanted))]
    if wanted not in groups:
        message = (
            f"could not find any supported formats consistent with the types of inputs and outputs: the plugin "
            f"{name} does not take linear tensors of these types"
        )
        raise RefusedError(message)
    asked(build, "configure_plugin", read, written)
    asked(build, "set_tactic", 0)
    parameters, scalars = trt.KernelLaunchParams._made(), trt.ISymExprs._made()
    asked(
        build,
        "get_launch_params",
        [expressions(trt, index, fact) for index, fact in enumerate(inputs)],
        [*read, *written],
        len(read),
        parameters,
        scalars,
        trt.IExprBuilder(),
    )
    descriptions = [description(trt, fact) for fact in (*inputs, *outputs)]
    kernel, code = asked(build, "get_kernel", descriptions[: len(read)], descriptions[len(read) :])
    sizes = tuple((size, _size(name, size, getattr(parameters, size, None))) for size in _SIZES)
    text = code.decode("utf-8", "replace") if isinstance(code, bytes) else ""
    if re.search(rf"\.entry\s+{re.escape(kernel)}\b", text) is None:
        message = f"the PTX of the plugin {name} has no entry {kernel}"
        raise RefusedError(message)
    return LaunchRecord(
        kernel, text, sizes, tuple(_size(name, "a scalar", scalar) for scalar in scalars)
    )


def _size(plugin: str, what: str, argument: Any) -> Size:
    """Returns an argument of a kernel as an expression.

    Raises:
        RefusedError: It is not set.
    """
    expression = getattr(argument, "expr", None)
    if expression is None:
        message = f"get_launch_params of the plugin {plugin} sets {what} to nothing"
        raise RefusedError(message)
    size: Size = expression._size
    return size


class PlanKernel:
    """A compiled kernel in a plan.

    Args:
        record: What the plan has of it.
        device: Where the engine runs.
        host: What runs in its place where there is no GPU; None if the registry has no plugin for this.

    Raises:
        RefusedError: CUDA does not take the code.
    """

    def __init__(self, record: PluginRecord, device: torch.device, host: Kernel | None) -> None:
        assert record.launch is not None
        self._name = record.name
        self._launch = launch = record.launch
        self._device = device
        self._host = host
        is_gpu = device.type == "cuda"
        self._kernel = CudaKernel(launch.name, launch.code, device) if is_gpu else None

    def bind(
        self, inputs: Sequence[TensorFacts], outputs: Sequence[TensorFacts]
    ) -> Callable[..., Any]:
        """Returns the function that computes what the kernel does for these shapes."""
        launch, shapes = self._launch, [fact.shape for fact in inputs]
        host = None if self._host is None else self._host.bind(inputs, outputs)

        def run(*tensors: torch.Tensor) -> Any:
            """Launches the kernel on a GPU; elsewhere checks the launch, and runs what stands in for it.

            Raises:
                RefusedError: CUDA launches no such kernel, or nothing stands in for it on this device.
            """
            numbers, scalars = launch.at(shapes)
            if self._kernel is not None:
                read = [tensor.contiguous() for tensor in tensors]
                results = empty_outputs(outputs, self._device)
                addresses = [tensor.data_ptr() for tensor in (*read, *results)]
                self._kernel.launch(numbers, addresses, scalars, len(read))
                return results if len(results) > 1 else results[0]
            if host is None:
                message = (
                    f"the kernel {launch.name} of the plugin {self._name} runs on GPUs, and the reference has "
                    f"tensors on {self._device}: load the pack of the op, which stands in for it"
                )
                raise RefusedError(message)
            return host(*tensors)

        return run
