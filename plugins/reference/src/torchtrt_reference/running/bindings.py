"""The interface by index of TensorRT 8: inputs and outputs as bindings, repeated for every optimization profile.

Binding ``i`` is tensor ``i % n`` of the ``n`` inputs and outputs, for profile ``i // n``.
Beyond the first profile its name ends with ``[profile k]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.graph import Port
from torchtrt_reference.running.context import ExecutionContext
from torchtrt_reference.running.engine import Engine


class EngineWithBindings(Engine):
    """An engine with methods that take a binding as well as a name."""

    _implements = ("ICudaEngine",)

    def _bound(self, binding: int | str) -> tuple[str, int]:
        """The name of a binding's tensor, and its profile; no name, with the reason logged, if there is none."""
        index = self.get_binding_index(binding) if isinstance(binding, str) else binding
        if not 0 <= index < self.num_bindings:
            self._port(str(binding))
            return "", 0
        return self._ports[index % len(self._ports)].name, index // len(self._ports)

    def __len__(self) -> int:
        return self.num_bindings if self._rules.bindings_by_profile else len(self._ports)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str) and self._rules.bindings_by_profile:
            return self.get_binding_index(index)
        if not 0 <= index < len(self):
            message = f"The engine has {len(self)} inputs and outputs; there is no number {index}."
            raise IndexError(message)
        return self._ports[index].name if index < len(self._ports) else self.get_binding_name(index)

    @property
    def num_bindings(self) -> int:
        """The number of inputs and outputs, once for each optimization profile."""
        return len(self._ports) * self.num_optimization_profiles

    def get_binding_name(self, index: int) -> str | None:
        """Returns the name of a binding; None if there is no such binding."""
        name, profile = self._bound(index)
        return f"{name} [profile {profile}]" if name and profile else name or None

    def get_binding_index(self, name: str) -> int:
        """Returns the index of a binding; -1 if no binding has this name."""
        names = {port.name: index for index, port in enumerate(self._ports)}
        base, separator, profile = name.removesuffix("]").rpartition(" [profile ")
        if separator and base in names and profile.isdecimal():
            index = names[base] + int(profile) * len(names)
            return index if index < self.num_bindings else -1
        return names.get(name, -1)

    def binding_is_input(self, binding: int | str) -> bool:
        """Returns whether a binding is an input."""
        return self._bound(binding)[0] in self._inputs

    def get_binding_shape(self, binding: int | str) -> Any:
        """Returns the build-time shape of a binding; -1 where the runtime determines it."""
        return self.get_tensor_shape(self._bound(binding)[0])

    def get_binding_dtype(self, binding: int | str) -> Any:
        """Returns the type of a binding."""
        return self.get_tensor_dtype(self._bound(binding)[0])

    def get_location(self, binding: int | str) -> Any:
        """Returns where a binding is read: shape inputs on the host."""
        return self.get_tensor_location(self._bound(binding)[0])

    def is_shape_binding(self, binding: int) -> bool:
        """Returns whether a binding's values decide shapes."""
        return self.is_shape_inference_io(self._bound(binding)[0])

    def is_execution_binding(self, binding: int) -> bool:
        """Returns whether a binding's memory is read or written by the execution."""
        return not self.is_shape_binding(binding)

    def get_profile_shape(self, profile_index: int, binding: int | str) -> list[Any]:
        """Returns the minimum, optimum and maximum shape of an input in a profile."""
        return self.get_tensor_profile_shape(self._bound(binding)[0], profile_index)

    def get_profile_shape_input(self, profile_index: int, binding: int | str) -> list[list[int]]:
        """Returns the minimum, optimum and maximum values of a shape input in a profile."""
        profiles = self._description.value_profiles
        if not 0 <= profile_index < len(profiles):
            return []
        values = profiles[profile_index].get(self._bound(binding)[0], ())
        return [list(value) for value in values]

    def get_binding_bytes_per_component(self, index: int) -> int:
        """Returns the bytes of one component of a vectorized format; -1 for linear formats."""
        return self.get_tensor_bytes_per_component(self._bound(index)[0])

    def get_binding_components_per_element(self, index: int) -> int:
        """Returns the components of one element of a vectorized format; -1 for linear formats."""
        return self.get_tensor_components_per_element(self._bound(index)[0])

    def get_binding_format(self, index: int) -> Any:
        """Returns the memory format of a binding: linear."""
        return self.get_tensor_format(self._bound(index)[0])

    def get_binding_format_desc(self, index: int) -> str:
        """Returns the memory format of a binding as text."""
        return self.get_tensor_format_desc(self._bound(index)[0])

    def get_binding_vectorized_dim(self, index: int) -> int:
        """Returns the dimension that a vectorized format splits; -1 for linear formats."""
        return self.get_tensor_vectorized_dim(self._bound(index)[0])


