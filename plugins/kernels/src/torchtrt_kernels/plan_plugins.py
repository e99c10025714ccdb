"""TensorRT's plugins whose compiled kernels a plan keeps: an engine launches them without Python.

They have the interfaces of NVIDIA's module ``tensorrt.plugin`` for plugins that are compiled ahead of time, which ask
for the code and the launch while TensorRT builds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from torchtrt.capability import Capability
from torchtrt.tensorrt.probes import supports
from torchtrt.tensorrt.selection import current
from torchtrt_kernels.calls import PluginCall
from torchtrt_kernels.compiled_kernels import KernelLaunch
from torchtrt_kernels.dimensions import build
from torchtrt_kernels.operators import PluginOp
from torchtrt_kernels.tensorrt_plugins import (
    TensorRTDimensions,
    data_types,
    make_plugin,
    output_shapes,
)

_AXES = ("x", "y", "z")


def make_plan_plugin(plugin: PluginOp, call: PluginCall, launch: KernelLaunch) -> Any:
    """Returns TensorRT's plugin for one call of an op whose compiled kernel the plan keeps.

    Args:
        plugin: The op.
        call: Its arguments, dtypes and sizes.
        launch: The kernel.
    """
    made = _plugin_class(current())(plugin, call, launch)
    if supports(
        Capability.TORCH_DEVICES
    ):  # where there is no GPU, the op's own implementation stands in
        made.host_plugin = make_plugin(plugin, call)
    return made


class _PlanPlugin:
    """One call of an op, with the attributes and methods that TensorRT reads and calls while it builds.

    A subclass adds TensorRT's interfaces.

    Attributes:
        trt: TensorRT's module.
        interfaces: TensorRT's interfaces of plugins.
        host_plugin: What the reference TensorRT runs in its place where there is no GPU; ``None`` for others.
    """

    trt: Any
    interfaces: tuple[Any, ...]
    host_plugin: Any = None

    # TensorRT may call from threads in which the program selected no TensorRT: all comes from ``trt``.
    def __init__(self, plugin: PluginOp, call: PluginCall, launch: KernelLaunch) -> None:
        for interface in self.interfaces:
            interface.__init__(self)
        self.plugin = plugin
        self.call = call
        self.launch = launch
        key = plugin.key
        self.plugin_namespace, self.plugin_version = key.pack, key.version
        self.plugin_name = re.sub(r"\W+", "_", key.name)
        self.dtypes = data_types(self.trt, call)

    def get_capability_interface(self, type: Any) -> Any:  # noqa: ARG002
        return self

    def clone(self) -> Any:
        copied = type(self)(self.plugin, self.call, self.launch)
        copied.host_plugin = self.host_plugin
        return copied

    def get_num_outputs(self) -> int:
        return len(self.call.outputs)

    def get_output_data_types(self, input_types: Any, ranks: Any) -> list[Any]:  # noqa: ARG002
        return self.dtypes[len(self.call.inputs) :]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> list[Any]:  # noqa: ARG002
        return output_shapes(self.trt, self.call, inputs, builder)

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> list[Any]:  # noqa: ARG002
        described = []
        for dtype in self.dtypes:
            tensor = self.trt.PluginTensorDesc()
            tensor.type, tensor.format = dtype, self.trt.TensorFormat.LINEAR
            described.append(tensor)
        return described

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        """Needs nothing: the launch is of any sizes."""

    def get_valid_tactics(self) -> list[int]:
        return []

    def set_tactic(self, tactic: int) -> None:
        """Has one tactic."""

    def get_timing_cache_id(self) -> str:
        return ""

    def get_launch_params(self, *arguments: Any) -> None:
        """Writes the launch; the arguments are sizes, descriptors, their number, what is written, and a builder."""
        inputs, _, _, parameters, scalars, builder = arguments
        dimensions = TensorRTDimensions(self.trt, inputs, builder)

        def expression(size: Any) -> Any:
            """Returns a size as TensorRT's argument of a kernel."""
            made = self.trt.ISymExpr()
            made.type = self.trt.PluginArgType.INT
            made.dtype = self.trt.PluginArgDataType.INT32
            made.expr = build(size, dimensions)
            return made

        for what, sizes in (("grid", self.launch.grid), ("block", self.launch.block)):
            for axis, size in zip(_AXES, sizes, strict=True):
                setattr(parameters, f"{what}_{axis}", expression(size))
        parameters.shared_mem = expression(self.launch.shared_memory)
        scalars.nbSymExprs = len(self.launch.scalars)
        for index, size in enumerate(self.launch.scalars):
            scalars[index] = expression(size)

    def get_kernel(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[str, bytes]:  # noqa: ARG002
        return self.launch.name, self.launch.code


@functools.lru_cache(maxsize=8)
def _plugin_class(trt: Any) -> Any:
    """Returns the class of these plugins for a module of TensorRT."""
    interfaces = trt.IPluginV3, trt.IPluginV3QuickCore, trt.IPluginV3QuickAOTBuild
    members = {"trt": trt, "interfaces": interfaces}
    return type("PlanPlugin", (_PlanPlugin, *interfaces), members)
