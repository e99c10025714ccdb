"""Where the time of a compiled model's call goes: by layer of its engines, by kernel, and by op that stays in PyTorch.

TensorRT reports to a profiler how long each layer took. Where it has made one layer of a whole block, as it does of
transformers, only the kernels that the GPU ran show where the time goes.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch.fx import Node

from torchtrt.errors import InputError, kind_of
from torchtrt.setting_kinds import is_integer
from torchtrt.targets import qualified_name
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.selection import use_module
from torchtrt_compiler.partitioning.blocks import is_scalar
from torchtrt_compiler.torch_internals import DeviceType
from torchtrt_compiler.trial_calls import WARM_UPS, Clock, example_leaves, unchanged
from torchtrt_runtime import CompiledModule, EngineModule

LAYER, KERNEL, OP = "layer", "kernel", "op"
IN_TORCH = "PyTorch"
"""The name for what runs in no engine."""

_WHOLE = "ForeignNode"
"""In the name of a layer that stands for a part of the network which TensorRT compiled as one."""
_PARTS = re.compile(r"[\w.]+/(\w+)")
"""In a layer's name: an op, and the node that was converted."""


@dataclass(frozen=True)
class ProfileEntry:
    """Something that takes time in a call.

    Attributes:
        runs_in: The engine's name in the compiled module, or ``"PyTorch"``.
        kind: ``"layer"`` of an engine, ``"kernel"`` that the GPU ran for a layer which is most of an engine, or
            ``"op"`` in PyTorch.
        name: The layer's name as TensorRT has it, the kernel's, or the op's qualified name.
        milliseconds: The median time per call.
        nodes: The nodes of the model's graph that it computes, as far as its name contains them.
        calls: How often it runs in one call.
        position: Its position in the order of the first call, from 0; -1 for kernels, whose order is unknown.
    """

    runs_in: str
    kind: str
    name: str
    milliseconds: float
    nodes: tuple[str, ...] = ()
    calls: int = 1
    position: int = -1


@dataclass(frozen=True)
class CallProfile:
    """Where the time of a call goes. Printing it with rich shows a table.

    Attributes:
        tensorrt: The TensorRT that ran.
        device: Where the inputs were.
        calls: How many calls were measured.
        milliseconds: The median time of a whole call, measured without looking inside.
        entries: What takes time in a call, the most first. Kernels are part of a layer, so that they count twice.
        has_inductor: Whether Inductor compiles what runs in PyTorch, whose ops are measured here as without.
    """

    tensorrt: str
    device: str
    calls: int
    milliseconds: float
    entries: tuple[ProfileEntry, ...] = field(default_factory=tuple)
    has_inductor: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the profile as data that ``json.dumps`` accepts."""
        return dataclasses.asdict(self)

    def to_chrome_trace(self) -> dict[str, Any]:
        """Returns one call in the format of Chrome's traces, as data that ``json.dumps`` accepts.

        Layers and ops follow each other in the order of a call, each with its median time. The order
        and the gaps of kernels are unknown, so they follow each other in a row of their own.

        Source: "Trace Event Format", the Chromium project's description of the files that ``chrome://tracing`` reads.
        """
        entries = sorted(self.entries, key=lambda entry: entry.position)
        rows: dict[str, int] = {}
        events: list[dict[str, Any]] = []
        start = {"parts": 0.0}
        for entry in entries:
            is_kernel = entry.position < 0
            row = f"kernels of {entry.runs_in}" if is_kernel else entry.runs_in
            clock = row if is_kernel else "parts"
            begin = start.get(clock, 0.0)
            duration = entry.milliseconds * 1e3
            start[clock] = begin + duration
            events.append(
                {
                    "name": entry.name,
                    "cat": entry.kind,
                    "ph": "X",
                    "ts": begin,
                    "dur": duration,
                    "pid": 0,
                    "tid": rows.setdefault(row, len(rows)),
                    "args": {"nodes": list(entry.nodes), "calls": entry.calls},
                }
            )
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": row}}
            for row, number in rows.items()
        ]
        about = {
            "tensorrt": self.tensorrt,
            "device": self.device,
            "calls": self.calls,
            "milliseconds": self.milliseconds,
        }
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ms", "otherData": about}

    def __rich_console__(self, *_: object) -> Iterator[object]:
        """Yields tables. Only rich calls this, so rich is installed."""
        from torchtrt_compiler.measuring.tables import tables_of

        yield from tables_of(self)


def profile(
    compiled: torch.nn.Module, *inputs: Any, calls: int = 20, **kwarg_inputs: Any
) -> CallProfile:
    """Returns where the time of calls with these inputs goes.

    The model's buffers and the inputs are what they were before, and so each call finds them. TensorRT waits for each
    layer while it is looked at, so that layers take longer than in a call, and their sum is more than ``milliseconds``.

    Args:
        compiled: What ``torchtrt.compile`` or ``torchtrt.load`` returned.
        *inputs: The inputs of a call. Without any, tensors of the sizes that the engines are optimized for.
        calls: How many calls to measure. Each is made twice: as a whole, and in parts.
        **kwarg_inputs: The keyword inputs of a call.

    Raises:
        InputError: The model was not compiled, ``calls`` is no positive number, or the inputs do not fit.
    """
    if not isinstance(compiled, CompiledModule):
        message = f"profile() takes what torchtrt.compile returned, not {kind_of(compiled)}: compile it first."
        raise InputError(message)
    if not is_integer(calls, 1):
        raise InputError(f"profile() measures at least one call, and was asked for {calls!r}.")
    if not inputs and not kwarg_inputs:
        leaves = example_leaves(compiled)
    else:
        compiled.checks.check(leaves := list(compiled.flatten(inputs, kwarg_inputs)))
    leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    clock = Clock.of(leaves)
    whole, profiler = [], _Profiler(compiled, clock)
    with torch.no_grad(), unchanged(compiled.graph_module, leaves) as restore:
        for _ in range(WARM_UPS):
            restore()
            compiled.run_graph(leaves)
        for _ in range(calls):
            restore()
            whole.append(clock.measure(lambda: compiled.run_graph(leaves))[1])
        for _ in range(calls):
            restore()
            profiler.run(leaves)
    entries = sorted(profiler.entries(calls), key=lambda entry: -entry.milliseconds)
    return CallProfile(
        compiled.report.tensorrt,
        str(clock.device),
        calls,
        statistics.median(whole),
        tuple(entries),
        has_inductor=bool(compiled.settings.inductor),
    )


@dataclass(frozen=True)
class _Part:
    """The subject of an entry."""

    owner: str
    kind: str
    name: str
    nodes: tuple[str, ...] = ()


class _Profiler(torch.fx.Interpreter):
    """Runs a compiled graph node by node, and notes the milliseconds of each part, call by call."""

    def __init__(self, compiled: CompiledModule, clock: Clock) -> None:
        super().__init__(compiled.graph_module)
        self.clock = clock
        self.engines = {
            name: _ProfiledEngine(name, module)
            for name, module in compiled.graph_module.named_modules()
            if isinstance(module, EngineModule)
        }
        self.seen: dict[_Part, list[float]] = {}
        self.counts: dict[_Part, int] = {}

    def run(self, leaves: Sequence[Any]) -> Any:  # type: ignore[override]
        """Makes one call."""
        self.now: dict[_Part, list[float]] = {}
        for engine in self.engines.values():
            engine.inputs.clear()
        result = super().run(*leaves)
        for part, times in self.now.items():
            self.seen.setdefault(part, []).append(sum(times))
            self.counts[part] = len(times)
        return result

    def call_module(self, target: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Runs an engine, and notes its layers."""
        engine = self.engines.get(str(target))
        if engine is None:
            return super().call_module(target, args, dict(kwargs))
        outputs = engine.run(args)
        self.clock.wait()
        for part, milliseconds in engine.take():
            self.note(part, milliseconds)
        return outputs

    def run_node(self, n: Node) -> Any:
        """Runs a node, and notes it where it is an op in PyTorch."""
        if n.op != "call_function" or n.target is getitem or is_scalar(n):
            return super().run_node(n)
        result, milliseconds = self.clock.measure(lambda: super(_Profiler, self).run_node(n))
        self.note(_Part(IN_TORCH, OP, qualified_name(n.target), (n.name,)), milliseconds)
        return result

    def note(self, part: _Part, milliseconds: float) -> None:
        self.now.setdefault(part, []).append(milliseconds)

    def entries(self, calls: int) -> Iterator[ProfileEntry]:
        """Yields what was noted, and the kernels of engines that are one layer."""
        for position, (part, times) in enumerate(self.seen.items()):
            yield ProfileEntry(
                part.owner,
                part.kind,
                part.name,
                statistics.median(times),
                part.nodes,
                self.counts[part],
                position,
            )
        for engine in self.engines.values():
            names = {part.name for part in self.seen if part.owner == engine.name}
            if self.clock.device.type == "cuda" and (
                len(names) == 1 or any(_WHOLE in name for name in names)
            ):
                yield from engine.kernels(calls)


