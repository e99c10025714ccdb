"""How a compiled model is called, and what is known of its compilation, as data."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch

from torchtrt.capability import Capability
from torchtrt.errors import TorchOp, TorchTRTError, UnreadableFileError, UnsupportedProgramError
from torchtrt.expressions.data import InexpressibleError, from_json, to_json
from torchtrt.settings import CompilationSettings
from torchtrt.stores import is_store
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt.torch_internals import pytree
from torchtrt_runtime.checks.inputs import InputChecks
from torchtrt_runtime.checks.signature import CallSignature
from torchtrt_runtime.checks.tensors import InputMemory, TensorCheck
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.dtype_names import dtype_from_json
from torchtrt_runtime.executors.choice import executor_for
from torchtrt_runtime.modules.compiled import CallInterface, CompiledModule
from torchtrt_runtime.processes.groups import Processes
from torchtrt_runtime.reports.report import (
    BlockReport,
    CompilationReport,
    ConvertedOps,
    LayerUse,
    NarrowedSize,
    VerifiedOutput,
)
from torchtrt_runtime.serialization.pytree_json import tree_from_json, tree_to_json, unnamed
from torchtrt_runtime.serialization.symbols import SymbolsByName
from torchtrt_runtime.size_ranges import union_of_profiles
from torchtrt_runtime.weights.model_weights import ModelWeights

_ROWS = {
    "blocks": BlockReport,
    "converted": ConvertedOps,
    "in_torch": TorchOp,
    "layers": LayerUse,
    "narrowed": NarrowedSize,
    "verified": VerifiedOutput,
}
_PLAIN = (bool, int, float, str, type(None))


def describe_interface(compiled: CompiledModule) -> dict[str, Any]:
    """Returns everything about a compiled model that its graph does not contain.

    Raises:
        UnsupportedProgramError: An input has a form that cannot be written.
    """
    trees = {"input_tree": compiled.input_tree, "output_tree": compiled.output_tree}
    plain = {name: unnamed(tree) for name, tree in trees.items()}
    checks = compiled.checks
    return {
        **{name: tree_to_json(tree) for name, (tree, _) in plain.items()},
        "named_tuples": {name: classes for name, (_, classes) in plain.items()},
        "inputs": [_input_to_json(name, wanted) for name, wanted in checks.inputs],
        "ranges": {
            str(symbol): sizes for symbol, sizes in union_of_profiles(checks.profiles).items()
        },
        "profiles": [
            {str(symbol): sizes for symbol, sizes in profile.items()} for profile in checks.profiles
        ],
        "assumptions": [_size_to_json(guard) for guard in checks.guards],  # the name in files
        "shared_inputs": sorted(compiled.shared_inputs),
        "signature": compiled.signature and _signature_to_json(compiled.signature),
        "autocast": [dtype and dtype_name(dtype) for dtype in compiled.usage_checks.autocast],
        "report": compiled.report.to_json(),
        "settings": settings_to_json(compiled.settings),
        "weight_recipes": compiled.weights and compiled.weights.to_json(),
    }


def trees_of(data: Mapping[str, Any]) -> tuple[pytree.TreeSpec, pytree.TreeSpec]:
    """Returns how a saved model's inputs and its outputs nest.

    Raises:
        UnreadableFileError: A container is not known here.
    """
    named = data.get("named_tuples", {})
    inputs, outputs = (
        tree_from_json(data[name], named.get(name)) for name in ("input_tree", "output_tree")
    )
    return inputs, outputs


def compiled_from(data: Mapping[str, Any], graph_module: torch.fx.GraphModule) -> CompiledModule:
    """Returns a compiled model of a graph and of what ``describe_interface`` returned for it.

    Raises:
        UnreadableFileError: Something is missing, or a container of its inputs or outputs is unknown here.
    """
    count = len(graph_module.graph.find_nodes(op="placeholder"))
    interface, report, settings = interface_from(data, count)
    recipes = data["weight_recipes"]
    return CompiledModule(
        graph_module,
        interface,
        report,
        settings,
        executor_for,
        recipes and ModelWeights.from_json(recipes),
    )


def interface_from(
    data: Mapping[str, Any], count: int
) -> tuple[CallInterface, CompilationReport, CompilationSettings]:
    """Returns how a model is called, and the report and the settings of its compilation.

    Args:
        data: What ``describe_interface`` returned.
        count: The number of the graph's inputs.

    Raises:
        UnreadableFileError: Something is missing, or a container of its inputs or outputs is unknown here.
    """
    symbols = SymbolsByName()
    report = report_from_json(data["report"])
    checks = InputChecks(
        tuple(_input_from_json(input_, symbols) for input_ in data["inputs"]),
        symbols.profiles_from(data.get("profiles") or [data["ranges"]]),
        tuple(from_json(guard, symbols.__getitem__) for guard in data["assumptions"]),
        tuple(report.narrowed),
    )
    input_tree, output_tree = trees_of(data)
    if not set(data["shared_inputs"]) <= set(range(count)) or count != len(checks.inputs):
        raise UnreadableFileError("The file is damaged: it describes other inputs than it has.")
    signature, settings = data["signature"], settings_from_json(data["settings"])
    first, second = (dtype_from_json(dtype) if dtype else None for dtype in data["autocast"])
    interface = CallInterface(
        input_tree,
        output_tree,
        checks,
        data["shared_inputs"],
        UsageChecks({}, autocast=(first, second)),
        signature and _signature_from_json(signature, input_tree),
        Processes.from_json(data.get("processes")),
    )
    return interface, report, settings


def settings_to_json(settings: CompilationSettings) -> dict[str, Any]:
    """Returns settings as data: ops by name, in order, and no objects that keep bytes."""
    return {
        field.name: _setting_to_json(getattr(settings, field.name)) for field in fields(settings)
    }


def _setting_to_json(value: Any) -> Any:
    """Returns the value of a setting as data: ops, capabilities and dtypes by their names, sets sorted."""
    if is_store(value):  # which may be a dictionary, too
        return None
    if isinstance(value, Mapping):
        return {qualified_name(target): pack for target, pack in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(
            member.name if isinstance(member, Capability) else qualified_name(member)
            for member in value
        )
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def settings_from_json(data: Mapping[str, Any]) -> CompilationSettings:
    """Returns settings from data; those that mean nothing here any more, such as ops of no library, are left out."""
    settings = CompilationSettings()
    for field in fields(CompilationSettings):
        value: Any = data.get(field.name)
        if str(field.type) == "torch.dtype | None" and value is not None:
            value = dtype_from_json(value)
        with contextlib.suppress(TorchTRTError):
            settings = replace(settings, **{field.name: value})
    return settings


def report_from_json(data: Mapping[str, Any]) -> CompilationReport:
    """Returns a report from what its ``to_json`` returned."""
    field_names = {field.name for field in fields(CompilationReport)}
    values = {name: value for name, value in data.items() if name in field_names}
    for name, row in _ROWS.items():
        values[name] = [row(**_tuples(entry)) for entry in values.get(name, ())]
    return CompilationReport(**values)


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in row.items()}


def _tuple(value: Any) -> Any:
    if isinstance(value, dict):
        return _tuples(value)
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def _size_to_json(size: Any) -> Any:
    try:
        return to_json(size)
    except InexpressibleError as error:
        message = f"The model cannot be saved: {error}. Compute it where the model is called."
        raise UnsupportedProgramError(message) from error


def _input_to_json(name: str, wanted: Any) -> dict[str, Any]:
    """Returns what a call is checked for in one input.

    Raises:
        UnsupportedProgramError: The input's only value has no form in a file.
    """
    if isinstance(wanted, TensorCheck):
        sizes = [_size_to_json(size) for size in wanted.sizes]
        memory = {} if wanted.memory is None else {"memory": dataclasses.asdict(wanted.memory)}
        number = {"number": True} if wanted.is_number else {}
        dtype = dtype_name(wanted.dtype)
        return {"name": name, "dtype": dtype, "sizes": sizes, **memory, **number}
    if type(wanted) not in _PLAIN:
        message = f"The input {name!r} is a {type(wanted).__name__}, {wanted!r}, which has no form in a file."
        raise UnsupportedProgramError(message)
    return {"name": name, "value": wanted}


def _input_from_json(data: Mapping[str, Any], symbols: SymbolsByName) -> tuple[str, Any]:
    """Returns an input's name, and its check or the value that it must have."""
    name = data["name"]
    if "value" in data:
        return name, data["value"]
    sizes = tuple(from_json(size, symbols.__getitem__) for size in data["sizes"])
    memory = data.get("memory")
    if memory is not None:
        memory = InputMemory(tuple(memory["order"]), memory["offset"])
    dtype, number = dtype_from_json(data["dtype"]), data.get("number", False)
    return name, TensorCheck(name, dtype, torch.strided, sizes, memory, number)


