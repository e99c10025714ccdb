"""The names that converters import from ``torch_tensorrt``, and what each of them is here."""

from __future__ import annotations

import enum
import importlib
import importlib.util
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

import torchtrt
from torchtrt.contract import CallingConvention, ConverterPriority, ConverterSupport
from torchtrt.errors import did_you_mean
from torchtrt.registry import DYNAMO_CONVERTERS, ConverterRegistry
from torchtrt.registry.dynamic_sizes import has_symbolic_dimensions
from torchtrt.targets import qualified_name
from torchtrt_converters_torch_tensorrt import converter_utils as utils
from torchtrt_converters_torch_tensorrt import dtypes, registration
from torchtrt_converters_torch_tensorrt.building_blocks import BLOCKS, converter_of
from torchtrt_converters_torch_tensorrt.context import AdoptedContext, AdoptedSettings
from torchtrt_converters_torch_tensorrt.tensorrt_types import TENSORRT, late_class
from torchtrt_converters_torch_tensorrt.torch_internals import pytree

ROOT = "torch_tensorrt"

INSTEAD = {
    "compile": "call torchtrt.compile",
    "save": "call torchtrt.compile in the program that runs the model",
    "MutableTorchTensorRTModule": "compile again where weights change",
    "torch_enabled_decompositions": "give the setting torch_enabled_decompositions to torchtrt.compile",
    "torch_disabled_decompositions": "give the setting torch_disabled_decompositions to torchtrt.compile",
    "DYNAMO_ATEN_CONVERTERS": "register with the decorator, and priority=ConverterPriority.HIGH",
    "custom_op": "write a converter that adds the plugin's layer",
    "plugins": "write a converter that adds the plugin's layer",
    "generate_plugin": "write a converter that adds the plugin's layer",
    "generate_plugin_converter": "write a converter that adds the plugin's layer",
    "runtime": "torchtrt.compile returns the module that runs engines",
}
"""For names that have no counterpart, what to do instead."""


class SourceIR(enum.Enum):
    """Where an op comes from. Nothing here depends on it."""

    NN = "nn"
    ACC = "acc"
    ATEN = "aten"
    PRIM = "prim"
    TORCHTRT_LOWERED = "torchtrt_lowered"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return f"{self.value}_ops"


class NamedRegistry(ConverterRegistry):
    """The registry's class, with the one static method that validators and converters call."""

    qualified_name_or_str = staticmethod(qualified_name)


class Decompositions(dict[Any, Any]):
    """The table of decompositions as modules edit it: a missing entry keeps none from being used.

    Here an op whose converter accepts it is never decomposed, so that there is nothing to remove.
    """

    def pop(self, op: Any, default: Any = None) -> Any:
        """Returns what the table has for an op, which is taken out of it; nothing where there is none."""
        return super().pop(op, default)


def has_static_shapes(node: torch.fx.Node) -> bool:
    """Returns whether no size of a node's result and arguments varies."""
    return not has_symbolic_dimensions(node)


def has_static_shapes_in_args(
    arg_positions_to_check: list[int] | None = None,
) -> Callable[..., bool]:
    """Returns a validator: whether no size of some of a node's arguments varies."""
    varies = has_dynamic_shapes_in_args(arg_positions_to_check)
    return lambda node, compilation_settings=None: not varies(node, compilation_settings)


def has_dynamic_shapes_in_args(
    arg_positions_to_check: list[int] | None = None,
) -> Callable[..., bool]:
    """Returns a validator: whether a size of some of a node's arguments varies."""

    def varies(node: torch.fx.Node, compilation_settings: Any = None) -> bool:
        del compilation_settings
        positions = arg_positions_to_check
        args = (
            node.args
            if positions is None
            else [node.args[i] for i in positions if i < len(node.args)]
        )
        inputs = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.fx.Node)]
        probe: Any = types.SimpleNamespace(all_input_nodes=inputs, meta={})
        return has_symbolic_dimensions(probe)

    return varies


