"""An engine as a PyTorch module."""

from __future__ import annotations

import copy
import itertools
import operator
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._C._dynamo import guards as _guards

from torchtrt.conversion.size_ranges import InputProfile, SizeRange, engine_profiles
from torchtrt.errors import EngineError
from torchtrt.runtime.input_checks import matcher_of, unlike
from torchtrt.runtime.output_allocation import make_output_allocator
from torchtrt.tensorrt import is_real, to_torch_dtype, trt
from torchtrt.tensorrt.logging import collecting, logger, unclaimed_errors
from torchtrt.tensorrt.selection import current, describe, describe_gpu, use_module

_LIVE = frozenset({"_tensorrt", "_lock", "_loaded", "_idle", "_recorded"})
"""Attributes that are made anew where a module is loaded or copied."""
_LEFT: list[dict[str, Any]] = []
"""What executions had that were dropped while something was recorded."""
_STREAMS = 16
"""The most CUDA streams for which a module keeps execution contexts."""


class _Execution:
    """One execution context of an engine, and what it was told last.

    Args:
        module: Whose engine it runs.
        device: Where its inputs are.
        loaded: The runtime and the engine, if another execution has them.
    """

    def __init__(self, module: EngineModule, device: torch.device, loaded: Any) -> None:
        self.module, self.device = module, device
        # What code that PyTorch compiles allocates with, in half the time.
        self.empty = getattr(_guards, f"_empty_strided_{device.type}")
        self.no_elements = self.empty((256,), (1,), torch.uint8)
        self.nowhere = self.no_elements.data_ptr()  # of empty tensors, whose own address is null
        with collecting() as log:
            # An engine makes contexts only as long as its runtime lives.
            self.loaded = loaded or module.deserialize(device)
            self.context = self.loaded[1] and self.loaded[1].create_execution_context()
            if self.context and self.context.active_optimization_profile < 0:
                # A plan of other settings: its profile serves one context, so this one gets an engine of its own.
                self.loaded = module.deserialize(device)
                self.context = self.loaded[1].create_execution_context()
        if self.context is None:
            message = f"{describe()} could not load the engine of {module.name}: {log.text()}"
            raise EngineError(message)
        engine = self.loaded[1]
        # Of each input its name, its dtype, and the address that the context has.
        self.inputs: list[list[Any]] = [
            [spec.name, to_torch_dtype(engine.get_tensor_dtype(spec.name)), -1]
            for spec in module.inputs
        ]
        self.outputs = [
            (name, to_torch_dtype(engine.get_tensor_dtype(name)), dtype)
            for name, dtype in module.outputs.items()
        ]
        self.widens = any(dtype is not wanted for _, dtype, wanted in self.outputs)
        self.profiles = engine_profiles(module.inputs)
        self.shapes: list[torch.Size] | None = None
        self.matches: Callable[..., bool] = unlike
        self.layouts: list[tuple[str, tuple[Any, Any, torch.dtype]]] = []
        self.allocators = []
        for name in module.outputs if module.requires_output_allocator else ():
            self.allocators.append(make_output_allocator(device))
            self.context.set_output_allocator(name, self.allocators[-1])

    def __del__(self) -> None:
        # Freeing it would end what this stream records; the next one that is made frees it.
        on_cuda = self.device.type == "cuda" and not sys.is_finalizing()
        if on_cuda and torch.cuda.is_current_stream_capturing():
            _LEFT.append(vars(self))

    def run(self, inputs: Sequence[torch.Tensor], stream: int) -> tuple[torch.Tensor, ...]:
        """Enqueues the engine on a stream, and returns its outputs."""
        context = self.context
        if not self.matches(*inputs):
            inputs = self._prepared(inputs, stream)  # alive until the engine has been enqueued
        for tensor, known in zip(inputs, self.inputs):  # noqa: B905  (as many as there are shapes)
            address = tensor.data_ptr()
            if address != known[2]:
                context.set_tensor_address(known[0], address or self.nowhere)
                known[2] = address
        outputs = []
        for name, layout in self.layouts:
            output = self.empty(*layout)
            context.set_tensor_address(name, output.data_ptr() or self.nowhere)
            outputs.append(output)
        if not context.execute_async_v3(stream):
            raise EngineError(f"The engine of {self.module.name} failed: {unclaimed_errors()}")
        if self.allocators:
            outputs = [each.take(spec[1]) for each, spec in zip(self.allocators, self.outputs)]  # noqa: B905
        if self.widens:
            return tuple(map(torch.Tensor.to, outputs, self.module.outputs.values()))
        return tuple(outputs)

    def _prepared(self, inputs: Sequence[torch.Tensor], stream: int) -> Sequence[torch.Tensor]:
        """Returns inputs as the engine takes them, and tells the context their shapes."""
        self.matches = unlike
        name = self.module.name
        for tensor in inputs:
            if tensor.device != self.device:
                message = f"The inputs of {name} are on {self.device} and {tensor.device}; move them to one device."
                raise EngineError(message)
        shapes = [tensor.shape for tensor in inputs]
        if shapes != self.shapes:
            self._set_shapes(shapes, stream)
        taken = []
        for tensor, (own, dtype, _) in zip(inputs, self.inputs, strict=True):
            # 64 bits become 32 where TensorRT has no more. Fractions would be cut off.
            if tensor.is_floating_point() and not dtype.is_floating_point:
                raise EngineError(
                    f"PyTorch computed {tensor.dtype} for the input {own!r} of {name}, and had traced it as an "
                    f"integer. Convert it in the model, with .to({tensor.dtype}), before it is used."
                )
            # Zeros of PyTorch's forward mode have no memory.
            stored = tensor.clone() if tensor._is_zerotensor() else tensor
            taken.append(stored.to(dtype).resolve_neg().contiguous())
        if all(map(operator.is_, taken, inputs)):
            self.matches = matcher_of(inputs)
        return taken

    def _select_profile(self, shapes: list[torch.Size], stream: int) -> None:
        """Switches to the first profile that takes these shapes, unless the one in use does."""
        sizes = list(itertools.chain(*shapes))
        fitting = [
            place
            for place, profile in enumerate(self.profiles)
            if all(map(SizeRange.takes, itertools.chain(*profile), sizes))
        ]
        if fitting and self.context.active_optimization_profile not in fitting:
            self.context.set_optimization_profile_async(fitting[0], stream)
            for known in self.inputs:
                known[2] = -1

    def _set_shapes(self, shapes: list[torch.Size], stream: int) -> None:
        self.shapes = None
        name = self.module.name
        if len(self.profiles) > 1:
            self._select_profile(shapes, stream)
        for spec, shape in zip(self.module.inputs, shapes, strict=True):
            with collecting() as log:
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
        if not self.allocators:
            self.layouts = []
            for output, dtype, _ in self.outputs:
                like = torch.empty(tuple(self.context.get_tensor_shape(output)), device="meta")
                self.layouts.append((output, (tuple(like.shape), like.stride(), dtype)))
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
        weights: How its weights follow from the attributes of the compiled graph, if they can be replaced.
        compatible: Where else it runs: ``"version"``, in later TensorRTs; ``"hardware"``, on other GPUs.

    Attributes:
        weight_budget: How many bytes of its weights stay on the GPU if it streams them; ``None`` for what TensorRT
            finds room for.
    """

    weight_budget: int | None = None

    def __init__(
        self,
        plan: Any,
        inputs: Sequence[InputProfile],
        outputs: Mapping[str, torch.dtype],
        requires_output_allocator: bool = False,
        name: str = "block",
        converted_by: Mapping[str, str] | None = None,
        gpu: str | None = None,
        weights: Mapping[str, Any] | None = None,
        compatible: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.plan = plan
        self.inputs = tuple(inputs)
        self.outputs = dict(outputs)
        self.requires_output_allocator = requires_output_allocator
        self.name = name
        self.converted_by = dict(converted_by or {})
        self.weights = weights
        self.compatible = tuple(compatible)
        self.tensorrt = describe()
        self.gpu = describe_gpu() if gpu is None else gpu
        self._unload()

    def _unload(self) -> None:
        self._tensorrt = current()
        self._lock = threading.Lock()
        self._loaded: dict[torch.device, tuple[Any, Any]] = {}  # runtime and engine
        # A context serves one call at a time, and on CUDA one stream: its memory is in use until the stream is done.
        self._recorded: list[_Execution] = []
        self._idle: dict[tuple[torch.device, int], list[_Execution]] = {}

    def reload(self, **changes: Any) -> None:
        """Takes another ``plan`` or ``weight_budget``, from the next call on."""
        with self._lock:
            vars(self).update(changes)
            self._loaded, self._idle = {}, {}

    def deserialize(self, device: torch.device) -> tuple[Any, Any]:
        """Returns a runtime, and the engine that it loaded from the plan: None where TensorRT refused it."""
        runtime = trt.Runtime(logger())
        if not is_real():
            runtime.torch_device = device
        if "version" in self.compatible:  # the plan brings the code that runs it
            runtime.engine_host_code_allowed = True
        engine = runtime.deserialize_cuda_engine(self.plan)
        if engine is not None and getattr(engine, "streamable_weights_size", False):
            budget, automatic = self.weight_budget, engine.get_weight_streaming_automatic_budget
            engine.weight_streaming_budget_v2 = automatic() if budget is None else budget
        return runtime, engine

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
            if torch._C._cuda_getDevice() != device.index:
                with torch.cuda.device(device):
                    return self.forward(*inputs)
            stream = torch._C._cuda_getCurrentRawStream(device.index)
        idle = self._idle.get((device, stream))
        try:
            execution = idle.pop()  # type: ignore[union-attr]
        except (AttributeError, IndexError):
            idle, execution = self._load(device, stream, inputs)
        outputs = execution.run(inputs, stream)
        idle.append(execution)  # type: ignore[union-attr]
        return outputs

    def _load(
        self, device: torch.device, stream: int, inputs: Sequence[torch.Tensor]
    ) -> tuple[list[_Execution], _Execution]:
        # What is loaded among fake tensors serves the calls after them too.
        with use_module(self._tensorrt), self._lock, torch._C._DisableTorchDispatch():
            takes = "CUDA" if is_real() else "CUDA and CPU"
            if device.type.upper() not in takes:
                message = f"{describe()} runs on {takes} tensors, but {self.name} was called with tensors on {device}."
                raise EngineError(message)
            if stream and torch.cuda.is_current_stream_capturing():
                return [], self._to_record(device, [tensor.shape for tensor in inputs])
            _LEFT.clear()
            if len(self._idle) > _STREAMS:
                self._idle.pop(next(iter(self._idle)))
            execution = _Execution(self, device, self._loaded.get(device))
            self._loaded[device] = execution.loaded
            return self._idle.setdefault((device, stream), []), execution

    def _to_record(self, device: torch.device, shapes: list[torch.Size]) -> _Execution:
        """Returns an execution for a CUDA graph of the caller's: it keeps one, which must have run before.

        One that ran with these shapes last has nothing left to set, its profile least of all.
        """
        known = [idle for (where, _), idle in self._idle.items() if where == device and idle]
        for idle in sorted(known, key=lambda each: each[-1].shapes != shapes):
            self._recorded.append(idle.pop())
            return self._recorded[-1]
        message = f"{self.name} has not run yet, and cannot be recorded in a CUDA graph. Call the model once before."
        raise EngineError(message)

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineModule:
        state = self.__getstate__()
        plan = state.pop("plan")
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__({**copy.deepcopy(state, memo), "plan": plan})
        copied._tensorrt = self._tensorrt  # whichever is in use where it is copied
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # The plan is the engine: what was loaded from it stays behind.
        return {key: value for key, value in self.__dict__.items() if key not in _LIVE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._unload()
