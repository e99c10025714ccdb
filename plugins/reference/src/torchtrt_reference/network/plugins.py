"""TensorRT's protocol for plugins: what a network, a build and a runtime call of one, in the order of TensorRT."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from torchtrt_reference import dtypes
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.elements import Layer
from torchtrt_reference.semantics.plugins import PluginRecord, Size, combine
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts


class DimensionExpression(Implementation):
    """A dimension of a plugin's input or output, or an expression of such."""

    _implements = ("IDimensionExpr",)

    def _initialize(self, size: Size, value: int | None) -> None:
        self._size = size
        self._value = value

    def is_constant(self) -> bool:
        """Returns whether the value is known at build time."""
        return self._value is not None

    def get_constant_value(self) -> int:
        """Returns the value of a constant; the lowest 64-bit integer otherwise."""
        return -(2**63) if self._value is None else self._value

    def is_size_tensor(self) -> bool:
        """Returns whether the data decides the value; the reference has no such expressions."""
        return False


class ExpressionBuilder(Implementation):
    """Makes the expressions of a plugin's output shapes."""

    _implements = ("IExprBuilder",)

    def constant(self, value: int) -> Any:
        """Returns an expression for a number."""
        return self._trt.IDimensionExpr._made(value, value)

    def operation(self, operation: Any, left: Any, right: Any) -> Any:
        """Returns an expression for an operation on two others."""
        value = combine(operation.name, left._value, right._value)
        size = (operation.name, left._size, right._size) if value is None else value
        return self._trt.IDimensionExpr._made(size, value)

    def declare_size_tensor(self, output: int, optimum: Any, upper: Any) -> Any:
        """Refuses outputs whose size depends on the data."""
        message = f"The reference has no plugins whose output {output} has a size that depends on the data."
        raise NotImplementedError(message)


class PluginV3Layer(Layer):
    """A layer whose kernel is a plugin."""

    _implements = ("IPluginV3Layer",)
    _plugin: Any

    @property
    def plugin(self) -> Any:
        """The plugin."""
        return self._plugin


def record_of(trt: Any, plugin: Any, inputs: Sequence[TensorFacts]) -> PluginRecord:
    """Returns what a network keeps of a plugin, of either kind, that is added to it.

    Args:
        trt: The namespace of the version.
        plugin: The user's plugin.
        inputs: The facts of the layer's inputs.

    Raises:
        RefusedError: The plugin raised an exception, or answered with the wrong number of outputs.
    """
    core, build = (
        asked(plugin, "get_capability_interface", trt.PluginCapabilityType.__members__[kind])
        for kind in ("CORE", "BUILD")
    )
    is_compiled = isinstance(build, trt.IPluginV3QuickAOTBuild)
    ranks = [[len(fact.shape) for fact in inputs]] if is_compiled else []
    count = asked(build, "get_num_outputs") if is_compiled else build.num_outputs
    types = asked(build, "get_output_data_types", [_type(trt, fact) for fact in inputs], *ranks)
    shapes = asked(
        build,
        "get_output_shapes",
        [expressions(trt, index, fact) for index, fact in enumerate(inputs)],
        [],
        trt.IExprBuilder(),
    )
    if not count == len(types) == len(shapes) > 0:
        numbers = f"{count} outputs, {len(types)} types and {len(shapes)} shapes of them"
        message = f"the plugin {core.plugin_name} has {numbers}"
        raise RefusedError(message)
    host = getattr(plugin, "host_plugin", None) if is_compiled else None
    return PluginRecord(
        core.plugin_name,
        core.plugin_version,
        core.plugin_namespace,
        () if is_compiled else tuple(_fields(trt, plugin)),
        tuple(fact.dtype for fact in inputs),
        tuple(type_.name for type_ in types),
        tuple(tuple(size._size for size in shape) for shape in shapes),
        host=None if host is None else record_of(trt, host, inputs),
    )


def asked(plugin: Any, method: str, *arguments: Any) -> Any:
    """Returns what a method of a plugin returns.

    Raises:
        RefusedError: It raised an exception.
    """
    try:
        return getattr(plugin, method)(*arguments)
    except RefusedError:
        raise
    except Exception as error:
        name = getattr(plugin, "plugin_name", type(plugin).__name__)
        message = f"{method} of the plugin {name} raised {type(error).__name__}: {error}"
        raise RefusedError(message) from error


def _fields(trt: Any, plugin: Any) -> Iterator[tuple[str, str, str]]:
    kind = trt.PluginCapabilityType.__members__["RUNTIME"]
    runtime = asked(plugin, "get_capability_interface", kind)
    for field in asked(runtime, "get_fields_to_serialize"):
        data = np.ascontiguousarray(field.data).tobytes()
        yield field.name, field.type.name, base64.b64encode(data).decode()