_TYPES = {
    "TRTNetwork": late_class("INetworkDefinition"),
    "TRTTensor": late_class("ITensor"),
    "TRTLayer": late_class("ILayer"),
    "TRTPluginFieldCollection": late_class("PluginFieldCollection"),
    "TRTPlugin": late_class("IPluginV2"),
    "TRTDataType": late_class("DataType"),
    "TRTElementWiseOp": late_class("ElementWiseOperation"),
    "Shape": tuple[int, ...],
    "ShapeRange": tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
}
_CONTEXT = {"ConversionContext": AdoptedContext, "ConversionCtx": AdoptedContext}
_REGISTRY = {
    "dynamo_tensorrt_converter": registration.dynamo_tensorrt_converter,
    "ConverterPriority": ConverterPriority,
    "ConverterSupport": ConverterSupport,
    "CallingConvention": CallingConvention,
    "ConverterRegistry": NamedRegistry,
    "DYNAMO_CONVERTERS": DYNAMO_CONVERTERS,
    "DynamoConverterImplSignature": Callable[..., Any],
    "has_static_shapes": has_static_shapes,
    "has_static_shapes_in_args": has_static_shapes_in_args,
    "has_dynamic_shapes_in_args": has_dynamic_shapes_in_args,
    "node_has_dynamic_shapes": has_symbolic_dimensions,
}
_UTILS = {
    name: value
    for name, value in vars(utils).items()
    if getattr(value, "__module__", "") == utils.__name__ and not name.startswith("_")
}
_PASSES = {
    "_aten_lowering_pass": registration.aten_lowering_pass,
    "get_lowering_pass_config": registration.get_lowering_pass_config,
    "clean_up_graph_after_modifications": utils.clean_up_graph_after_modifications,
}
_LOWERING = {
    "register_torch_trt_decomposition": registration.register_torch_trt_decomposition,
    "TORCH_TRT_DECOMPOSITIONS": Decompositions(),
    **_PASSES,
}
_FEATURES = {
    "ENABLED_FEATURES": types.SimpleNamespace(
        torchscript_frontend=False,
        torch_tensorrt_runtime=False,
        dynamo_frontend=True,
        fx_frontend=False,
        refit=True,
        qdp_plugin=False,
        windows_cross_compile=False,
        tensorrt_rtx=False,
        trtllm_for_nccl=False,
        native_trt_collectives=False,
    )
}
_SETTINGS = {"CompilationSettings": AdoptedSettings}
_DTYPES = {
    "Frameworks": dtypes.Frameworks,
    "unified_dtype_converter": dtypes.unified_dtype_converter,
}
_DYNAMO = "torch_tensorrt.dynamo"
_CONVERSION = f"{_DYNAMO}.conversion"

