"""An engine as a PyTorch module."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchtrt.conversion.size_ranges import InputProfile
from torchtrt.errors import EngineError
from torchtrt.runtime.output_allocation import make_output_allocator
from torchtrt.tensorrt import is_real, to_torch_dtype, trt
from torchtrt.tensorrt.logging import collecting, logger
from torchtrt.tensorrt.selection import current, describe, describe_gpu, use_module


@functools.cache
def _no_elements(device: torch.device | None) -> torch.Tensor:
    """Returns memory to point to for empty tensors, whose own address is null."""
    return torch.empty(256, dtype=torch.uint8, device=device)


_LIVE = frozenset(
    {"_tensorrt", "_lock", "_engine", "_context", "_allocators", "_device", "_shapes"}
    | {"_output_shapes", "_engine_inputs", "_engine_outputs"}
)
"""Attributes that are made anew where a module is loaded or copied."""


class EngineModule(torch.nn.Module):
    """Runs one engine on PyTorch tensors.

    Args:
        plan: The serialized engine: bytes, or anything with a buffer of them. Copies of the module share it.
        inputs: The profile of each input, in the order that ``forward`` takes them.
        output_names: The engine's outputs, in the order that ``forward`` returns them.
        output_dtypes: The dtype of each output; 64-bit types that the engine lacks are restored.
        requires_output_allocator: Whether an output's size depends on the data.
        name: The block's name, for messages.
        converted_by: For each node, the pack and version that converted it.
        gpu: The GPU that it was built for; the one in use if omitted.
        weights: How its weights follow from the attributes of the compiled graph, if they can be replaced.
    """

    def __init__(
        self,
        plan: Any,
        inputs: Sequence[InputProfile],
        output_names: Sequence[str],
        output_dtypes: Sequence[torch.dtype],
        requires_output_allocator: bool = False,
        name: str = "block",
        converted_by: Mapping[str, str] | None = None,
        gpu: str | None = None,
        weights: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.inputs = tuple(inputs)
        self.output_names = tuple(output_names)
        self.output_dtypes = tuple(output_dtypes)
        self.requires_output_allocator = requires_output_allocator
        self.name = name
        self.converted_by = dict(converted_by or {})
        self.weights = weights
        self.tensorrt = describe()
        self.gpu = describe_gpu() if gpu is None else gpu
        self._unload()

    def _unload(self) -> None:
        self._tensorrt = current()
        self._lock = threading.Lock()  # an execution context serves one call at a time
        self._engine: Any = None
        self._context: Any = None
        self._allocators: dict[str, Any] = {}
        self._device: torch.device | None = None
        self._shapes: list[torch.Size] | None = None
        self._output_shapes: list[tuple[int, ...]] = []

    def replace_plan(self, plan: Any) -> None:
        """Makes another plan the engine, from the next call on."""
        with self._lock:
            self.plan = plan
            self._device = None

    def _load(self, device: torch.device) -> None:
        if is_real() and device.type != "cuda":
            message = f"{describe()} runs on CUDA tensors, but {self.name} was called with tensors on {device}."
            raise EngineError(message)
        runtime = trt.Runtime(logger())
        if not is_real():
            runtime.torch_device = device
        with collecting() as log:
            self._engine = runtime.deserialize_cuda_engine(self.plan)
            self._context = self._engine and self._engine.create_execution_context()
        if self._context is None:
            message = f"{describe()} could not load the engine of {self.name}: {log.text()}"
            raise EngineError(message)
        self._device = device
        self._shapes = None
        engine = self._engine
        self._engine_inputs = [
            (spec.name, to_torch_dtype(engine.get_tensor_dtype(spec.name))) for spec in self.inputs
        ]
        self._engine_outputs = [
            (name, to_torch_dtype(engine.get_tensor_dtype(name))) for name in self.output_names
        ]
        self._allocators = {}
        if self.requires_output_allocator:
            for name in self.output_names:
                self._allocators[name] = make_output_allocator(device)
                self._context.set_output_allocator(name, self._allocators[name])

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the engine's outputs for contiguous or strided inputs on one device.

        Raises:
            EngineError: The inputs are not on one device, a shape is outside what the engine was
                built for, or execution failed.
        """
        device = inputs[0].device
        for tensor in inputs[1:]:
            if tensor.device != device:
                message = f"The inputs of {self.name} are on {device} and {tensor.device}; move them to one device."
                raise EngineError(message)
        with self._lock:
            if device != self._device:
                with use_module(self._tensorrt):
                    self._load(device)
            if device.type != "cuda":
                return self._run(inputs, 0)
            if torch.cuda.current_device() == device.index:  # entering a device takes microseconds
                return self._run(inputs, torch.cuda.current_stream().cuda_stream)
            with torch.cuda.device(device):
                return self._run(inputs, torch.cuda.current_stream().cuda_stream)

    def _run(self, inputs: tuple[torch.Tensor, ...], stream: int) -> tuple[torch.Tensor, ...]:
        context = self._context
        set_address = context.set_tensor_address
        shapes = [tensor.shape for tensor in inputs]
        if shapes != self._shapes:
            self._set_shapes(shapes)
        held = []  # alive until the engine has been enqueued
        device = self._device
        for tensor, (name, dtype) in zip(inputs, self._engine_inputs, strict=True):
            if tensor.dtype is not dtype or not tensor.is_contiguous() or tensor.is_neg():
                tensor = self._as(dtype, tensor, name).resolve_neg().contiguous()
                held.append(tensor)
            set_address(name, tensor.data_ptr() or _no_elements(device).data_ptr())
        outputs = []
        if not self._allocators:
            for (name, dtype), shape in zip(self._engine_outputs, self._output_shapes, strict=True):
                output = torch.empty(shape, dtype=dtype, device=device)
                outputs.append(output)
                set_address(name, output.data_ptr() or _no_elements(device).data_ptr())
        with collecting() as log:
            succeeded = context.execute_async_v3(stream)
        if not succeeded:
            raise EngineError(f"The engine of {self.name} failed: {log.text()}")
        for name, dtype in self._engine_outputs if self._allocators else ():
            outputs.append(self._allocators[name].take(dtype))
        return tuple(
            output if output.dtype is dtype else output.to(dtype)
            for output, dtype in zip(outputs, self.output_dtypes, strict=True)
        )

    def _as(self, dtype: torch.dtype, tensor: torch.Tensor, name: str) -> torch.Tensor:
        # 64 bits become 32 where TensorRT has no more. Fractions would be cut off.
        if tensor.is_floating_point() and not dtype.is_floating_point:
            message = (
                f"PyTorch computed {tensor.dtype} for the input {name!r} of {self.name}, and had traced it as an "
                f"integer. Convert it in the model, with .to({tensor.dtype}), before it is used."
            )
            raise EngineError(message)
        return tensor.to(dtype)

    def _set_shapes(self, shapes: list[torch.Size]) -> None:
        self._shapes = None
        for spec, shape in zip(self.inputs, shapes, strict=True):
            with collecting() as log:
                accepted = self._context.set_input_shape(spec.name, tuple(shape))
            if not accepted:
                raise EngineError(
                    f"The engine of {self.name} refused the shape {tuple(shape)} of its input {spec.name!r}; it "
                    f"was built for {spec.min} to {spec.max}: {log.text()}."
                )
        try:
            missing = self._context.infer_shapes()
        except RuntimeError as error:
            message = f"The engine of {self.name} has no result for these shapes: {error}"
            raise EngineError(message) from error
        if missing:
            message = f"The engine of {self.name} lacks the shapes of {', '.join(missing)}."
            raise EngineError(message)
        self._output_shapes = [
            tuple(self._context.get_tensor_shape(name)) for name in self.output_names
        ]
        self._shapes = shapes

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