class _Unwritten:
    """A default that has no form in a file. Nothing that a caller gives equals it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _signature_to_json(signature: CallSignature) -> list[dict[str, Any]]:
    return [
        {"name": parameter.name, "kind": parameter.kind.name, **_default_to_json(parameter.default)}
        for parameter in signature.signature.parameters.values()
    ]


def _default_to_json(value: Any) -> dict[str, Any]:
    if value is inspect.Parameter.empty:
        return {}
    if type(value) is tuple and all(type(part) in _PLAIN for part in value):
        return {"default": list(value)}
    return {"default": value} if type(value) in _PLAIN else {"unwritten": repr(value)}


def _signature_from_json(data: Any, input_tree: pytree.TreeSpec) -> CallSignature:
    """Returns the parameters of ``forward`` from a file's description of them."""
    parameters = []
    for parameter in data:
        default: Any = inspect.Parameter.empty
        if "default" in parameter:
            default = (
                tuple(parameter["default"])
                if isinstance(parameter["default"], list)
                else parameter["default"]
            )
        elif "unwritten" in parameter:
            default = _Unwritten(parameter["unwritten"])
        kind = getattr(inspect.Parameter, parameter["kind"])
        parameters.append(inspect.Parameter(parameter["name"], kind, default=default))
    return CallSignature(inspect.Signature(parameters), input_tree)