NAMES: dict[str, dict[str, Any]] = {
    ROOT: {"dtype": dtypes.dtype, "Input": torchtrt.Input, "__version__": "2.14.0", **_FEATURES},
    f"{ROOT}._enums": {"dtype": dtypes.dtype},
    f"{ROOT}._features": _FEATURES,
    f"{ROOT}.fx": {},
    f"{ROOT}.fx.types": _TYPES,
    f"{ROOT}.fx.utils": _DTYPES,
    f"{ROOT}.fx.converters": {},
    f"{ROOT}.fx.converters.converter_utils": {
        **{
            name: _UTILS[name]
            for name in (
                *("get_positive_dim", "set_layer_name", "extend_attr_to_tuple", "to_numpy"),
                *("has_dynamic_shape", "get_axes_for_reduce_op", "get_trt_plugin", "type_cast"),
            )
        },
        "prepend_ones": utils.prepend_ones_to,
        "SourceIR": SourceIR,
    },
    _DYNAMO: {"SourceIR": SourceIR, **_SETTINGS},
    f"{_DYNAMO}._SourceIR": {"SourceIR": SourceIR},
    f"{_DYNAMO}._settings": _SETTINGS,
    f"{_DYNAMO}.types": _TYPES,
    f"{_DYNAMO}.utils": _DTYPES,
    f"{_DYNAMO}.lowering": {**_LOWERING, **_SETTINGS},
    f"{_DYNAMO}.lowering._decompositions": _LOWERING,
    f"{_DYNAMO}.lowering._decomposition_groups": {
        "TORCH_TRT_DECOMPOSITIONS": _LOWERING["TORCH_TRT_DECOMPOSITIONS"],
        "aten": torch.ops.aten,
    },
    f"{_DYNAMO}.lowering.passes": _PASSES,
    f"{_DYNAMO}.lowering.passes._aten_lowering_pass": _PASSES,
    f"{_DYNAMO}.lowering.passes.pass_utils": {
        "clean_up_graph_after_modifications": utils.clean_up_graph_after_modifications,
        "get_tensor_placeholders": utils.get_tensor_placeholders,
    },
    _CONVERSION: {**_REGISTRY, **_CONTEXT, **_SETTINGS, "SourceIR": SourceIR},
    f"{_CONVERSION}._ConversionContext": _CONTEXT,
    f"{_CONVERSION}._ConverterRegistry": _REGISTRY,
    f"{_CONVERSION}.converter_registry": _REGISTRY,
    f"{_CONVERSION}.converter_utils": {
        **_UTILS,
        **{name: value for name, value in _TYPES.items() if name.startswith("TRT")},
        "SourceIR": SourceIR,
    },
    f"{_CONVERSION}.aten_ops_converters": {
        "args_bounds_check": utils.args_bounds_check,
        "SourceIR": SourceIR,
    },
    f"{_CONVERSION}.impl": {},
    **{f"{_CONVERSION}.impl.{name}": blocks for name, blocks in BLOCKS.items()},
}
"""For each module the names in it, without its submodules."""
for _name in ("elementwise", "unary", "activation", "slice", "condition", "normalization"):
    NAMES.setdefault(f"{_CONVERSION}.impl.{_name}.ops", BLOCKS[_name])
    NAMES.setdefault(f"{_CONVERSION}.impl.{_name}.base", {})
    NAMES[f"{_CONVERSION}.impl.{_name}"] = {
        **NAMES[f"{_CONVERSION}.impl.{_name}.base"],
        **BLOCKS[_name],
    }


class StandIn(types.ModuleType):
    """A module of ``torch_tensorrt``: our names under theirs. Reading a name that it lacks raises."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _attribute(f"{self.__name__}.{name}", self.__name__, name)
        setattr(self, name, value)
        return value


def _attribute(path: str, module: str, name: str) -> Any:
    if path in NAMES:
        return stand_in(path)
    prefix, _, op = name.partition("aten_ops_")
    if module.endswith(".aten_ops_converters") and not prefix and hasattr(torch.ops.aten, op):
        return converter_of(getattr(torch.ops.aten, op))
    raise AttributeError(why_missing(module, name))


def why_missing(module: str, name: str) -> str:
    """Returns the message for a name that a module does not have."""
    names = [*NAMES.get(module, {}), *_submodules(module)]
    hint = INSTEAD.get(name)
    advice = (
        f"Instead, {hint}."
        if hint
        else did_you_mean(name, names, f"It has: {', '.join(sorted(names))}.")
    )
    return f"torchtrt has no counterpart of {module}.{name}. {advice}"


def _submodules(module: str) -> Iterator[str]:
    for path in NAMES:
        parent, _, name = path.rpartition(".")
        if parent == module:
            yield name


_made: dict[str, types.ModuleType] = {}


def stand_in(path: str) -> types.ModuleType:
    """Returns the module that stands for ``torch_tensorrt`` or one below it, or for ``tensorrt``.

    Raises:
        ModuleNotFoundError: Torch-TensorRT may have such a module, and torchtrt has no counterpart.
    """
    if path == "tensorrt":
        return TENSORRT
    if path.startswith("tensorrt."):
        if importlib.util.find_spec("tensorrt") is not None:
            return importlib.import_module(path)
        message = f"torchtrt has no counterpart of the module {path}: TensorRT's plugins in Python need the real one."
        raise ModuleNotFoundError(message, name=path)
    if path not in NAMES:
        module, _, name = path.rpartition(".")
        raise ModuleNotFoundError(why_missing(module, name), name=path)
    if path not in _made:
        made = StandIn(path, f"torchtrt's counterpart of {path}.")
        made.__path__ = []
        vars(made).update(NAMES[path])
        vars(made)["__all__"] = [*NAMES[path], *_submodules(path)]
        _made[path] = made
    return _made[path]
