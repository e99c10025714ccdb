"""An engine as a PyTorch module."""

from __future__ import annotations

import copy
import operator
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torchtrt.conversion.inputs import InputProfile, Ranges, engine_profiles
from torchtrt.errors import EngineError
from torchtrt.tensorrt import Capability, supports, to_torch_dtype
from torchtrt.tensorrt.logging import ErrorLog, unclaimed_errors
from torchtrt.tensorrt.selection import (
    current,
    describe,
    describe_gpu,
    device_objection,
    use_module,
)
from torchtrt_kernels.operators import PluginKey
from torchtrt_kernels.tensorrt_plugins import take_kernel_error
from torchtrt_runtime.checks.tensors import make_tensor_matcher, never_matches
from torchtrt_runtime.modules.execution_memory import ExecutionMemory
from torchtrt_runtime.modules.kept_outputs import KeptOutputs
from torchtrt_runtime.modules.loaded_engines import LoadedEngine, load_plan
from torchtrt_runtime.modules.output_allocation import make_output_allocator
from torchtrt_runtime.processes.groups import (
    Collective,
    communicator_of,
    engine_failure,
    process_group,
)
from torchtrt_runtime.runtime_settings import RuntimeSettings
from torchtrt_runtime.size_ranges import has_shapes
from torchtrt_runtime.torch_internals import (
    DisableTorchDispatch,
    device_in_use,
    empty_strided_of,
    stream_in_use,
)
from torchtrt_runtime.weights.recipe import Recipe
from torchtrt_runtime.weights.stripped import StrippedWeights

_LIVE = frozenset({"tensorrt_module", "kept_outputs", "_lock", "_loaded", "_idle", "_recorded"})
"""Attributes that are made anew where a module is loaded or copied."""
_DROPPED_WHILE_CAPTURING: list[dict[str, Any]] = []
"""The contents of executions that were dropped while a CUDA graph was captured: freeing them would end the capture."""
_STREAMS = 16
"""The most CUDA streams for which a module keeps execution contexts."""


@dataclass(slots=True)
class _EngineInput:
    """An input of an engine in one execution context.

    Attributes:
        name: Its name in the engine.
        dtype: The dtype that the engine reads.
        address: The address that the context has; -1 where it has none.
    """

    name: str
    dtype: torch.dtype
    address: int = -1


class _EngineOutput(NamedTuple):
    """An output of an engine.

    Attributes:
        name: Its name in the engine.
        dtype: The dtype that the engine writes.
        wanted: The dtype that the module returns.
    """

    name: str
    dtype: torch.dtype
    wanted: torch.dtype


