"""Which of Triton's backends runs a saved model."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt_triton.interface import DATA_TYPES, ModelInterface, ModelTensor

_REAL = re.compile(r"TensorRT (\S+)")
_NATIVE_64_BITS = Version("10")
_64_BITS = frozenset({"TYPE_INT64", "TYPE_FP64"})
_ENGINE_TYPES = frozenset(
    {"TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_BF16"}
)  # fmt: skip
"""The types of tensors that both engines and Triton have."""


@dataclass(frozen=True)
class Platform:
    """Where a model runs.

    Attributes:
        needs_python: Why Triton's TensorRT backend cannot run it; an empty string if it can.
        on_gpu: Whether its engines run on GPUs only.
        plan: The name of the only engine's plan in the program's constants, for the TensorRT backend.
        input_names: The names of the inputs in that engine.
    """

    needs_python: str
    on_gpu: bool
    plan: str = ""
    input_names: tuple[str, ...] = ()


def platform_of(
    program: ExportedProgram, metadata: Mapping[str, Any], interface: ModelInterface
) -> Platform:
    """Returns where a saved model runs.

    Args:
        program: The model's program.
        metadata: The model's metadata.
        interface: The model's interface.
    """
    engines = metadata["engines"]
    on_gpu = any(not engine["tensorrt"].startswith("reference@") for engine in engines)
    calls = [node for node in program.graph.nodes if _is_engine(node)]
    reason = (
        _objection_to_graph(program, calls)
        or _objection_to_engine(engines[0])
        or _objection_to_sizes(metadata, interface)
        or _objection_to_tensors(engines[0], interface)
    )
    if reason:
        return Platform(reason, on_gpu)
    (call,) = calls
    plan = program.graph_signature.inputs_to_lifted_tensor_constants[call.args[1].name]
    return Platform("", True, plan, tuple(input_["name"] for input_ in engines[0]["inputs"]))


def _is_engine(node: Node) -> bool:
    return getattr(node.target, "_opname", "") == "execute_engine"


def _objection_to_graph(program: ExportedProgram, calls: Sequence[Node]) -> str:
    """Returns an empty string if the graph of a program is one engine and nothing else."""
    if len(calls) != 1:
        return f"the model has {len(calls)} engines, not one"
    for node in program.graph.nodes:
        is_around = node.op in ("placeholder", "output") or node is calls[0]
        if not is_around and node.target is not operator.getitem:
            return f"PyTorch computes {node.name}"
    taken: Any = calls[0].args[0]
    if [node.name for node in taken] != list(program.graph_signature.user_inputs):
        return "the engine does not take the model's inputs as they are"
    (returned,) = program.graph.output_node().args
    origins = [getattr(value, "args", None) for value in returned]
    outputs = json.loads(str(calls[0].args[2]))["outputs"]
    if origins != [(calls[0], index) for index in range(len(outputs))]:
        return "the model does not return the engine's outputs as they are"
    return ""


def _objection_to_engine(engine: Mapping[str, Any]) -> str:
    """Returns why Triton's TensorRT backend cannot serve an engine, or an empty text."""
    if not _REAL.fullmatch(engine["tensorrt"]):
        return f"the engine is of {engine['tensorrt']}, which Triton does not have"
    if engine["requires_output_allocator"]:
        return "the size of an output depends on data"
    if engine.get("collectives"):
        return "the engine exchanges tensors with other processes"
    for plugin in engine.get("plugins", ()):
        if not plugin.get("kernel"):
            return (
                f"the engine runs the op {plugin['name']} by a plugin of the pack {plugin['pack']}, which is Python "
                "without aot="
            )
    if "version" in engine.get("compatible", ()):
        return "the engine is version compatible, so that its plan contains code"
    return ""


def _objection_to_sizes(metadata: Mapping[str, Any], interface: ModelInterface) -> str:
    """Returns an empty string if Triton and TensorRT check all that the model requires of its inputs."""
    if len(metadata.get("profiles") or [0]) > 1:
        return "the sizes have several profiles"
    if metadata["assumptions"]:
        return "the program has conditions on sizes"
    if any("value" in input_ for input_ in metadata["inputs"]):
        return "the program has a constant input"
    seen = set()
    for input_ in metadata["inputs"]:
        for size in input_["sizes"][bool(interface.max_batch_size) :]:
            if isinstance(size, int):
                continue
            if size[0] != "symbol" or size[1] in seen:
                return f"a size of {input_['name']} follows from another size"
            seen.add(size[1])
        if len(input_["sizes"]) <= bool(interface.max_batch_size):
            return f"{input_['name']} has no dimension besides the batch"
    return ""


def _objection_to_tensors(engine: Mapping[str, Any], interface: ModelInterface) -> str:
    """Returns an empty string if an engine has the types and ranks that the model has, and the outputs' names."""
    version = Version(_REAL.fullmatch(engine["tensorrt"])[1])  # type: ignore[index]
    pairs = [
        *zip(engine["inputs"], interface.inputs, strict=True),
        *zip(engine["outputs"], interface.outputs, strict=True),
    ]
    for own, wanted in pairs:
        reason = _objection_to_tensor(own, wanted, version)
        if reason:
            return reason
    for own, wanted in zip(engine["outputs"], interface.outputs, strict=True):
        if own["name"] != wanted.name:
            return f"the engine calls {wanted.name} {own['name']}"
        if own["shape"] is None or len(own["shape"]) != len(wanted.dims) + bool(
            interface.max_batch_size
        ):
            return f"{wanted.name} has no dimension besides the batch"
    return ""


def _objection_to_tensor(own: Mapping[str, Any], wanted: ModelTensor, version: Version) -> str:
    if DATA_TYPES.get(own["dtype"]) != wanted.data_type or wanted.data_type not in _ENGINE_TYPES:
        return f"no engine has the dtype of {wanted.name}"
    if wanted.data_type in _64_BITS and version < _NATIVE_64_BITS:
        return f"{wanted.name} has 64 bits, and TensorRT {version} has 32"
    return ""
