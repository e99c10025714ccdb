"""TensorRT's plugins for the ops that packs register, and their creators.

A plugin's namespace in TensorRT is the name of the pack, so that a plan names the pack that it needs.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from torchtrt.capability import Capability
from torchtrt.errors import ConversionError, EngineMismatchError
from torchtrt.packs.info import LOCAL, PackInfo
from torchtrt.packs.state import current_packs, problems
from torchtrt.tensorrt.dtypes import to_torch_dtype, trt_name
from torchtrt.tensorrt.probes import supports
from torchtrt.tensorrt.selection import current
from torchtrt_kernels.calls import FIELDS, PluginCall
from torchtrt_kernels.dimensions import build
from torchtrt_kernels.operators import PluginKey, PluginOp

_registering = threading.Lock()
_failures = threading.local()
"""The exception of the kernel that ran last in a thread, if it raised one."""
_SCHEMA = "schema"
"""The field of a plan that keeps the schema of the op."""
_creators: dict[tuple[Any, PluginKey], Any] = {}
"""The creators that this process registered, by TensorRT's module; TensorRT does not keep them alive."""


def make_plugin(plugin: PluginOp, call: PluginCall) -> Any:
    """Returns TensorRT's plugin for one call of an op, after registering its creator.

    Raises:
        ConversionError: TensorRT runs on GPUs, and the op has no implementation for them.
    """
    module = current()
    objection = None if supports(Capability.TORCH_DEVICES) else plugin.objection_to("cuda")
    if objection is not None:
        message = (
            f"{plugin.op.name()} cannot run in an engine: {objection.reason}. {objection.advice}"
        )
        raise ConversionError(message)
    register(plugin)
    return _classes(module)[0](plugin, call)


def register(plugin: PluginOp) -> None:
    """Registers the creator of a plugin with the TensorRT in use, unless it has one."""
    module, key = current(), plugin.key
    with _registering:
        registered = _creators.get((module, key))
        if registered is not None and registered.plugin.op is plugin.op:
            return
        registry = module.get_plugin_registry()
        if registered is not None:  # the program defined the op again
            registry.deregister_creator(registered)
        creator = _classes(module)[1](plugin)
        _creators[module, key] = creator
        registry.register_creator(creator, key.pack)


def provide(keys: Sequence[PluginKey], what: str) -> None:
    """Registers the plugins that an engine asks for.

    Args:
        keys: Their names.
        what: The engine, for messages.

    Raises:
        EngineMismatchError: A pack is not installed, or has no such plugin; the message names it. Kernels that the
            plan has need no pack.
    """
    if not keys:
        return
    packs = {loaded.info.name: loaded for loaded in current_packs().loaded}
    for key in keys:
        if key.kernel:
            _provide_host(key)
            continue
        loaded_pack = packs.get(key.pack)
        plugins = {plugin.key: plugin for plugin in loaded_pack.pack.plugins} if loaded_pack else {}
        if key not in plugins:
            others = [plugin.version for plugin in plugins if plugin.name == key.name]
            problem = (
                _wrong_version(key, loaded_pack.info, others) if loaded_pack else _missing_pack(key)
            )
            raise EngineMismatchError(
                f"{what} runs the op {key.name} by version {key.version} of its plugin in the pack {key.pack}, "
                f"{problem}"
            )
        if changed := plugins[key].changed_schema(key.schema):
            raise EngineMismatchError(
                f"{what} runs the op {key.name} of the pack {key.pack}: {changed}."
            )
        register(plugins[key])


def _provide_host(key: PluginKey) -> None:
    """Registers the op that stands in for a kernel in a plan where there is no GPU, if its pack is here."""
    if not supports(Capability.TORCH_DEVICES):
        return
    for loaded in current_packs().loaded:
        for plugin in loaded.pack.plugins:
            is_same = replace(key, kernel="") == plugin.key
            if is_same and not plugin.changed_schema(key.schema):
                register(plugin)


def take_kernel_error() -> Exception | None:
    """Returns what the last kernel raised that an engine ran in this thread, once; ``None`` if it raised nothing."""
    error = getattr(_failures, "error", None)
    _failures.error = None
    return error


def provide_all() -> bool:
    """Registers the plugins of all packs, for a plan without a description; returns whether there are any."""
    plugins = [plugin for loaded in current_packs().loaded for plugin in loaded.pack.plugins]
    for plugin in plugins if supports(Capability.PLUGINS_V3) else ():
        register(plugin)
    return bool(plugins)


def _wrong_version(key: PluginKey, info: PackInfo, others: Sequence[str]) -> str:
    """Returns why a pack that is here does not do, and what to do."""
    if key.pack == LOCAL and not others:
        return (
            "which is the program that compiled the model. Register the plugin in this program too, before it loads "
            "the model."
        )
    has = f"version {' and '.join(others)} of it" if others else "no such plugin"
    return (
        f"and {info.label} has {has}. Install the version of the pack that the engine was compiled with, or compile "
        "and save the model again."
    )


