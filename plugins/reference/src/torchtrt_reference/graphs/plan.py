"""The plan: a built network as bytes, and back.

The layout is little-endian: 8 bytes magic, format version (u32), checksum of everything after it (u32, CRC-32).
Then come the length of the header (u64), that of the whole plan (u64), the header as JSON, and the constants, each
aligned to 64 bytes.
Nothing in it is executed on loading, and constants are views over the bytes.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.graph import Graph, Node, Port
from torchtrt_reference.semantics.plugins import PluginRecord

MAGIC = b"TRT-REF\x00"
FORMAT_VERSION = 3
ALIGNMENT = 64
_PACKED = ("INT4", "FP4")
"""The types with two values in a byte."""
_PREFIX = struct.Struct("<8sIIQQ")
_LENGTHS = struct.Struct("<QQ")


class UnreadablePlanError(Exception):
    """The bytes are not a plan that this TensorRT can load; the text is the reason, and what to do."""


@dataclass(slots=True)
class EngineDescription:
    """Everything an engine is made from.

    Attributes:
        version: The TensorRT version that built it.
        name: The network's name.
        graph: The built network.
        profiles: For each profile the (min, opt, max) shapes of the inputs.
        value_profiles: For each profile the (min, opt, max) values of the shape inputs.
        has_profile: Whether an optimization profile was added to the configuration.
        shares_profiles: Whether several contexts may use a profile at a time.
        refittable: Whether weights can be replaced.
        settings: What the engine reports about its configuration, by property name.
    """

    version: str
    name: str
    graph: Graph
    profiles: list[dict[str, tuple[tuple[int, ...], ...]]]
    value_profiles: list[dict[str, tuple[tuple[int, ...], ...]]]
    has_profile: bool
    shares_profiles: bool
    refittable: bool
    settings: dict[str, Any] = field(default_factory=dict)


def encode(
    description: EngineDescription,
    allocate: Callable[[int], Any] = bytearray,
    *,
    is_stripped: bool = False,
) -> Any:
    """Returns the plan of an engine.

    Args:
        description: The engine.
        allocate: Returns writable memory of a number of bytes; the plan is written into it and is not copied.
        is_stripped: Whether the plan leaves out the weights that can be replaced.
    """
    blobs = _Blobs()
    header = {
        "version": description.version,
        "name": description.name,
        "graph": _graph_to_json(
            description.graph, blobs, description.graph.refittable() if is_stripped else set()
        ),
        "profiles": description.profiles,
        "value_profiles": description.value_profiles,
        "has_profile": description.has_profile,
        "shares_profiles": description.shares_profiles,
        "refittable": description.refittable,
        "settings": description.settings,
        "constants": blobs.table,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    start = -(-(_PREFIX.size + len(text)) // ALIGNMENT) * ALIGNMENT
    plan = allocate(start + blobs.size)
    view: Any = np.frombuffer(plan, dtype=np.uint8)
    view[_PREFIX.size : _PREFIX.size + len(text)] = np.frombuffer(text, dtype=np.uint8)
    for (offset, dtype, shape), tensor in zip(blobs.table, blobs.tensors, strict=True):
        _write(view, start + offset, dtype, shape, tensor)
    lengths = len(text), view.size
    checksum = zlib.crc32(view[_PREFIX.size :], zlib.crc32(_LENGTHS.pack(*lengths)))
    _PREFIX.pack_into(view, 0, MAGIC, FORMAT_VERSION, checksum, *lengths)
    return plan


def read_all(read: Callable[[int], bytes]) -> bytearray:
    """Returns a whole plan from a function that returns at most a given number of the next bytes.

    Raises:
        UnreadablePlanError: The bytes end too early, or are no plan.
    """
    plan = bytearray()

    def extend(size: int) -> None:
        while len(plan) < size:
            chunk = read(size - len(plan))
            if not chunk:
                message = (
                    f"The stream ended after {len(plan)} of {size} bytes. Build the engine again."
                )
                raise UnreadablePlanError(message)
            plan.extend(chunk)

    extend(_PREFIX.size)
    extend(_prefix(plan)[2])
    return plan


def _prefix(plan: Any) -> tuple[int, int, int]:
    """The checksum, the header's length and the plan's length, after magic and format were checked."""
    magic, format_version, checksum, length, size = _PREFIX.unpack(plan[: _PREFIX.size])
    if magic != MAGIC:
        message = "These bytes are no plan of the reference TensorRT. Load them with the TensorRT that built them."
        raise UnreadablePlanError(message)
    if format_version != FORMAT_VERSION:
        message = f"The plan has format {format_version}, this torchtrt reads {FORMAT_VERSION}. Build the engine again."
        raise UnreadablePlanError(message)
    return checksum, length, size


def decode(plan: Any, version: str) -> tuple[EngineDescription, Any]:
    """Returns the engine in a plan, and the object that must stay alive because the constants are views over it.

    Args:
        plan: The bytes, as anything with a buffer.
        version: The TensorRT version that loads it.

    Raises:
        UnreadablePlanError: These are not the bytes of a whole plan that this version runs.
    """
    view: Any = np.frombuffer(plan, dtype=np.uint8)
    if view.size < _PREFIX.size:
        message = f"The plan has {view.size} bytes: it is truncated. Build the engine again."
        raise UnreadablePlanError(message)
    checksum, length, size = _prefix(view)
    body = view[_PREFIX.size :]
    is_whole = size == view.size and length <= body.size
    if not is_whole or zlib.crc32(body, zlib.crc32(_LENGTHS.pack(length, size))) != checksum:
        message = "The plan is damaged: its checksum does not match. Build the engine again."
        raise UnreadablePlanError(message)
    header = json.loads(body[:length].tobytes())
    if header["version"] != version:
        built = header["version"]
        if not header["settings"].get("has_lean_runtime") or _numbers(built) > _numbers(version):
            message = (
                f"The plan was built by TensorRT {built}, this is {version}: plans are not portable across versions, "
                "but for version compatible ones with a lean runtime in them, to later versions. Build the engine "
                "again."
            )
            raise UnreadablePlanError(message)
    start = -(-(_PREFIX.size + length) // ALIGNMENT) * ALIGNMENT
    constants = [
        _constant(view, start + offset, dtype, shape)
        for offset, dtype, shape in header["constants"]
    ]
    description = EngineDescription(
        header["version"],
        header["name"],
        _graph_from_json(header["graph"], constants),
        [_tuples(profile) for profile in header["profiles"]],
        [_tuples(profile) for profile in header["value_profiles"]],
        header["has_profile"],
        header["shares_profiles"],
        header["refittable"],
        header["settings"],
    )
    return description, view


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


class _Blobs:
    """Constants on their way into a plan. Tensors that share memory, such as tied weights, are written once."""

    def __init__(self) -> None:
        self.table: list[tuple[int, str, list[int]]] = []
        self.tensors: list[torch.Tensor] = []
        self.size = 0
        self._numbers: dict[tuple[Any, ...], int] = {}

    def add(self, tensor: torch.Tensor, dtype: str) -> int:
        """Adds a constant and returns its number in the table. TensorRT's dtype determines whether it is packed."""
        key = (tensor.data_ptr(), dtype, tensor.shape, tensor.stride())
        if tensor.numel() and key in self._numbers:
            return self._numbers[key]
        self._numbers[key] = len(self.table)
        stored = dtype if dtype in _PACKED else dtypes.NAMES[tensor.dtype]
        size = dtypes.byte_count(stored, tensor.numel())
        self.table.append((self.size, stored, list(tensor.shape)))
        self.tensors.append(tensor)
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return len(self.table) - 1


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a tensor on the CPU, row by row."""
    flat = tensor.contiguous().as_strided(
        (tensor.numel(),), (1,)
    )  # a single element may have any stride
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


def _write(view: Any, offset: int, dtype: str, shape: Sequence[int], tensor: torch.Tensor) -> None:
    if dtype in _PACKED:
        tensor = dtypes.pack(tensor, dtype)
        dtype, shape = "UINT8", tensor.shape
    _view(view, offset, dtype, shape).copy_(tensor)  # which may be a transpose


def _constant(view: Any, offset: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    if dtype not in _PACKED:
        return _view(view, offset, dtype, shape)
    count = math.prod(shape)
    packed = _view(view, offset, "UINT8", (dtypes.byte_count(dtype, count),))
    return dtypes.unpack(packed, dtype, count).view(tuple(shape))


def _view(view: Any, offset: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    kind = dtypes.TORCH[dtype]
    if offset + math.prod(shape) * kind.itemsize > view.size:
        message = "The plan is damaged: a constant lies beyond its end. Build the engine again."
        raise UnreadablePlanError(message)
    return dtypes.tensor_at(view.ctypes.data + offset, kind, tuple(shape), torch.device("cpu"))


def _graph_to_json(graph: Graph, blobs: _Blobs, left_out: Set[int] = frozenset()) -> dict[str, Any]:
    """Returns a graph as data: a constant without values has a shape in the place of its number."""
    left_out = graph.stripped() | left_out
    return {
        "inputs": [_port_to_json(port) for port in graph.inputs],
        "outputs": [_port_to_json(port) for port in graph.outputs],
        "nodes": [
            [
                node.operation,
                node.name,
                node.inputs,
                node.outputs,
                {name: _value_to_json(value, blobs) for name, value in node.attributes.items()},
                node.output_types,
                node.metadata,
            ]
            for node in graph.nodes
        ],
        "constants": [
            [
                slot,
                list(tensor.shape)
                if slot in left_out
                else blobs.add(tensor, graph.constant_types[slot]),
                graph.constant_types[slot],
                graph.weights_names.get(slot),
                graph.weights_roles.get(slot),
            ]
            for slot, tensor in graph.constants.items()
        ],
        "slots": graph.slot_count,
        "strong": graph.strong,
        "debug": [_port_to_json(port) for port in graph.debug],
    }


def _value_to_json(value: Any, blobs: _Blobs) -> Any:
    if isinstance(value, PluginRecord):
        return {"plugin": value.to_json()}
    return {"graph": _graph_to_json(value, blobs)} if isinstance(value, Graph) else value


def _port_to_json(port: Port) -> list[Any]:
    names = sorted(port.dimension_names.items())
    return [port.name, port.slot, port.dtype, port.shape, port.is_shape, names, port.formats]


def _graph_from_json(data: Mapping[str, Any], constants: Sequence[torch.Tensor]) -> Graph:
    """Returns the graph that a plan holds as JSON."""
    nodes = []
    for operation, name, inputs, outputs, attributes, types, metadata in data["nodes"]:
        plain = {key: _value_from_json(value, constants) for key, value in attributes.items()}
        nodes.append(
            Node(operation, name, tuple(inputs), tuple(outputs), plain, tuple(types), metadata)
        )
    return Graph(
        [_port_from_json(port) for port in data["inputs"]],
        [_port_from_json(port) for port in data["outputs"]],
        nodes,
        {
            slot: torch.empty(shape_or_index, dtype=dtypes.TORCH[dtype], device="meta")
            if isinstance(shape_or_index, list)
            else constants[shape_or_index]
            for slot, shape_or_index, dtype, *_ in data["constants"]
        },
        {slot: dtype for slot, _, dtype, *_ in data["constants"]},
        {slot: name for slot, _, _, name, _ in data["constants"] if name is not None},
        {slot: (role[0], role[1]) for slot, *_, role in data["constants"] if role is not None},
        data["slots"],
        data["strong"],
        [_port_from_json(port) for port in data["debug"]],
    )


def _value_from_json(value: Any, constants: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, dict) and "plugin" in value:
        return PluginRecord.from_json(_tuples(value["plugin"]))
    if isinstance(value, dict):
        return _graph_from_json(value["graph"], constants)
    return _tuples(value)


def _port_from_json(data: Sequence[Any]) -> Port:
    name, slot, dtype, shape, is_shape, names, formats = data
    return Port(name, slot, dtype, tuple(shape), is_shape, dict(names), formats)


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value