class _ProfiledEngine:
    """An engine in an execution context that reports the times of its layers."""

    def __init__(self, name: str, module: EngineModule) -> None:
        self.name, self.module = name, module
        self.execution: Any = None
        self.times: list[tuple[str, float]] = []
        self.inputs: list[Sequence[torch.Tensor]] = []  # of each of its runs in a call

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Runs the engine on the current stream."""
        self.inputs.append(inputs)
        device = inputs[0].device
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        if self.execution is None:
            _, self.execution = self.module.acquire(device, stream, inputs)
            with use_module(self.module.tensorrt_module):
                self.execution.context.profiler = self.listener = _listener(self.times)
        outputs: tuple[torch.Tensor, ...] = self.execution.run(inputs, stream)
        return outputs

    def take(self) -> Iterator[tuple[_Part, float]]:
        """Yields the layers of the last run."""
        for name, milliseconds in self.times:
            nodes = [
                node_name
                for node_name in _PARTS.findall(name)
                if node_name in self.module.converted_by
            ]
            yield _Part(self.name, LAYER, name, tuple(dict.fromkeys(nodes))), milliseconds
        self.times.clear()

    def kernels(self, calls: int) -> Iterator[ProfileEntry]:
        """Yields the kernels that the GPU runs for the engine, as PyTorch's profiler sees them."""
        self.execution.context.profiler = None
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as seen:
            for _ in range(calls):
                for inputs in self.inputs:
                    self.module(*inputs)
            torch.cuda.synchronize()
        for event in seen.key_averages():
            if event.device_type == DeviceType.CUDA:
                milliseconds = event.device_time_total / calls / 1e3
                yield ProfileEntry(
                    self.name, KERNEL, event.key, milliseconds, calls=round(event.count / calls)
                )


def _listener(times: list[tuple[str, float]]) -> Any:
    """Returns what receives the time of each layer from TensorRT; its class is made of the TensorRT in use."""

    class Listener(trt.IProfiler):  # type: ignore[misc]
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.append((layer_name, ms))

    return Listener()