def _missing_pack(key: PluginKey) -> str:
    """Returns why a pack is not in use, and what to do: its own problem, if it has one."""
    for problem in problems():
        if problem.pack == key.pack:
            return f"which is not in use here: {problem.what.rstrip('.')}. {problem.hint}".rstrip()
    install = (
        f"Run `pip install {key.distribution}`"
        if key.distribution
        else "Install the distribution of this pack"
    )
    return (
        f"which is not installed here, or was not loaded. {install}; `torchtrt packs` lists the packs and their "
        "problems."
    )


def with_distributions(keys: Iterable[PluginKey]) -> list[PluginKey]:
    """Returns the names of plugins in order, each with the distribution that registers its pack here."""
    distributions = {
        loaded.info.name: loaded.info.distribution for loaded in current_packs().loaded
    }
    return [replace(key, distribution=distributions.get(key.pack, "")) for key in sorted(keys)]


class _OpPlugin:
    """One call of an op, with the attributes and methods that TensorRT reads and calls of a plugin.

    A subclass adds TensorRT's interfaces.

    Args:
        plugin: The op.
        call: Its arguments, dtypes and sizes.

    Attributes:
        trt: TensorRT's module.
        interfaces: TensorRT's interfaces of plugins.
        torch_device: The device of the addresses; a GPU if it is None. The reference sets it.
    """

    trt: Any
    interfaces: tuple[Any, ...]
    torch_device: torch.device | None = None

    # TensorRT may call from threads in which the program selected no TensorRT: all comes from ``trt``.
    def __init__(self, plugin: PluginOp, call: PluginCall) -> None:
        for interface in self.interfaces:
            interface.__init__(self)
        self.plugin = plugin
        self.call = call
        key = plugin.key
        self.plugin_namespace, self.plugin_name = key.pack, key.name
        self.plugin_version = key.version
        self.num_outputs = len(call.outputs)
        self.format_combination_limit = 1
        self.metadata_string = ""
        self.timing_cache_id = ""
        self.dtypes = data_types(self.trt, call)
        # TensorRT reads their memory later.
        self.texts = {**call.to_fields(), _SCHEMA: plugin.schema.encode()}
        self.fields = _fields(self.trt, self.texts)

    def get_capability_interface(self, type: Any) -> Any:  # noqa: ARG002
        return self

    def clone(self) -> Any:
        copied = type(self)(self.plugin, self.call)
        copied.torch_device = self.torch_device
        return copied

    def get_output_data_types(self, input_types: Any) -> list[Any]:  # noqa: ARG002
        return self.dtypes[len(self.call.inputs) :]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> list[Any]:  # noqa: ARG002
        return output_shapes(self.trt, self.call, inputs, builder)

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:  # noqa: ARG002
        tensor = in_out[pos].desc
        is_linear = tensor.format == self.trt.TensorFormat.LINEAR
        return bool(is_linear and tensor.type == self.dtypes[pos])

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        """Needs nothing: each execution has its shapes."""

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:  # noqa: ARG002
        return 0  # PyTorch allocates what the kernel needs

    def get_fields_to_serialize(self) -> Any:
        return self.fields

    def attach_to_context(self, resource_context: Any) -> Any:  # noqa: ARG002
        return self.clone()

    def on_shape_change(self, inputs: Any, outputs: Any) -> None:
        """Needs nothing: each execution has its shapes."""

    def set_tactic(self, tactic: int) -> None:
        """Has one tactic."""

    def enqueue(self, *arguments: Any) -> None:
        """Runs the op; TensorRT's signature has the descriptors, the addresses, a workspace, and the stream."""
        input_desc, output_desc, inputs, outputs, _, stream = arguments
        _failures.error = None
        try:
            device = self.torch_device or torch.device("cuda", torch.cuda.current_device())
            read = _tensors(input_desc, inputs, device)
            written = _tensors(output_desc, outputs, device)
            run_kernel(self.plugin, self.call, read, written, stream)
        except Exception as error:
            _failures.error = error  # TensorRT logs its text alone
            raise


class _OpCreator:
    """Creates the plugins of an op from the fields in a plan. A subclass adds TensorRT's interface.

    Args:
        plugin: The op.

    Attributes:
        trt: TensorRT's module.
        plugin_class: The class of the plugins.
    """

    trt: Any
    plugin_class: Any

    def __init__(self, plugin: PluginOp) -> None:
        self.trt.IPluginCreatorV3One.__init__(self)
        self.plugin = plugin
        key = plugin.key
        self.plugin_namespace, self.name, self.plugin_version = key.pack, key.name, key.version
        self.field_names = _fields(self.trt, dict.fromkeys((*FIELDS, _SCHEMA), b""))

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:  # noqa: ARG002
        fields = {field.name: np.asarray(field.data).tobytes() for field in field_collection}
        if changed := self.plugin.changed_schema(fields.get(_SCHEMA, b"").decode()):
            message = f"The engine runs the op {self.name} of the pack {self.plugin_namespace}: {changed}."
            raise EngineMismatchError(message)
        return self.plugin_class(self.plugin, PluginCall.from_fields(fields))


