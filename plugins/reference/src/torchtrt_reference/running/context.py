"""``IExecutionContext`` by the names of inputs and outputs: shapes, addresses, execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.executable import Executable, Watch, maximum_shapes
from torchtrt_reference.graphs.graph import Port
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.reporting import report
from torchtrt_reference.running.engine import Engine
from torchtrt_reference.running.execution_memory import ALIGNMENT, ContextMemory, LentMemory
from torchtrt_reference.semantics.communication import communicating, is_communicator
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts, Value

_CPU = torch.device("cpu")


class ExecutionContext(ContextMemory, Implementation):
    """One use of an engine: the shapes and addresses of its inputs and outputs, and execution."""

    _engine: Engine
    _stored: ClassVar[Mapping[str, Any]] = {
        "debug_sync": False,
        "profiler": None,
        "name": "",
        "temporary_allocator": None,
        "error_recorder": None,
        "enqueue_emits_profile": True,
        "persistent_cache_limit": 0,
        "nvtx_verbosity": "LAYER_NAMES_ONLY",
        "unfused_tensors_debug_state": False,
    }

    def _initialize(self, engine: Engine, is_lent_memory: bool = False) -> None:
        """Sets up a context with the engine's first free profile."""
        self._engine = engine
        self._memory = LentMemory() if is_lent_memory else None
        self._profile = engine._free_profile()
        engine._contexts.add(self)
        self._values: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._host_values: dict[str, torch.Tensor] = {}  # given by binding
        self._allocators: dict[str, Any] = {}
        self._wrapped: dict[str, tuple[int, tuple[int, ...], torch.Tensor]] = {}
        self._debug_states: dict[str, bool] = {}
        self._debug_listener: Any = None
        self._times: list[tuple[str, float]] | None = None  # of the last execution
        self._consumed_event = 0
        self._communicator: Any = None
        self._output_shapes: dict[str, tuple[int, ...]] = {}
        self._ready: tuple[Executable, tuple[Any, ...], int] | None = None
        self.torch_device = engine.torch_device
        self._start_shapes()

    def _start_shapes(self) -> None:
        self._shapes = {
            port.name: port.shape for port in self._engine._inputs.values() if -1 not in port.shape
        }
        self._output_shapes = {}
        self._ready = None

    def _error(self, message: str) -> bool:
        engine = self._engine
        report(
            engine._logger,
            f"Error Code 3: API Usage Error ({message})",
            self,
            engine,
            engine._runtime,
        )
        return False

    @property
    def engine(self) -> Any:
        """The engine it belongs to."""
        return self._engine

    @property
    def active_optimization_profile(self) -> int:
        """The profile in use."""
        return self._profile

    @active_optimization_profile.setter
    def active_optimization_profile(self, value: int) -> None:
        self.set_optimization_profile_async(value, 0)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:  # noqa: ARG002
        """Switches to a profile; input shapes must be set again.

        Raises:
            RuntimeError: There is no such profile.
        """
        if not 0 <= profile_index < len(self._engine._description.profiles):
            message = f"The engine has no optimization profile {profile_index}."
            raise RuntimeError(message)
        if profile_index not in (self._profile, *self._engine._free_profiles()):
            return self._error(f"another context uses optimization profile {profile_index}")
        self._profile = profile_index
        self._start_shapes()
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        """Sets the shape of an input; False, with the reason logged, outside the active profile."""
        port = self._engine._inputs.get(name)
        shape = tuple(shape)
        if port is None:
            return self._error(f"the engine has no input named {name!r}")
        if len(shape) != len(port.shape):
            return self._error(
                f"input {name!r} has rank {len(port.shape)}; {shape} has rank {len(shape)}"
            )
        if self._profile < 0:
            return self._error("no optimization profile is selected: other contexts use them all")
        low, _, high = self._engine._description.profiles[self._profile][name]
        for axis, size in enumerate(shape):
            if not low[axis] <= size <= high[axis]:
                return self._error(
                    f"dimension {axis} of input {name!r} is {size}; optimization profile {self._profile} allows "
                    f"[{low[axis]}, {high[axis]}]"
                )
        if self._shapes.get(name) != shape:
            self._shapes[name] = shape
            self._output_shapes = {}
            self._ready = None
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Sets where an input or output lives."""
        if name not in self._engine._inputs and name not in self._engine._outputs:
            return self._error(f"the engine has no input or output named {name!r}")
        self._addresses[name] = memory
        return True

    def get_tensor_address(self, name: str) -> int:
        """Returns where an input or output lives; 0 if that was not set."""
        return self._addresses.get(name, 0)

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        """Sets who provides memory for an output once its shape is known."""
        if name not in self._engine._outputs:
            return self._error(f"the engine has no output named {name!r}")
        self._allocators[name] = output_allocator
        return True

    def get_output_allocator(self, name: str) -> Any:
        """Returns the allocator of an output, None if there is none."""
        return self._allocators.get(name)

    def get_max_output_size(self, name: str) -> int:
        """Returns the maximum number of bytes of an output; -1 if it depends on data and has no known bound."""
        port = self._engine._outputs.get(name)
        if port is None:
            self._error(f"the engine has no output named {name!r}")
            return -1
        shape = tuple(self.get_tensor_shape(name))
        if -1 in shape and not self.infer_shapes():
            engine = self._engine
            facts = self._executable().facts
            shape = maximum_shapes(engine._description.graph, facts, engine._lean_rules)[port.slot]
        fact = TensorFacts(port.dtype, shape)
        return max(1, dtypes.byte_count(port.dtype, fact.volume)) if fact.is_static else -1

    def _input_facts(self) -> dict[int, TensorFacts]:
        """The facts of the inputs: shapes as set, and the values of shape inputs.

        Raises:
            RefusedError: Something was not set, or breaks the profile.
        """
        facts = {}
        lengths: dict[str, tuple[int, str]] = {}
        for name, port in self._engine._inputs.items():
            if name not in self._shapes:
                message = f"the shape of input {name!r} was not set"
                raise RefusedError(message)
            shape = self._shapes[name]
            for axis, text in port.dimension_names.items():
                got = shape[axis]
                expected, other = lengths.setdefault(text, (got, name))
                if expected != got:
                    message = f"dimensions named {text!r} must be equal: {expected} in {other!r}, {got} in {name!r}"
                    raise RefusedError(message)
            facts[port.slot] = TensorFacts(
                port.dtype, shape, self._value(port, shape) if port.is_shape else None
            )
        return facts

    def _value(self, port: Port, shape: tuple[int, ...]) -> Value:
        """Returns a copy of the integers at the address of a shape input.

        Raises:
            RefusedError: There is no address, or a value is outside the optimization profile.
        """
        address = self._addresses.get(port.name, 0)
        if not address:
            message = f"the address of the shape input {port.name!r} was not set"
            raise RefusedError(message)
        # Shape inputs are read on the host, whatever the device.
        value = dtypes.tensor_at(address, dtypes.TORCH[port.dtype], shape, _CPU).clone()
        low, _, high = self._engine._description.value_profiles[self._profile][port.name]
        for got, minimum, maximum in zip(value.reshape(-1).tolist(), low, high, strict=True):
            if not minimum <= got <= maximum:
                message = (
                    f"the shape input {port.name!r} holds {got}; optimization profile {self._profile} allows "
                    f"[{minimum}, {maximum}]"
                )
                raise RefusedError(message)
        return Value(value)

    def _executable(self) -> Executable:
        if self._ready is not None and self._ready[1:] == ((), self._engine._refits):
            return self._ready[0]
        executable = self._engine._executable(self._input_facts())
        shape_inputs = tuple(port.name for port in self._engine._inputs.values() if port.is_shape)
        # The values of shape inputs may change unnoticed, so they are read every time.
        self._ready = (executable, shape_inputs, self._engine._refits)
        return executable

    def infer_shapes(self) -> list[str]:
        """Computes output shapes; returns the names of inputs whose shape (or value) is not set.

        Raises:
            RuntimeError: The shapes break a rule.
        """
        missing = [
            name
            for name, port in self._engine._inputs.items()
            if name not in self._shapes or (port.is_shape and not self._addresses.get(name))
        ]
        if missing:
            return missing
        try:
            executable = self._executable()
        except RefusedError as error:
            message = f"Shape inference failed: {error}"
            raise RuntimeError(message) from error
        self._output_shapes = {
            name: executable.facts[port.slot].shape for name, port in self._engine._outputs.items()
        }
        return []

    def get_tensor_shape(self, name: str) -> Any:
        """Returns the current shape of an input or output; -1 where it is not known yet."""
        dims = self._engine._trt.Dims
        if name in self._engine._inputs:
            return dims(self._shapes.get(name, self._engine._inputs[name].shape))
        if name not in self._engine._outputs:
            self._error(f"the engine has no input or output named {name!r}")
            return dims._invalid()
        if name not in self._output_shapes:
            try:
                self.infer_shapes()
            except RuntimeError as error:
                self._error(str(error))
        return dims(self._output_shapes.get(name, self._engine._outputs[name].shape))

    def get_tensor_strides(self, name: str) -> Any:
        """Returns the strides of an input or output, in elements."""
        shape = tuple(self.get_tensor_shape(name))
        strides: list[int] = []
        step = 1
        for size in reversed(shape):
            strides.append(step)
            step = -1 if -1 in (size, step) else step * size
        return self._engine._trt.Dims(strides[::-1])

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input has a shape."""
        return all(name in self._shapes for name in self._engine._inputs)

    @property
    def all_shape_inputs_specified(self) -> bool:
        """Whether every shape input has an address."""
        return all(
            self._addresses.get(name)
            for name, port in self._engine._inputs.items()
            if port.is_shape
        )

    def execute_async_v3(self, stream_handle: int) -> bool:
        """Executes; returns whether that succeeded. On the CPU it has finished when this returns."""
        try:
            if self.torch_device.type == "cuda":
                stream: Any = torch.cuda.ExternalStream(stream_handle, device=self.torch_device)
                with torch.cuda.stream(stream):
                    return self._execute(stream_handle)
            return self._execute(stream_handle)
        except RefusedError as error:
            return self._error(str(error))
        except RuntimeError as error:
            return self._error(f"PyTorch could not compute a layer: {error}")

    def _execute(self, stream_handle: int) -> bool:
        """Computes the outputs on a stream and writes them where the caller reads them."""
        with torch.inference_mode():
            executable = self._executable()
            inputs = {
                port.slot: self._wrap(port, self._shapes[name])
                for name, port in self._engine._inputs.items()
            }
            for name in self._engine._outputs:
                if name not in self._allocators and not self._addresses.get(name):
                    message = f"neither an address nor an allocator was set for output {name!r}"
                    raise RefusedError(message)
            watch = self._watch(stream_handle)
            for name, cache in self._engine._aliased.items():
                if self._addresses.get(name) != self._addresses.get(cache):
                    message = f"the output {name!r} must have the address of its cache {cache!r}"
                    raise RefusedError(message)
            outputs = [port.slot for port in self._engine._outputs.values()]
            with self._memory_in_use(), communicating(self._communicator):
                results = executable.run(inputs, outputs, watch)
            if watch is not None:
                self._times = watch.times
                if self._values.get("enqueue_emits_profile", True):
                    self.report_to_profiler()
            for port, result in zip(self._engine._outputs.values(), results, strict=True):
                self._deliver(port, result, stream_handle)
        return True

    def _watch(self, stream_handle: int) -> Watch | None:
        """The observer for a profiler and a debug listener; None if there is neither."""
        shows = {}
        if self._debug_listener is not None:
            for port in self._engine._description.graph.debug:
                if self._debug_states.get(port.name, False):
                    shows[port.slot] = partial(self._show, port, stream_handle)
        if shows or self._values.get("profiler") is not None:
            return Watch(shows, self.torch_device)
        return None

    def _show(self, port: Port, stream_handle: int, value: torch.Tensor) -> None:
        trt, value = self._engine._trt, value.contiguous()
        self._debug_listener.process_debug_tensor(
            value.data_ptr(),
            trt.TensorLocation.__members__["HOST" if value.device.type == "cpu" else "DEVICE"],
            trt.DataType.__members__[port.dtype],
            trt.Dims(tuple(value.shape)),
            port.name,
            stream_handle,
        )

    def _wrap(self, port: Port, shape: tuple[int, ...]) -> torch.Tensor:
        """Returns a tensor over the memory at a port's address, the same as long as address and shape stay the same.

        Raises:
            RefusedError: There is no address.
        """
        address = self._addresses.get(port.name, 0)
        if not address and 0 not in shape:
            message = f"the address of {port.name!r} was not set"
            raise RefusedError(message)
        cached = self._wrapped.get(port.name)
        if cached is not None and cached[0] == address and cached[1] == shape:
            return cached[2]
        device = _CPU if port.is_shape else self.torch_device
        tensor = dtypes.tensor_at(address, dtypes.TORCH[port.dtype], shape, device).to(
            self.torch_device
        )
        if device == self.torch_device:
            self._wrapped[port.name] = (address, shape, tensor)
        return tensor

    def _deliver(self, port: Port, result: torch.Tensor, stream_handle: int) -> None:
        """Writes a result to its address, or to the memory that an allocator gives."""
        shape = tuple(result.shape)
        allocator = self._allocators.get(port.name)
        if allocator is not None:
            size = max(1, result.numel() * result.element_size())
            current = self._addresses.get(port.name, 0)
            address = _allocate(
                allocator,
                port.name,
                current,
                size,
                stream_handle,
                self._engine._rules.async_allocation,
            )
            if not address:
                message = f"the allocator of output {port.name!r} gave no memory for {size} bytes"
                raise RefusedError(message)
            self._addresses[port.name] = address
            allocator.notify_shape(port.name, self._engine._trt.Dims(shape))
        self._output_shapes[port.name] = shape
        if result.numel():
            self._wrap(port, shape).copy_(result)

    def set_input_consumed_event(self, event: int) -> bool:
        """Sets an event for the time when inputs have been read; kept, not signalled."""
        self._consumed_event = event
        return True

    def get_input_consumed_event(self) -> int:
        """Returns the event that was set."""
        return self._consumed_event

    def report_to_profiler(self) -> bool:
        """Sends the layer times of the last execution to the profiler; returns whether there were any."""
        profiler = self._values.get("profiler")
        if profiler is None or self._times is None:
            return False
        times, self._times = self._times, None
        for name, milliseconds in times:
            profiler.report_layer_time(name, milliseconds)
        return True

    def set_aux_streams(self, aux_streams: Sequence[int]) -> None:
        """Gives further streams; the reference uses one."""

    def set_debug_listener(self, listener: Any) -> bool:
        """Sets who sees the debug tensors whose state is on."""
        self._debug_listener = listener
        return True

    def get_debug_listener(self) -> Any:
        """Returns the listener that was set."""
        return self._debug_listener

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        """Switches the reporting of a debug tensor; False, with the reason logged, if it is no debug tensor."""
        if not self._engine.is_debug_tensor(name):
            return self._error(f"the engine has no debug tensor named {name!r}")
        self._debug_states[name] = flag
        return True

    def get_debug_state(self, name: str) -> bool:
        """Returns whether a debug tensor is reported."""
        return self._debug_states.get(name, False)

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        """Switches the reporting of all debug tensors."""
        names = (port.name for port in self._engine._description.graph.debug)
        self._debug_states = dict.fromkeys(names, flag)
        return True

    def set_communicator(self, communicator: Any) -> bool:
        """Sets how the ranks of distributed layers exchange tensors; False, with the reason logged, for any other.

        Args:
            communicator: A process group of ``torch.distributed``, or a backend of one. TensorRT takes a capsule of
                NCCL's communicator here.
        """
        if not is_communicator(communicator):
            return self._error(
                f"the communicator must be a process group of torch.distributed, not {communicator!r}"
            )
        self._communicator = communicator
        return True

    def get_runtime_config(self) -> Any:
        """Returns the options the context was made with."""
        return self._engine.create_runtime_config()


def _allocate(
    allocator: Any, name: str, current: int, size: int, stream_handle: int, may_be_async: bool
) -> int:
    if may_be_async and hasattr(allocator, "reallocate_output_async"):
        return int(
            allocator.reallocate_output_async(name, current, size, ALIGNMENT, stream_handle) or 0
        )
    return int(allocator.reallocate_output(name, current, size, ALIGNMENT) or 0)
