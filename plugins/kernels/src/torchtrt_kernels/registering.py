"""Registers an op's own kernel in a pack: the plugin that runs it, and the converter that adds it to a network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Node

from torchtrt.contract import Converter, Validator
from torchtrt.conversion import ConversionContext
from torchtrt.errors import ConversionError, PackError
from torchtrt.expressions.data import InexpressibleError
from torchtrt.packs import ConverterPack, ConverterPriority
from torchtrt.packs.registrations import checks_of
from torchtrt.targets import Target, parse_target
from torchtrt.tensorrt import Capability
from torchtrt_kernels.calls import describe_call, tensor_nodes
from torchtrt_kernels.compiled_kernels import CompiledKernel, PluginCheck, describe_kernel
from torchtrt_kernels.operators import PluginOp, check_op
from torchtrt_kernels.plan_plugins import make_plan_plugin
from torchtrt_kernels.tensorrt_plugins import make_plugin
from torchtrt_kernels.torch_internals import op_of, pytree


def register_kernel(
    pack: ConverterPack,
    op: Target | str,
    *,
    version: str = "1",
    aot: Callable[..., CompiledKernel] | None = None,
    enabled: bool = True,
    capability_validator: Validator | None = None,
    reject_if: Validator | Sequence[Validator] = (),
    priority: ConverterPriority = ConverterPriority.STANDARD,
    tensorrt: str = "",
) -> None:
    """Makes a layer of engines from an op: registers a plugin that runs the op's kernel, and its converter.

    The kernel is the op's implementation for CUDA tensors, which may launch a Triton kernel. The sizes and dtypes
    of its results come from the op's fake implementation. ``ConverterPack.plugin`` calls this function.

    With ``aot``, plans have a compiled kernel instead, and run it without Python and without the pack.

    Args:
        pack: The pack.
        op: The op: what ``torch.library.custom_op`` returned, an ``OpOverload``, or a name. It has a fake
            implementation, and writes to no argument. Its results are tensors with memory of their own.
        version: The plugin's version. An engine runs only by the version that it was built with: change it where
            the op's arguments or results change.
        aot: Takes the op's arguments, with tensors that have sizes and no values: dynamic sizes are symbols. Returns
            the ``CompiledKernel`` of this call. If it raises an exception, PyTorch runs the op. It needs TensorRT
            10.9.
        enabled: With ``False`` the op is not registered.
        capability_validator: Which calls of the op run as a plugin.
        reject_if: Checks that return a reason to reject a call. Both have the form that ``converter`` takes.
        priority: ``HIGH`` puts the plugin before every ``STANDARD`` converter of the op.
        tensorrt: The TensorRT versions that it works with, beside the pack's own range.

    Raises:
        PackError: The op cannot run as a plugin, the pack is already loaded, or an argument is of the wrong kind.
        UnknownTargetError: There is no such op.
    """
    if not enabled:
        return
    if not isinstance(version, str) or not version:
        message = (
            f"Pack {pack.name!r}: the version of a plugin is a text such as '1', not {version!r}."
        )
        raise PackError(message)
    if aot is not None:
        _check_function(aot, pack.name)
    plugin = PluginOp(check_op(parse_target(op_of(op)), pack.name), pack.name, version, aot)
    if any(other.key == plugin.key and other.op is plugin.op for other in pack.plugins):
        message = f"Pack {pack.name!r} registers the plugin {plugin.op} version {version} twice."
        raise PackError(message)
    checks = checks_of(reject_if, pack.name)
    # What a subclass checks are TensorRT's layers.
    register = ConverterPack.converter(
        pack,
        plugin.op,
        capability_validator=capability_validator,
        reject_if=(*checks, PluginCheck(plugin)),
        priority=priority,
        supports_dynamic_shapes=True,
        tensorrt=tensorrt,
        requires=Capability.PLUGINS_V3 if aot is None else Capability.AOT_PLUGINS,
    )
    register(_converter(plugin, _calling_module()))
    pack.plugins += (plugin,)


def _check_function(aot: Any, pack: str) -> None:
    """Checks that ``aot`` can be called.

    Raises:
        PackError: It cannot.
    """
    if not callable(aot):
        message = f"Pack {pack!r}: aot is a function that returns a CompiledKernel, not {aot!r}."
        raise PackError(message)


def _calling_module() -> str:
    """Returns the module of a pack that registers a kernel: listings show it as the converter's."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == ConverterPack.__module__ and frame.f_back:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _converter(plugin: PluginOp, module: str) -> Converter:
    """Returns the converter of a plugin, named after the module that registers it."""

    def convert(ctx: ConversionContext, target: Any, args: Any, kwargs: Any, name: str) -> Any:
        """Adds the op's own kernel as a layer."""
        return add_layer(ctx, plugin, args, kwargs)

    convert.__module__ = module
    convert.__name__ = convert.__qualname__ = f"plugin[{plugin.key.name}]"
    return convert


def add_layer(ctx: ConversionContext, plugin: PluginOp, args: Any, kwargs: Any) -> Any:
    """Returns the results of a layer that runs an op's own kernel: a network tensor, or a tuple of several.

    Args:
        ctx: The context of the conversion.
        plugin: The op. The node in conversion calls it.
        args: The node's arguments, with network tensors and weights in the place of nodes.
        kwargs: Its keyword arguments, likewise.

    Raises:
        ConversionError: The call cannot run as a plugin, or TensorRT refused the layer.
    """
    node = ctx.node
    if node is None:
        message = f"{plugin.op.name()} is added to a network only for a node of a graph."
        raise ConversionError(message)
    try:
        call = describe_call(plugin, node)
        launch = describe_kernel(plugin, node) if plugin.aot else None
    except InexpressibleError as error:
        message = f"{plugin.op.name()} cannot run as a plugin here: {error}."
        raise ConversionError(message) from error
    leaves = (pytree.tree_leaves(values) for values in ((node.args, node.kwargs), (args, kwargs)))
    values = dict(pair for pair in zip(*leaves, strict=True) if isinstance(pair[0], Node))
    inputs = [ctx.tensor(values[read]) for read in tensor_nodes(node)]
    made = make_plugin(plugin, call) if launch is None else make_plan_plugin(plugin, call, launch)
    layer = ctx.net.add_plugin_v3(inputs, [], made)
    ctx.plugins.add(replace(plugin.key, kernel=launch.name if launch else ""))
    results = tuple(layer.get_output(index) for index in range(layer.num_outputs))
    return results if len(plugin.op._schema.returns) > 1 else results[0]