@functools.lru_cache(maxsize=8)
def _classes(trt: Any) -> tuple[Any, Any]:
    """Returns the classes of plugins and of their creators for a module of TensorRT."""
    capabilities = trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
    interfaces = trt.IPluginV3, *capabilities
    members = {"trt": trt, "interfaces": interfaces}
    plugin_class: Any = type("OpPlugin", (_OpPlugin, *interfaces), members)
    members = {"trt": trt, "plugin_class": plugin_class}
    return plugin_class, type("OpCreator", (_OpCreator, trt.IPluginCreatorV3One), members)


def data_types(trt: Any, call: PluginCall) -> list[Any]:
    """Returns TensorRT's dtypes of a call's inputs and then of its results."""
    names = *call.inputs, *(dtype for dtype, _ in call.outputs)
    return [getattr(trt.DataType, trt_name(getattr(torch, name))) for name in names]


def output_shapes(trt: Any, call: PluginCall, inputs: Any, builder: Any) -> list[Any]:
    """Returns the shapes of a call's results as TensorRT's expressions of the sizes of its inputs."""
    dimensions = TensorRTDimensions(trt, inputs, builder)
    return [trt.DimsExprs([build(size, dimensions) for size in shape]) for _, shape in call.outputs]


def _fields(trt: Any, texts: Mapping[str, bytes]) -> Any:
    kind = trt.PluginFieldType.CHAR
    return trt.PluginFieldCollection(
        [trt.PluginField(name, np.frombuffer(text, np.int8), kind) for name, text in texts.items()]
    )


class TensorRTDimensions:
    """Makes TensorRT's expressions of the sizes of a plugin's inputs.

    Args:
        trt: TensorRT's module.
        inputs: The sizes of the inputs, as TensorRT's expressions.
        builder: TensorRT's builder of expressions.
    """

    def __init__(self, trt: Any, inputs: Any, builder: Any) -> None:
        self.constant = builder.constant
        self._trt, self._inputs, self._builder = trt, inputs, builder

    def of_input(self, number: int, dimension: int) -> Any:
        """Returns a size of an input."""
        return self._inputs[number][dimension]

    def operation(self, name: str, left: Any, right: Any) -> Any:
        """Returns what one of TensorRT's operations makes of two sizes."""
        kind = getattr(self._trt.DimensionOperation, name)
        return self._builder.operation(kind, left, right)


def run_kernel(
    plugin: PluginOp,
    call: PluginCall,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    stream: int = 0,
) -> None:
    """Calls an op on a stream, and writes its results into an engine's memory.

    Args:
        plugin: The op.
        call: Its arguments.
        inputs: The tensors that it reads.
        outputs: The tensors that it writes.
        stream: The CUDA stream; unused on the CPU.

    Raises:
        RuntimeError: The op's results are not those that its fake implementation described.
    """
    device = outputs[0].device
    if device.type == "cuda":
        engine_stream = (
            torch.cuda.ExternalStream(stream, device=device)
            if stream
            else torch.cuda.default_stream(device)
        )
        with torch.cuda.stream(engine_stream):
            _run(plugin, call, inputs, outputs)
    else:
        _run(plugin, call, inputs, outputs)


def _run(
    plugin: PluginOp,
    call: PluginCall,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> None:
    """Calls an op on the current stream, and copies its results into an engine's memory."""
    args, kwargs = call.bind(inputs)
    with torch.no_grad():
        result = plugin.op(*args, **kwargs)
        results = result if isinstance(result, (list, tuple)) else (result,)
        if len(results) != len(outputs):
            raise RuntimeError(
                f"{plugin.op.name()} returned {len(results)} results, and its fake implementation returns "
                f"{len(outputs)}. Correct the one of them that is wrong."
            )
        for index, (made, output) in enumerate(zip(results, outputs, strict=True)):
            if not isinstance(made, torch.Tensor) or made.layout is not torch.strided:
                kind = made.layout if isinstance(made, torch.Tensor) else type(made).__name__
                raise RuntimeError(
                    f"The result {index} of {plugin.op.name()} is {kind}. Return a tensor with strides from its kernel."
                )
            if made.shape != output.shape or made.dtype != output.dtype:
                raise RuntimeError(
                    f"The result {index} of {plugin.op.name()} is {made.dtype} {tuple(made.shape)}, and its fake "
                    f"implementation gives {output.dtype} {tuple(output.shape)}. Correct the one of them that is wrong."
                )
            output.copy_(made)


def _tensors(
    descriptions: Sequence[Any], addresses: Sequence[int], device: torch.device
) -> list[torch.Tensor]:
    return [
        _tensor_at(address, to_torch_dtype(description.type), tuple(description.dims), device)
        for description, address in zip(descriptions, addresses, strict=True)
    ]


def _tensor_at(
    address: int, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    """Returns a tensor over an engine's memory, without a copy."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype, device=device)
    if device.type == "cpu":
        memory = (ctypes.c_char * size).from_address(address)
        return torch.frombuffer(memory, dtype=dtype).view(shape)
    return torch.as_tensor(_DeviceMemory(address, size), device=device).view(dtype).view(shape)


class _DeviceMemory:
    """Memory of a GPU as PyTorch wraps it: bytes, because the interface has no bfloat16."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
