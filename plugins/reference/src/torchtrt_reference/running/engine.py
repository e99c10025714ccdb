"""``ICudaEngine`` by the names of its inputs and outputs: a plan that was loaded."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.graphs.executable import Executable, bind_graph, move_constants
from torchtrt_reference.graphs.graph import Port
from torchtrt_reference.graphs.plan import EngineDescription, encode
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.reporting import report
from torchtrt_reference.rules import RULES
from torchtrt_reference.running.execution_memory import memory_size
from torchtrt_reference.running.runtime import Runtime
from torchtrt_reference.semantics.tensor_facts import TensorFacts

_EXECUTABLES_KEPT = 32


class Engine(Implementation):
    """A loaded plan: what goes in, what comes out, and executables for the shapes seen so far."""

    _stored: ClassVar[Mapping[str, Any]] = {
        "error_recorder": None,
        "tactic_sources": 0,
        "num_aux_streams": 0,
        "max_batch_size": 1,
        "weight_streaming_budget": 0,
    }

    def _initialize(self, runtime: Runtime, description: EngineDescription, owner: Any) -> None:
        """Sets up an engine. ``owner`` is what keeps the memory of the plan's constants alive."""
        self._runtime = runtime
        self._logger = runtime._logger
        self._values: dict[str, Any] = {}
        self._description = description
        self._contexts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._owner = owner  # the bytes that the constants are views over
        self.torch_device = runtime.torch_device
        self._constants = move_constants(description.graph, self.torch_device)
        self._executables: OrderedDict[Any, Executable] = OrderedDict()
        # A plan of an earlier version has the runtime of that version in it.
        self._lean_rules = RULES[description.version]
        self._budget = self._streamable()
        self._refits = 0  # contexts that keep an executable compare this
        graph = description.graph
        self._inputs = {port.name: port for port in graph.inputs}
        self._outputs = {port.name: port for port in graph.outputs}
        self._ports: list[Port] = [*graph.inputs, *graph.outputs]

    def _executable(self, facts: Mapping[int, TensorFacts]) -> Executable:
        """The executable for these inputs, made on first use.

        Raises:
            RefusedError: A rule is broken.
        """
        key = tuple(
            (
                fact.shape,
                None if fact.constant is None else tuple(fact.constant.reshape(-1).tolist()),
            )
            for fact in facts.values()
        )
        executable = self._executables.get(key)
        if executable is None:
            with torch.inference_mode():
                executable = bind_graph(
                    self._description.graph,
                    facts,
                    self._lean_rules,
                    self._constants,
                    self.torch_device,
                )
            self._executables[key] = executable
            if len(self._executables) > _EXECUTABLES_KEPT:
                self._executables.popitem(last=False)
        return executable

    def _replace_constant(self, slot: int, value: torch.Tensor) -> None:
        self._description.graph.constants[slot] = value
        self._constants[slot] = value.to(self.torch_device)
        self._executables.clear()
        self._refits += 1

    def _error(self, message: str) -> None:
        report(self._logger, message, self, self._runtime)

    def _port(self, name: str) -> Port | None:
        port = self._inputs.get(name) or self._outputs.get(name)
        if port is None:
            self._error(f"The engine has no input or output named {name!r}.")
        return port

    @property
    def num_io_tensors(self) -> int:
        """The number of inputs and outputs."""
        return len(self._ports)

    def get_tensor_name(self, index: int) -> str | None:
        """Returns the name of an input or output."""
        return self._ports[index].name if 0 <= index < len(self._ports) else None

    def get_tensor_mode(self, name: str) -> Any:
        """Returns whether a tensor is an input, an output or neither."""
        mode = "INPUT" if name in self._inputs else "OUTPUT" if name in self._outputs else "NONE"
        return self._trt.TensorIOMode.__members__[mode]

    def get_tensor_shape(self, name: str) -> Any:
        """Returns the build-time shape of an input or output; -1 where the runtime determines it."""
        port = self._port(name)
        return self._trt.Dims._invalid() if port is None else self._trt.Dims(port.shape)

    def get_tensor_dtype(self, name: str) -> Any:
        """Returns the type of an input or output."""
        port = self._port(name)
        return self._trt.DataType.__members__["FLOAT" if port is None else port.dtype]

    def get_tensor_location(self, name: str) -> Any:
        """Returns where an input or output is read: shape inputs on the host."""
        port = self._port(name)
        host = port is not None and port.is_shape
        return self._trt.TensorLocation.__members__["HOST" if host else "DEVICE"]

    def is_shape_inference_io(self, name: str) -> bool:
        """Returns whether the values of an input decide shapes."""
        port = self._port(name)
        return port is not None and port.is_shape

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:  # noqa: ARG002
        """Returns the bytes of one component of a vectorized format; -1 as the reference has linear formats only."""
        self._port(name)
        return -1

    def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int:  # noqa: ARG002
        """Returns the components of one element of a vectorized format; -1 for linear formats."""
        self._port(name)
        return -1

    def get_tensor_format(self, name: str, profile_index: int = 0) -> Any:  # noqa: ARG002
        """Returns the memory format of an input or output: linear."""
        self._port(name)
        return self._trt.TensorFormat.LINEAR

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:  # noqa: ARG002
        """Returns the memory format of an input or output as text."""
        port = self._port(name)
        return (
            ""
            if port is None
            else f"Row-major linear {dtypes.SPELLING[port.dtype]} format (kLINEAR)"
        )

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:  # noqa: ARG002
        """Returns the dimension that a vectorized format splits; -1 for linear formats."""
        self._port(name)
        return -1

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Any]:
        """Returns the minimum, optimum and maximum shape of an input in a profile."""
        if name not in self._inputs or not 0 <= profile_index < len(self._description.profiles):
            self._error(f"Profile {profile_index} has no shapes for {name!r}.")
            return []
        return [self._trt.Dims(shape) for shape in self._description.profiles[profile_index][name]]

    def get_tensor_profile_values(self, profile_index: int, name: str) -> list[list[int]]:
        """Returns the minimum, optimum and maximum values of a shape input in a profile."""
        if not 0 <= profile_index < len(self._description.value_profiles):
            return []
        return [
            list(values) for values in self._description.value_profiles[profile_index].get(name, ())
        ]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """Returns the input whose memory an output must share, None if there is none."""
        return self._aliased.get(name)

    @functools.cached_property
    def _aliased(self) -> dict[str, str]:
        """The outputs that are updated caches, each with the input that is the cache."""
        caches = {
            node.outputs[0]: node.inputs[0]
            for node in self._description.graph.nodes
            if node.operation == "kv_cache_update"
        }
        inputs = {port.slot: name for name, port in self._inputs.items()}
        return {
            name: inputs[caches[port.slot]]
            for name, port in self._outputs.items()
            if port.slot in caches
        }

    def _free_profiles(self) -> list[int]:
        """Returns the profiles that another context may use."""
        profiles = range(max(1, len(self._description.profiles)))
        if self._rules.profiles_are_shared or self._description.shares_profiles:
            return list(profiles)
        taken = {context._profile for context in self._contexts}
        return [profile for profile in profiles if profile not in taken]

    def _free_profile(self) -> int:
        return next(iter(self._free_profiles()), -1)

    def create_execution_context(self, strategy: Any = None, runtime_config: Any = None) -> Any:
        """Returns a context; None, with the reason logged, where TensorRT gives none."""
        if hasattr(strategy, "get_execution_context_allocation_strategy"):
            strategy, runtime_config = None, strategy
        if runtime_config is not None:
            strategy = runtime_config.get_execution_context_allocation_strategy()
        return self._new_context(strategy is not None and strategy.name == "USER_MANAGED")

    def _new_context(self, is_lent_memory: bool) -> Any:
        """Returns a context, with memory of its own or the caller's."""
        if names := self._stripped_names():
            self._error(
                f"The engine has no values for the weights {', '.join(names)}: its plan was stripped. Refit it first."
            )
            return None
        depends_on_data = any(-1 in port.shape for port in self._outputs.values()) and not any(
            -1 in port.shape for port in self._inputs.values()
        )
        if (
            depends_on_data
            and self._rules.profile_needed_for_data_dependence
            and not self._description.has_profile
        ):
            self._error(
                "An engine with data-dependent outputs needs an optimization profile, even an empty one: "
                "call config.add_optimization_profile(builder.create_optimization_profile()).",
            )
            return None
        return self._trt.IExecutionContext._made(self, is_lent_memory)

    def create_execution_context_without_device_memory(self) -> Any:
        """Returns a context whose memory the caller lends."""
        return self._new_context(True)

    def create_runtime_config(self) -> Any:
        """Returns the options of a context."""
        return self._trt.IRuntimeConfig._made()

    def create_serialization_config(self) -> Any:
        """Returns the options of serialization: without weights, if the plan had none."""
        flags = 0
        if self._description.settings.get("stripped"):
            flags |= 1 << int(self._trt.SerializationFlag.EXCLUDE_WEIGHTS)
        return self._trt.ISerializationConfig._made(flags)

    def create_engine_inspector(self) -> Any:
        """Returns an object that describes the engine's layers."""
        return self._trt.EngineInspector._made(self)

    def serialize(self) -> Any:
        """Returns the plan, with refitted weights; one that was stripped is stripped again."""
        is_stripped = bool(self._description.settings.get("stripped"))
        return encode(self._description, self._trt.IHostMemory, is_stripped=is_stripped)

    def serialize_with_config(self, config: Any) -> Any:
        """Returns the plan; with the flag ``EXCLUDE_WEIGHTS``, without the weights that can be replaced."""
        is_stripped = config.get_flag(self._trt.SerializationFlag.EXCLUDE_WEIGHTS)
        return encode(self._description, self._trt.IHostMemory, is_stripped=is_stripped)

    @property
    def name(self) -> str:
        """The network's name."""
        return self._description.name

    @property
    def num_layers(self) -> int:
        """The number of layers after fusion."""
        return len(self._description.graph.nodes)

    @property
    def num_optimization_profiles(self) -> int:
        """The number of profiles; at least one."""
        return len(self._description.profiles)

    @property
    def refittable(self) -> bool:
        """Whether weights can be replaced."""
        return self._description.refittable

    @property
    def has_implicit_batch_dimension(self) -> bool:
        """Whether the batch dimension is implicit; it never is."""
        return False

    @property
    def engine_capability(self) -> Any:
        """The capability it was built for."""
        return self._trt.EngineCapability.__members__[
            self._description.settings["engine_capability"]
        ]

    @property
    def profiling_verbosity(self) -> Any:
        """How much the inspector returns."""
        return self._trt.ProfilingVerbosity.__members__[
            self._description.settings["profiling_verbosity"]
        ]

    @property
    def hardware_compatibility_level(self) -> Any:
        """The hardware it was built for."""
        level = self._description.settings["hardware_compatibility_level"]
        return self._trt.HardwareCompatibilityLevel.__members__[level]

    @property
    def device_memory_size(self) -> int:
        """The bytes that a context needs for any profile."""
        return self._largest_memory_size()

    @property
    def device_memory_size_v2(self) -> int:
        """The bytes that a context needs for any profile."""
        return self._largest_memory_size()

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        """Returns the bytes that a context needs for the largest shapes of a profile."""
        return self._memory_size(profile_index)

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        """Returns the bytes that a context needs for the largest shapes of a profile."""
        return self._memory_size(profile_index)

    def _largest_memory_size(self) -> int:
        return max(map(self._memory_size, range(max(1, len(self._description.profiles)))))

    def _memory_size(self, profile_index: int) -> int:
        profiles = self._description.profiles[profile_index : profile_index + 1]
        largest = {name: shapes[-1] for profile in profiles for name, shapes in profile.items()}
        return memory_size(
            (port, largest.get(name, port.shape)) for name, port in self._inputs.items()
        )

    @property
    def streamable_weights_size(self) -> int:
        """The weights that can be streamed: none without the flag WEIGHT_STREAMING."""
        return self._streamable()

    @property
    def weight_streaming_budget_v2(self) -> int:
        """The memory that weights may take where the engine runs: at first that of all. The reference keeps all."""
        return self._budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, value: int) -> None:
        size = self._streamable()
        if not size:
            self._error(
                "The engine streams no weights: build it with the flag BuilderFlag.WEIGHT_STREAMING."
            )
        elif value < 0:
            self._error(f"A weight streaming budget of {value} is not valid: it must be 0 or more.")
        elif self._contexts:
            self._error("The weight streaming budget cannot change while there are contexts.")
        else:
            self._budget = min(value, size)

    @property
    def minimum_weight_streaming_budget(self) -> int:
        """The minimum budget for streamed weights."""
        return 0

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        """The memory that streaming needs."""
        return 0

    def get_weight_streaming_automatic_budget(self) -> int:
        """Returns the budget that the runtime would choose: here there is room for all."""
        return self._streamable()

    def is_debug_tensor(self, name: str) -> bool:
        """Returns whether a tensor is one that listeners can receive."""
        return any(port.name == name for port in self._description.graph.debug)

    def get_engine_stat(self, stat: Any = None) -> int:
        """Returns a figure about the engine, in bytes."""
        constants = self._description.graph.constants
        stripped = self._description.graph.stripped()
        if stat is not None and stat.name == "STRIPPED_WEIGHTS_SIZE":
            return _bytes_of(constants[slot] for slot in stripped)
        return self._weights_size()

    def _streamable(self) -> int:
        return self._weights_size() if self._description.settings.get("weight_streaming") else 0

    def _weights_size(self) -> int:
        return _bytes_of(self._description.graph.constants.values())

    def _stripped_names(self) -> list[str]:
        """Returns what names the weights without values: their names, or their layers and roles."""
        graph = self._description.graph
        names = {slot: " of ".join(role[::-1]) for slot, role in graph.weights_roles.items()}
        names |= graph.weights_names
        return sorted({names[slot] for slot in graph.stripped()})


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
