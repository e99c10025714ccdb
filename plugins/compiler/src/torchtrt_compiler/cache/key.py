"""The cache key of an engine: one short text for all that the engine follows from.

A key covers the block's graph with all arguments and edges, PyTorch's facts about each value, and the weights that
cannot be replaced in an engine.
It also covers all profiles, the settings, the converters and their code, TensorRT and the GPU. It does not cover names
of nodes, weights and symbols, and the settings that only led to the graph.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from torchtrt.expressions.bounds import Bounds
from torchtrt.graphs.nodes import resolution_of
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.packs.info import LOCAL
from torchtrt.settings import declarations
from torchtrt.targets import qualified_name
from torchtrt.tensorrt import selection
from torchtrt.torch_internals import OperatorBase
from torchtrt_compiler.cache.engines import EngineRequest
from torchtrt_compiler.gpu_targets import allocates_nothing, compute_capabilities
from torchtrt_compiler.lowering.constant_folding import GROWTH_LIMIT
from torchtrt_kernels.compiled_kernels import kernel_digest
from torchtrt_runtime.processes.groups import groups_in
from torchtrt_runtime.serialization.call_interface import settings_to_json
from torchtrt_runtime.weights.recipe import digest

_OF_NETWORKS = ("torchtrt", "torchtrt_blocks", "torchtrt_kernels", "torchtrt_compiler.building")
"""The packages whose code makes networks, beside those of the converters."""


class _NoKeyError(Exception):
    """Something has no text that stands for it."""


def engine_key(request: EngineRequest) -> str | None:
    """Returns the key of the engine that a block becomes: 64 hexadecimal digits.

    Returns:
        None where an engine must not be kept: a converter is the program's own, or the graph holds an unknown object.
    """
    settings = request.settings
    has_names = not settings.immutable_weights or settings.strip_engine_weights
    try:
        facts = {
            "graph": _Graph(
                request.block, request.bounds, has_names, request.replaceable
            ).describe(),
            "profiles": [[str(input_.dtype), input_.profiles] for input_ in request.inputs],
            "settings": {
                name: value
                for name, value in settings_to_json(settings).items()
                if declarations()[name].in_engine
            },
            "processes": groups_in(request.block),
            "tensorrt": _tensorrt(),
            "gpu": selection.describe_gpu(),
            "compute_capabilities": compute_capabilities(settings),
            "allocates_nothing": allocates_nothing(settings),
            "code": [_fingerprint(package) for package in _OF_NETWORKS if package in sys.modules],
        }
    except _NoKeyError:
        return None
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def block_identity(request: EngineRequest) -> str | None:
    """Returns a text that is equal for blocks of one compilation that become equal engines.

    They read the same memory as weights. Small constants, such as those of decompositions, need to have equal values
    only.

    Returns:
        None where an engine is no other block's: a converter is the program's own, or the graph holds an unknown
        object.
    """
    try:
        facts = [
            _SameMemory(request.block, request.bounds, True, request.followed).describe(),
            [[str(input_.dtype), input_.profiles] for input_ in request.inputs],
        ]
    except _NoKeyError:
        return None
    return json.dumps(facts, sort_keys=True)


def _tensorrt() -> list[str]:
    """Returns the TensorRT in use, and the code behind its entry point if it came through one."""
    implementation = selection.implementation()
    if implementation is None:
        return [selection.describe()]
    return [selection.describe(), _fingerprint(implementation.__name__)]


@functools.cache
def _fingerprint(package: str) -> str:
    """Returns a text that changes with a package's code, even if its version stays."""
    path = getattr(sys.modules.get(package), "__file__", None)
    if path is None:
        raise _NoKeyError(package)
    digest = hashlib.sha256()
    folder = Path(path).parent
    files = sorted(folder.rglob("*.py")) if Path(path).name == "__init__.py" else [Path(path)]
    for file in files:
        digest.update(
            file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0"
        )
    return digest.hexdigest()