def _type(trt: Any, fact: TensorFacts) -> Any:
    return trt.DataType.__members__[fact.dtype]


def expressions(trt: Any, index: int, fact: TensorFacts) -> Any:
    """Returns the dimensions of an input as expressions."""
    return trt.DimsExprs(
        [
            trt.IDimensionExpr._made(
                ("dim", index, axis) if size < 0 else size, None if size < 0 else size
            )
            for axis, size in enumerate(fact.shape)
        ]
    )


def description(trt: Any, fact: TensorFacts) -> Any:
    """Returns the descriptor of a tensor in the linear format."""
    made = trt.PluginTensorDesc()
    made.dims, made.type = trt.Dims(fact.shape), _type(trt, fact)
    made.format, made.scale = trt.TensorFormat.__members__["LINEAR"], -1.0
    return made


def dynamic(trt: Any, fact: TensorFacts) -> Any:
    """Returns the descriptor of a tensor in the linear format, with its range of shapes."""
    made = trt.DynamicPluginTensorDesc()
    made.desc = description(trt, fact)
    made.min = made.opt = made.max = trt.Dims(fact.shape)
    return made


def configure(
    trt: Any, plugin: Any, inputs: Sequence[TensorFacts], outputs: Sequence[TensorFacts]
) -> None:
    """Checks, as a build does, that a plugin takes linear tensors of these types, and configures it.

    Raises:
        RefusedError: It does not.
    """
    build = plugin.get_capability_interface(trt.PluginCapabilityType.__members__["BUILD"])
    input_descriptions = [dynamic(trt, fact) for fact in inputs]
    output_descriptions = [dynamic(trt, fact) for fact in outputs]
    everything = [*input_descriptions, *output_descriptions]
    for position in range(len(everything)):
        if not asked(
            build, "supports_format_combination", position, everything, len(input_descriptions)
        ):
            spelled = dtypes.SPELLING[everything[position].desc.type.name]
            message = (
                f"could not find any supported formats consistent with the types of inputs and outputs: the plugin "
                f"refuses {spelled} in the linear format at position {position}"
            )
            raise RefusedError(message)
    asked(build, "configure_plugin", input_descriptions, output_descriptions)


class PluginKernel:
    """A plugin that a runtime created from a plan.

    Args:
        trt: The namespace of the version.
        record: What the plan has of it.
        device: Where the engine runs.

    Raises:
        RefusedError: The registry has no creator for it, or the creator creates nothing.
    """

    def __init__(self, trt: Any, record: PluginRecord, device: torch.device) -> None:
        self._trt = trt
        self._name = record.name
        self._device = device
        creator = trt.get_plugin_registry().get_creator(
            record.name, record.version, record.namespace
        )
        if creator is None:
            message = (
                f"Cannot find plugin: {record.name}, version: {record.version}, namespace: {record.namespace}. "
                "Register its creator before the plan is loaded."
            )
            raise RefusedError(message)
        fields = trt.PluginFieldCollection(
            trt.PluginField(name, _array(data), trt.PluginFieldType.__members__[kind])
            for name, kind, data in record.fields
        )
        phase = trt.TensorRTPhase.__members__["RUNTIME"]
        self._plugin = asked(creator, "create_plugin", record.name, fields, phase)
        if self._plugin is None:
            message = f"the creator of the plugin {record.name} created none"
            raise RefusedError(message)

    def bind(
        self, inputs: Sequence[TensorFacts], outputs: Sequence[TensorFacts]
    ) -> Callable[..., Any]:
        """Returns the function that runs the plugin for these shapes, as a plugin of its own."""
        trt, device = self._trt, self._device
        runtime = self._plugin.get_capability_interface(
            trt.PluginCapabilityType.__members__["RUNTIME"]
        )
        attached = asked(runtime, "attach_to_context", None)
        attached.torch_device = device
        input_descriptions = [description(trt, fact) for fact in inputs]
        output_descriptions = [description(trt, fact) for fact in outputs]
        asked(attached, "on_shape_change", input_descriptions, output_descriptions)

        def run(*tensors: torch.Tensor) -> Any:
            """Lets the plugin write into new tensors."""
            read = [tensor.contiguous() for tensor in tensors]
            results = empty_outputs(outputs, device)
            stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
            addresses = [[tensor.data_ptr() for tensor in several] for several in (read, results)]
            asked(
                attached, "enqueue", input_descriptions, output_descriptions, *addresses, 0, stream
            )
            return results if len(results) > 1 else results[0]

        return run


def empty_outputs(outputs: Sequence[TensorFacts], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Returns new tensors for outputs."""
    return tuple(
        torch.empty(fact.shape, dtype=dtypes.TORCH[fact.dtype], device=device) for fact in outputs
    )


def _array(data: str) -> Any:
    return np.frombuffer(base64.b64decode(data), dtype=np.int8)