class ContextWithBindings(ExecutionContext):
    """A context with shapes, values and execution by binding as well as by name."""

    _implements = ("IExecutionContext",)
    _engine: EngineWithBindings

    def _name_of(self, binding: int) -> str | None:
        """The tensor of a binding of the active profile; None, with the reason logged, for any other binding."""
        name, profile = self._engine._bound(binding)
        if name and profile != self._profile:
            self._error(
                f"binding {binding} belongs to profile {profile}, the active one is {self._profile}"
            )
            return None
        return name or None

    def get_binding_shape(self, binding: int) -> Any:
        """Returns the current shape of a binding; -1 where it is not known yet."""
        name = self._name_of(binding)
        return self._engine._trt.Dims._invalid() if name is None else self.get_tensor_shape(name)

    def set_binding_shape(self, binding: int, shape: tuple[int, ...]) -> bool:
        """Sets the shape of an input; False, with the reason logged, outside the active profile."""
        name = self._name_of(binding)
        return name is not None and self.set_input_shape(name, shape)

    def get_strides(self, binding: int) -> Any:
        """Returns the strides of a binding, in elements."""
        name = self._name_of(binding)
        return self._engine._trt.Dims._invalid() if name is None else self.get_tensor_strides(name)

    def set_shape_input(self, binding: int, shape: Sequence[int]) -> bool:
        """Sets the values of a shape input; the address given for it at execution is then ignored."""
        port = self._shape_port(binding)
        if port is None:
            return False
        wanted = self._shapes.get(port.name, port.shape)
        value = torch.tensor(shape, dtype=dtypes.TORCH[port.dtype])
        if value.numel() != torch.Size(wanted).numel():
            return self._error(
                f"the shape input {port.name!r} has the shape {wanted}, not {len(shape)} values"
            )
        self._host_values[port.name] = value
        self._output_shapes = {}
        return self.set_tensor_address(port.name, value.data_ptr())

    def get_shape(self, binding: int) -> list[int]:
        """Returns the values of a shape input.

        Raises:
            RuntimeError: The binding is no shape input, or its values were not set.
        """
        port = self._shape_port(binding)
        value = None if port is None else self._host_values.get(port.name)
        if value is None:
            message = f"The values of binding {binding} were not set: call set_shape_input."
            raise RuntimeError(message)
        return list(map(int, value.tolist()))

    def _shape_port(self, binding: int) -> Port | None:
        name = self._name_of(binding)
        port = None if name is None else self._engine._inputs.get(name)
        if port is None or not port.is_shape:
            self._error(f"binding {binding} is no shape input")
            return None
        return port

    def _set_addresses(self, bindings: Sequence[int]) -> bool:
        """Takes the addresses of all bindings, those of the active profile in effect."""
        engine = self._engine
        by_profile = engine._rules.bindings_by_profile
        count = engine.num_bindings if by_profile else len(engine._ports)
        if len(bindings) != count:
            return self._error(f"the engine has {count} inputs and outputs, not {len(bindings)}")
        start = self._profile * len(engine._ports) if by_profile else 0
        for index, port in enumerate(engine._ports):
            if port.name not in self._host_values:
                self._addresses[port.name] = bindings[start + index]
        return True

    def execute(self, batch_size: int, bindings: Sequence[int]) -> bool:  # noqa: ARG002
        """Executes an engine with an implicit batch dimension, which the reference never has."""
        return self._no_implicit_batch("execute_v2")

    def execute_async(
        self,
        batch_size: int,  # noqa: ARG002
        bindings: Sequence[int],  # noqa: ARG002
        stream_handle: int,  # noqa: ARG002
        input_consumed: Any = None,  # noqa: ARG002
    ) -> bool:
        """Executes an engine with an implicit batch dimension, which the reference never has."""
        return self._no_implicit_batch("execute_async_v2")

    def _no_implicit_batch(self, instead: str) -> bool:
        return self._error(f"the engine was built with an explicit batch dimension: call {instead}")

    def execute_v2(self, bindings: Sequence[int]) -> bool:
        """Executes with the addresses of all inputs and outputs in order, and waits."""
        device = self.torch_device
        if not self._set_addresses(bindings):
            return False
        if device.type != "cuda":
            return self.execute_async_v3(0)
        done = self.execute_async_v3(torch.cuda.current_stream(device).cuda_stream)
        torch.cuda.synchronize(device)
        return done

    def execute_async_v2(
        self,
        bindings: Sequence[int],
        stream_handle: int,
        input_consumed: Any = None,  # noqa: ARG002
    ) -> bool:
        """Executes with the addresses of all inputs and outputs in order."""
        return self._set_addresses(bindings) and self.execute_async_v3(stream_handle)