class _Graph:
    """One block: its nodes by number, its symbols by the order in which they come."""

    def __init__(
        self,
        block: GraphModule,
        bounds: Mapping[Any, Bounds],
        has_weight_names: bool,
        replaceable: Mapping[str, torch.Tensor],
    ) -> None:
        self.block = block
        self.bounds = bounds
        self.has_weight_names = has_weight_names
        self.replaceable = replaceable
        self.memories: dict[int, int] = {}
        self.symbols: dict[Any, Any] = {}
        self.digests: dict[int, tuple[torch.Tensor, str]] = {}

    def describe(self) -> Any:
        """Returns data on the nodes, the ranges of their symbols, and the assumptions on these."""
        nodes = self.module(self.block)
        environment: Any = shape_env_of(self.block.graph)
        symbols = dict(self.symbols)
        ranges = environment.var_to_range if environment else {}
        guards = environment.guards if environment else []
        assumptions = [environment.replace(guard.expr) for guard in guards]
        return [
            nodes,
            [
                [str(new), str(self.bounds.get(old, ranges.get(old)))]
                for old, new in symbols.items()
            ],
            sorted(
                self.expression(assumption)
                for assumption in assumptions
                if assumption.free_symbols <= set(symbols)
            ),
        ]

    def module(self, module: GraphModule) -> list[Any]:
        numbers: dict[Node, int] = {}
        described = []
        for node in module.graph.nodes:
            described.append(self.node(module, node, numbers))
            numbers[node] = len(numbers)
        return described

    def node(self, module: GraphModule, node: Node, numbers: dict[Node, int]) -> list[Any]:
        """Returns data on a node: its kind, its op, its arguments, its value and its converter."""
        described_value = self.value(node.meta.get("val"), numbers)
        if node.op == "placeholder":
            return ["placeholder", described_value]
        if node.op == "get_attr":
            value = attrgetter(str(node.target))(module)
            name = self.weight_name(node)
            if name in self.replaceable:
                return ["get_attr", name, self.layout(value)]
            return ["get_attr", name, self.value(value, numbers)]
        target = "" if node.op == "output" else qualified_name(node.target)
        arguments = self.value([node.args, dict(sorted(node.kwargs.items()))], numbers)
        return [node.op, target, arguments, described_value, _converter(node)]

    def weight_name(self, node: Node) -> str:
        """Returns the name of a weight if the engine keeps it."""
        return str(node.target) if self.has_weight_names else ""

    def value(self, value: Any, numbers: dict[Node, int]) -> Any:
        """Returns data that is equal for equal values, and for no others."""
        match value:
            case Node():
                return ["node", numbers[value]]
            case GraphModule():
                return ["graph", self.module(value)]
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return ["symbolic", self.expression(value.node.expr)]
            case torch.Tensor():
                return self.tensor(value)
            case list() | tuple() | slice() | dict():
                return self.container(value, numbers)
        return _constant(value)

    def container(self, value: Any, numbers: dict[Node, int]) -> list[Any]:
        """Returns the kind of a container, and data for what is in it."""
        match value:
            case list():
                return ["list", *(self.value(part, numbers) for part in value)]
            case tuple():
                return ["tuple", *(self.value(part, numbers) for part in value)]
            case slice():
                parts = value.start, value.stop, value.step
                return ["slice", *(self.value(part, numbers) for part in parts)]
            case _:
                items = value.items()
                return ["dict", *([str(key), self.value(part, numbers)] for key, part in items)]

    def tensor(self, value: torch.Tensor) -> list[Any]:
        shape: tuple[Any, ...] = tuple(value.shape)
        sizes = [
            self.expression(size.node.expr) if isinstance(size, torch.SymInt) else size
            for size in shape
        ]
        described = [str(value.dtype), value.device.type, sizes]
        return described if hasattr(value, "fake_mode") else [*described, self.content(value)]

    def layout(self, value: torch.Tensor) -> list[Any]:
        """Returns data on a replaceable weight: not its values, but with which other weights it shares memory."""
        memory = self.memories.setdefault(value.untyped_storage()._cdata, len(self.memories))
        layout = list(value.shape), list(value.stride()), value.storage_offset()
        return [str(value.dtype), value.device.type, *layout, memory]

    def content(self, value: torch.Tensor) -> str:
        if id(value) not in self.digests:
            self.digests[id(value)] = value, digest(value)
        return self.digests[id(value)][1]

    def expression(self, expression: Any) -> str:
        """Returns an expression in which symbols are named after the order in which they came."""
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol not in self.symbols:
                name = f"{str(symbol).rstrip('0123456789')}{len(self.symbols)}"
                self.symbols[symbol] = sympy.Symbol(name, **symbol.assumptions0)
        return str(sympy.srepr(expression.xreplace(self.symbols)))


class _SameMemory(_Graph):
    """One block, whose large weights are described by the memory that they are in."""

    def weight_name(self, node: Node) -> str:
        """Returns the name of a weight that may get other values."""
        name = str(node.target)
        return name if name in self.replaceable else ""

    def layout(self, value: torch.Tensor) -> list[Any]:
        return [*super().layout(value), value.untyped_storage()._cdata]

    def content(self, value: torch.Tensor) -> str:
        if value.numel() <= GROWTH_LIMIT:
            return super().content(value)
        return str((value.data_ptr(), value.untyped_storage()._cdata, value.stride()))


def _constant(value: Any) -> list[Any]:
    """Returns data for a value that a graph holds by itself: a number, text, a dtype or an op."""
    match value:
        case None | bool() | int() | str():
            return [type(value).__name__, value]
        case float() | complex():
            return [type(value).__name__, repr(value)]
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return ["torch", str(value)]
        case _ if isinstance(value, OperatorBase):
            return ["op", qualified_name(value)]
    raise _NoKeyError(value)


def _converter(node: Node) -> list[str]:
    """Returns who converts a node: pack, version, converter, its code, and the compiled kernel that it adds."""
    resolution = resolution_of(node)
    if resolution is None or resolution.chosen is None:
        return []
    chosen = resolution.chosen
    if chosen.pack.name == LOCAL:
        raise _NoKeyError(chosen)
    package = str(getattr(chosen.converter, "__module__", "")).partition(".")[0]
    return [
        chosen.pack.name,
        chosen.pack.version,
        chosen.qualified_function,
        _fingerprint(package),
        kernel_digest(node),
    ]