class _Execution:
    """One execution context of an engine, with the addresses, shapes and profile that were set last.

    Args:
        module: Whose engine it runs.
        device: Where its inputs are.
        loaded: The engine, if another execution has loaded it.
    """

    def __init__(
        self, module: EngineModule, device: torch.device, loaded: LoadedEngine | None
    ) -> None:
        self.module = module
        self.device = device
        self.empty = empty_strided_of(device.type)
        self.no_elements = self.empty((256,), (1,), torch.uint8)
        self.nowhere = self.no_elements.data_ptr()  # of empty tensors, whose own address is null
        self.loaded, self.context = self._new_context(loaded)
        engine = self.loaded.engine
        self.inputs = [
            _EngineInput(spec.name, to_torch_dtype(engine.get_tensor_dtype(spec.name)))
            for spec in module.inputs
        ]
        self.outputs = [
            _EngineOutput(name, to_torch_dtype(engine.get_tensor_dtype(name)), wanted)
            for name, wanted in module.outputs.items()
        ]
        self.wanted_dtypes = [output.wanted for output in self.outputs]
        self.widens = any(output.dtype is not output.wanted for output in self.outputs)
        self.memory = None
        if module.runtime_settings.share_execution_memory:
            self.memory = ExecutionMemory(engine, self.context, device)
        self.caches = self._find_caches() if supports(Capability.KV_CACHE_UPDATE) else {}
        self.profiles = module.profiles or engine_profiles(module.inputs)
        self.pinned_profile = module.pinned_profile
        self.shapes: list[torch.Size] | None = None
        self.matches: Callable[..., bool] = never_matches
        self.layouts: list[tuple[str, tuple[Any, Any, torch.dtype]]] = []
        self.overwrites = module.runtime_settings.overwrite_results
        self.exchanges = bool(module.collectives)
        self.group: Any = None  # of the processes among which it exchanges tensors
        self.allocators = []
        for name in module.outputs if module.requires_output_allocator else ():
            self.allocators.append(make_output_allocator(device))
            self.context.set_output_allocator(name, self.allocators[-1])

    def _new_context(self, loaded: LoadedEngine | None) -> tuple[LoadedEngine, Any]:
        """Returns a new execution context, and the engine that it is of.

        Raises:
            EngineError: TensorRT refuses the plan, or has no memory for a context.
        """
        module = self.module
        if len(module.profiles) > 1 and not supports(Capability.SHARED_PROFILES):
            loaded = None  # its contexts would take the profiles from each other
        settings = module.runtime_settings
        with ErrorLog() as log:
            if loaded is None:
                loaded = module.deserialize(self.device)
            context = loaded.engine and settings.new_context(loaded.engine, module.plan)
            if context and context.active_optimization_profile < 0:
                # A plan of other settings: its profile serves one context, so this one gets an engine of its own.
                loaded = module.deserialize(self.device)
                context = settings.new_context(loaded.engine, module.plan)
        if context is None:
            message = f"{describe()} could not load the engine of {module.name}: {log.text()}"
            raise EngineError(message)
        return loaded, context

    def _find_caches(self) -> dict[int, int]:
        """Returns the outputs that are updated caches, each with the input that is the cache, by their indices."""
        indices = {bound.name: index for index, bound in enumerate(self.inputs)}
        names = (output.name for output in self.outputs)
        sources = map(self.loaded.engine.get_aliased_input_tensor, names)
        return {index: indices[name] for index, name in enumerate(sources) if name}

    def _share_caches(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> None:
        """Gives each cache to the engine as a copy in the memory of its output, into which the engine writes."""
        for index, source in self.caches.items():
            outputs[index].copy_(inputs[source])
            bound = self.inputs[source]
            self.context.set_tensor_address(bound.name, outputs[index].data_ptr() or self.nowhere)
            bound.address = -1

    def __del__(self) -> None:
        # The next execution that is made frees it.
        on_cuda = self.device.type == "cuda" and not sys.is_finalizing()
        if on_cuda and torch.cuda.is_current_stream_capturing():
            _DROPPED_WHILE_CAPTURING.append(vars(self))

    def run(self, inputs: Sequence[torch.Tensor], stream: int) -> tuple[torch.Tensor, ...]:
        """Enqueues the engine on a stream, and returns its outputs."""
        context = self.context
        if not self.matches(*inputs):
            inputs = self._prepared(inputs, stream)  # alive until the engine has been enqueued
        for tensor, bound in zip(inputs, self.inputs):  # noqa: B905  (as many as there are shapes)
            address = tensor.data_ptr()
            if address != bound.address:
                context.set_tensor_address(bound.name, address or self.nowhere)
                bound.address = address
        outputs = []
        kept = self.overwrites and self.module.kept_outputs.take(
            (self.device, stream), self.module.calls, self.layouts, self.empty
        )
        for name, layout in self.layouts:
            output = kept[name] if kept else self.empty(*layout)
            context.set_tensor_address(name, output.data_ptr() or self.nowhere)
            outputs.append(output)
        if self.caches:
            self._share_caches(inputs, outputs)
        lent = self.memory and self.memory.lend()
        if self.exchanges:
            self._join_processes()
        if not context.execute_async_v3(stream):
            cause = take_kernel_error() if self.module.plugins else None
            failure = engine_failure(self.module.name, unclaimed_errors(), self.exchanges)
            raise failure from cause
        del lent  # what comes next on this stream may have it
        if self.allocators:
            outputs = [
                allocator.take(output.dtype)
                for allocator, output in zip(self.allocators, self.outputs, strict=True)
            ]
        if self.widens:
            return tuple(map(torch.Tensor.to, outputs, self.wanted_dtypes))
        return tuple(outputs)

    def _join_processes(self) -> None:
        """Gives the context the communicator of the processes, once for each process group that PyTorch makes."""
        group = process_group()
        if group is self.group:
            return
        with use_module(self.module.tensorrt_module), ErrorLog() as log:
            if not self.context.set_communicator(communicator_of(group, self.device)):
                raise engine_failure(self.module.name, log.text(), True)
        self.group = group

    def _prepared(self, inputs: Sequence[torch.Tensor], stream: int) -> Sequence[torch.Tensor]:
        """Returns inputs as the engine takes them, and sets their shapes in the context."""
        self.matches = never_matches
        name = self.module.name
        for tensor in inputs:
            if tensor.device != self.device:
                message = f"The inputs of {name} are on {self.device} and {tensor.device}; move them to one device."
                raise EngineError(message)
        shapes = [tensor.shape for tensor in inputs]
        if shapes != self.shapes:
            self._set_shapes(shapes, stream)
        taken = []
        for tensor, bound in zip(inputs, self.inputs, strict=True):
            # 64 bits become 32 where TensorRT has no more. Fractions would be cut off.
            if tensor.is_floating_point() and not bound.dtype.is_floating_point:
                raise EngineError(
                    f"PyTorch computed {tensor.dtype} for the input {bound.name!r} of {name}, and had traced it as an "
                    f"integer. Convert it in the model, with .to({tensor.dtype}), before it is used."
                )
            # Zeros of PyTorch's forward mode have no memory.
            stored = tensor.clone() if tensor._is_zerotensor() else tensor
            taken.append(stored.to(bound.dtype).resolve_neg().contiguous())
        if all(map(operator.is_, taken, inputs)):
            self.matches = make_tensor_matcher(inputs)
        return taken

    def _select_profile(self, shapes: list[torch.Size], stream: int) -> None:
        """Switches to the pinned profile, or else to the first one that takes these shapes."""
        chosen = self.pinned_profile
        if chosen is None:
            indices = range(len(self.profiles))
            chosen = next(
                (index for index in indices if has_shapes(self.profiles[index], shapes)), None
            )
        if chosen is not None and self.context.active_optimization_profile != chosen:
            self.context.set_optimization_profile_async(chosen, stream)
            for bound in self.inputs:
                bound.address = -1

    def _set_shapes(self, shapes: list[torch.Size], stream: int) -> None:
        """Sets the shapes of the inputs in the context, and reads those of its outputs.

        Raises:
            EngineError: The engine was not built for these shapes.
        """
        self.shapes = None
        name = self.module.name
        if len(self.profiles) > 1:
            self._select_profile(shapes, stream)
        for spec, shape in zip(self.module.inputs, shapes, strict=True):
            with ErrorLog() as log:
                accepted = self.context.set_input_shape(spec.name, tuple(shape))
            if not accepted:
                ranges = (f"({', '.join(map(str, sizes))})" for sizes in spec.profiles)
                raise EngineError(
                    f"The engine of {name} refused the shape {tuple(shape)} of its input {spec.name!r}; it was built "
                    f"for {' or '.join(dict.fromkeys(ranges))}: {log.text()}."
                )
        try:
            missing = self.context.infer_shapes()
        except RuntimeError as error:
            message = f"The engine of {name} has no result for these shapes: {error}"
            raise EngineError(message) from error
        if missing:
            raise EngineError(f"The engine of {name} lacks the shapes of {', '.join(missing)}.")
        if self.memory:
            self.memory.fit()
        if not self.allocators:
            self.layouts = []
            for output in self.outputs:
                sizes = tuple(self.context.get_tensor_shape(output.name))
                like = torch.empty(sizes, device="meta")
                self.layouts.append((output.name, (sizes, like.stride(), output.dtype)))
        self.shapes = shapes


class EngineModule(torch.nn.Module):
    """Runs one engine on PyTorch tensors.

    Args:
        plan: The serialized engine: bytes, or anything with a buffer of them. Copies of the module share it.
        inputs: The profile of each input, in the order that ``forward`` takes them.
        outputs: The dtype of each of the engine's outputs, by name, in the order that ``forward`` returns them; 64-bit
            types that the engine lacks are restored.
        requires_output_allocator: Whether an output's size depends on the data.
        name: The block's name, for messages.
        converted_by: For each node, the pack and version that converted it.
        gpu: The GPU that it was built for; the one in use if omitted.
        recipe: How its weights follow from the attributes of the compiled graph, if they can be replaced.
        compatible: Where else it runs: ``"version"``, in later TensorRTs; ``"hardware"``, on other GPUs.
        compute_capabilities: The compute capabilities of the GPUs that run it; empty where TensorRT takes none.
        collectives: How it exchanges tensors with other processes, in order.
        plugins: The plugins of packs that it needs.
        stripped: The attributes that its weights follow from, if the plan leaves the weights out. Copies of the module
            share them.

    Attributes:
        tensorrt_module: The module of the TensorRT that loads the plan.
        weight_budget: How many bytes of its weights stay on the GPU if it streams them; ``None`` for what TensorRT
            finds room for.
        runtime_settings: How the runtime executes it.
        calls: How often a call of the model runs it. It has as many execution contexts for a stream, which take turns:
            a CUDA graph of the caller's keeps one for each.
        profiles: The optimization profiles of a plan of another tool; empty for the distinct ones of the inputs.
    """

    calls = 1
    weight_budget: int | None = None
    profiles: tuple[tuple[Ranges, ...], ...] = ()
    runtime_settings = RuntimeSettings()

    def __init__(  # noqa: PLR0913  (a saved file names each of them)
        self,
        plan: Any,
        inputs: Sequence[InputProfile],
        outputs: Mapping[str, torch.dtype],
        requires_output_allocator: bool = False,
        name: str = "block",
        converted_by: Mapping[str, str] | None = None,
        gpu: str | None = None,
        recipe: Recipe | None = None,
        compatible: Sequence[str] = (),
        compute_capabilities: Sequence[str] = (),
        collectives: Sequence[Collective] = (),
        plugins: Sequence[PluginKey] = (),
        stripped: StrippedWeights | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.inputs = tuple(inputs)
        self.outputs = dict(outputs)
        self.requires_output_allocator = requires_output_allocator
        self.name = name
        self.converted_by = dict(converted_by or {})
        self.recipe = recipe
        self.compatible = tuple(compatible)
        self.compute_capabilities = tuple(compute_capabilities)
        self.collectives = tuple(collectives)
        self.plugins = tuple(plugins)
        self.stripped = stripped
        self.tensorrt = describe()
        self.gpu = describe_gpu() if gpu is None else gpu
        self._unload()

    def _unload(self) -> None:
        self.tensorrt_module = current()
        self.kept_outputs = KeptOutputs()
        self._lock = threading.Lock()
        self._loaded: dict[torch.device, LoadedEngine] = {}
        # A context serves one call at a time, and on CUDA one stream: its memory is in use until the stream is done.
        self._recorded: list[_Execution] = []
        self._idle: dict[tuple[torch.device, int], list[_Execution]] = {}

    def reload(self, **changes: Any) -> None:
        """Takes other attributes, such as ``plan`` or ``runtime_settings``, from the next call on."""
        with self._lock:
            vars(self).update(changes)
            self._loaded, self._idle, self.kept_outputs = {}, {}, KeptOutputs()

    @property
    def followed_attributes(self) -> tuple[str, ...]:
        """The names of the compiled graph's attributes that its weights follow from."""
        return () if self.recipe is None else tuple(self.recipe.sources.values())

    @property
    def pinned_profile(self) -> int | None:
        """The engine's profile for the model's profile that the runtime settings pin; ``None`` where they pin none."""
        pinned = self.runtime_settings.optimization_profile
        if pinned is None or self.profiles:
            return pinned
        sizes = tuple(input_.profiles[pinned] for input_ in self.inputs)
        return engine_profiles(self.inputs).index(sizes)

    def deserialize(self, device: torch.device) -> LoadedEngine:
        """Returns the engine, loaded from the plan by a runtime of its own.

        Raises:
            EngineError: As ``load_plan`` does.
        """
        return load_plan(self, device)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the engine's outputs for contiguous or strided inputs on one device.

        Threads run side by side, each with an execution context of its own.

        Raises:
            EngineError: The inputs are not on one device, a shape is outside what the engine was
                built for, or execution failed.
        """
        for tensor in inputs:
            if tensor.is_nested:
                raise EngineError(f"{self.name} got a nested tensor, which no engine takes.")
        device, stream = inputs[0].device, 0
        if inputs[0].is_cuda:
            if device_in_use() != device.index:
                with torch.cuda.device(device):
                    return self.forward(*inputs)
            stream = stream_in_use(device.index)
        idle = self._idle.get((device, stream))
        try:
            execution = idle.pop(0 if self.calls > 1 else -1)  # type: ignore[union-attr]
        except (AttributeError, IndexError):
            idle, execution = self.acquire(device, stream, inputs)
        outputs = execution.run(inputs, stream)
        idle.append(execution)  # type: ignore[union-attr]
        return outputs

    def acquire(
        self, device: torch.device, stream: int, inputs: Sequence[torch.Tensor]
    ) -> tuple[list[_Execution], _Execution]:
        """Returns a new execution for a stream, and the list to append it to after the call."""
        # What is loaded among fake tensors serves the calls after them too.
        with use_module(self.tensorrt_module), self._lock, DisableTorchDispatch():
            if objection := device_objection(device, self.compute_capabilities):
                raise EngineError(f"{self.name} cannot run: {objection}.")
            if stream and torch.cuda.is_current_stream_capturing():
                return [], self._to_record(device, [tensor.shape for tensor in inputs], stream)
            _DROPPED_WHILE_CAPTURING.clear()
            if len(self._idle) > _STREAMS:
                self._idle.pop(next(iter(self._idle)))
            execution = _Execution(self, device, self._loaded.get(device))
            self._loaded[device] = execution.loaded
            others = [_Execution(self, device, execution.loaded) for _ in range(self.calls - 1)]
            idle = self._idle.setdefault((device, stream), [])
            idle.extend(others)
            return idle, execution

    def _to_record(self, device: torch.device, shapes: list[torch.Size], stream: int) -> _Execution:
        """Returns an execution for a CUDA graph of the caller's: it keeps one, which must have run before.

        One that ran with these shapes last has nothing left to set, its profile least of all.
        """
        executions = [
            (idle, execution)
            for (where, _), idle in self._idle.items()
            if where == device
            for execution in reversed(idle)
        ]
        if not executions:
            raise EngineError(
                f"{self.name} has not run yet, and cannot be recorded in a CUDA graph. Call the model once before."
            )
        with_shapes = (pair for pair in executions if pair[1].shapes == shapes)
        idle, execution = next(with_shapes, executions[0])
        idle.remove(execution)
        execution.overwrites = False  # the memory belongs to the CUDA graph
        may_allocate = supports(Capability.USER_ALLOCATION)
        if may_allocate and not execution.context.is_stream_capturable(stream):
            raise EngineError(
                f"{self.name} cannot be captured in a CUDA graph: the engine allocates memory while it runs. Compile "
                "the model with user_allocation=True, or let the runtime capture it, with cuda_graphs='runtime'."
            )
        self._recorded.append(execution)
        return execution

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineModule:
        state = self.__getstate__()
        shared: dict[str, Any] = {name: state.pop(name) for name in ("plan", "stripped")}
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__({**copy.deepcopy(state, memo), **shared})
        copied.tensorrt_module = self.tensorrt_module  # whichever is in use where it is copied
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # The plan is the engine: what was loaded from it stays behind.
        return {key: value for key, value in self.__dict__.items() if key not in _LIVE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._unload()
