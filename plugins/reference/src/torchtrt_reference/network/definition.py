"""``INetworkDefinition``: the graph that converters fill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.elements import Layer, Ported, Tensor
from torchtrt_reference.network.named import Named
from torchtrt_reference.network.plugins import PluginV3Layer, record_of
from torchtrt_reference.network.reporting import report
from torchtrt_reference.network.weights import Weights
from torchtrt_reference.operations import OPERATIONS
from torchtrt_reference.semantics.operation import Call, Operation
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts


class _KnownFacts(Sequence[TensorFacts | None]):
    """The facts of a layer's inputs, inferred when read; None where a layer before breaks a rule.

    An error in a layer before this one is no reason to refuse this one.
    """

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self._tensors = tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, index: Any) -> Any:
        tensor = self._tensors[index]
        try:
            return None if tensor is None else tensor._facts()
        except RefusedError:
            return None


class NetworkDefinition(Implementation, Named, Ported):
    """A network: inputs, layers and marked outputs. The ``add_*`` methods are made from the interface description."""

    _implements = ("INetworkDefinition",)
    _inputs: list[Tensor]
    _outputs: list[Tensor]

    @property
    def _types_are_hints(self) -> bool:
        return self._rules.types_are_hints and not self._strong

    def _initialize(self, builder: Any, flags: int) -> None:
        """Sets up an empty network with the creation flags as bits."""
        self._builder = builder
        self._flags = flags
        self._strong = self._rules.typing == "strong" or (
            self._rules.typing == "flag" and self._has_flag("STRONGLY_TYPED")
        )
        self._layers: list[Layer] = []
        self._inputs = []
        self._outputs = []
        self._shape_outputs: list[Tensor] = []
        self._weights_names: dict[tuple[int, int, str], str] = {}
        self._refittable: set[str] = set()
        self._debug: list[Tensor] = []
        self._name = "Unnamed Network 0"
        self._counter = 0
        self._control_count = 0
        self._reported: set[str] = set()
        self._recorder: Any = None

    def _has_flag(self, name: str) -> bool:
        member = self._trt.NetworkDefinitionCreationFlag.__members__.get(name)
        return member is not None and bool(self._flags >> int(member) & 1)

    def _next_position(self) -> int:
        position = self._counter
        self._counter += 1
        return position

    def _new_tensor(self, name: str, producer: Layer | None = None, index: int = 0) -> Tensor:
        return self._trt.ITensor._made(self, name, producer, index)  # type: ignore[no-any-return]

    def _error(self, message: str) -> None:
        report(self._builder._logger, message, self, self._builder)

    def _report_once(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            self._error(message)

    def _add(
        self, kind: type[Layer], operation: Operation, arguments: Mapping[str, Any], method: str
    ) -> Layer | None:
        """Adds a layer made by ``method`` from its arguments; None, with a logged error, if TensorRT refuses it."""
        attributes = {**operation.defaults, **operation.methods[method]}
        inputs: list[Tensor | None] = []
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                inputs.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], Tensor):
                inputs.extend(value)
            elif name == "axes" and value is None:
                continue
            else:
                plain = value.tolist() if isinstance(value, np.ndarray) else value
                attributes[operation.renames.get(name, name)] = getattr(plain, "name", plain)
        if not self._contains(inputs, method):
            return None
        layer = kind._made(self, operation, inputs, attributes)
        try:
            operation.admit(Call(attributes, _KnownFacts(inputs), self._rules, self._strong))
        except RefusedError as error:
            self._error(f"{layer._name}: {error}")
            for tensor in inputs:
                if tensor is not None:
                    tensor._consumers.pop(id(layer), None)
            return None
        self._layers.append(layer)
        return layer

    def _contains(self, tensors: Sequence[Tensor | None], what: str) -> bool:
        """Returns whether tensors are of this network; logs an error if one is not, and ``what`` reads it."""
        foreign = [
            tensor for tensor in tensors if tensor is not None and tensor._network is not self
        ]
        if foreign:
            self._error(
                f"{what}: Error Code 3: API Usage Error (Parameter check failed, condition: containsTensor. "
                f"{foreign[0]._name!r} is a tensor of another network)"
            )
        return not foreign

    def _append(
        self,
        kind: type[Layer],
        operation: Operation,
        inputs: Sequence[Tensor],
        attributes: Mapping[str, Any],
    ) -> Layer | None:
        """Adds a plugin, or a layer at the boundary of control flow; None if an input is of another network."""
        if not self._contains(inputs, f"add_{operation.name}"):
            return None
        layer = kind._made(self, operation, inputs, {**operation.defaults, **attributes})
        self._layers.append(layer)
        return layer

    def add_plugin_v3(
        self, inputs: Sequence[Tensor], shape_inputs: Sequence[Tensor], plugin: Any
    ) -> Layer | None:
        """Adds a plugin; None, with a logged error, if it refuses its inputs."""
        try:
            if shape_inputs:
                message = "the reference gives plugins no shape inputs"
                raise RefusedError(message)
            record = record_of(self._trt, plugin, [tensor._facts() for tensor in inputs])
        except RefusedError as error:
            self._error(f"add_plugin_v3: {error}")
            return None
        operation = OPERATIONS["plugin_v3"]
        layer = self._append(self._trt.IPluginV3Layer, operation, inputs, {"record": record})
        if isinstance(layer, PluginV3Layer):
            layer._plugin = plugin
        return layer

    def add_loop(self) -> Any:
        """Adds a loop."""
        return self._add_control("ILoop")

    def add_if_conditional(self) -> Any:
        """Adds a conditional."""
        return self._add_control("IIfConditional")

    def _add_control(self, interface: str) -> Any:
        self._control_count += 1
        name = f"(Unnamed {interface[1:]}* {self._control_count - 1})"
        return getattr(self._trt, interface)._made(self, name)

    def add_input(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Tensor | None:
        """Adds an input; -1 stands for a dimension that is given at run time."""
        problem = None
        if any(tensor._name == name for tensor in self._inputs):
            problem = f"the network already has an input named {name!r}"
        elif any(dimension < -1 for dimension in shape):
            problem = (
                f"the input {name!r} has a negative dimension in {tuple(shape)}; only -1 is allowed"
            )
        elif dtype.name in ("INT4", "FP4", "E8M0"):
            problem = f"the input {name!r} cannot be of type {dtype.name}"
        if problem is not None:
            self._error(f"add_input: {problem}")
            return None
        tensor = self._new_tensor(name)
        tensor._shape, tensor._declared = tuple(shape), dtype.name
        self._inputs.append(tensor)
        return tensor

    def mark_output(self, tensor: Tensor) -> None:
        """Makes a tensor an output of the network."""
        if tensor._producer is None:
            self._error(
                f"{tensor._name}: a network input cannot be an output; add an identity layer"
            )
        elif not tensor.is_network_output:
            self._outputs.append(tensor)

    def unmark_output(self, tensor: Tensor) -> None:
        """Makes an output an inner tensor again."""
        self._outputs = [output for output in self._outputs if output is not tensor]

    def mark_output_for_shapes(self, tensor: Tensor) -> bool:
        """Makes a shape tensor an output; returns whether it can be one."""
        fact = tensor._facts_or_none()
        if (
            fact is None
            or fact.rank > 1
            or fact.dtype not in ("INT32", "INT64")
            or not fact.is_static
        ):
            self._error(
                f"{tensor._name}: an output for shapes is an integer tensor of rank 0 or 1 and constant length"
            )
            return False
        self._shape_outputs.append(tensor)
        if not tensor.is_network_output:
            self._outputs.append(tensor)
        return True

    def unmark_output_for_shapes(self, tensor: Tensor) -> bool:
        """Takes back ``mark_output_for_shapes``; returns whether the tensor was marked."""
        was_marked = any(output is tensor for output in self._shape_outputs)
        self._shape_outputs = [output for output in self._shape_outputs if output is not tensor]
        self.unmark_output(tensor)
        return was_marked

    def remove_tensor(self, tensor: Tensor) -> None:
        """Removes a tensor that no layer reads."""
        self._inputs = [
            network_input for network_input in self._inputs if network_input is not tensor
        ]
        self.unmark_output(tensor)

    def set_weights_name(self, weights: Weights, name: str) -> bool:
        """Names weights that a layer uses, for refit; returns whether there are such weights."""
        identity = weights._identity()
        used = any(
            isinstance(value, Weights) and value._identity() == identity
            for layer in self._layers
            for value in layer._attributes.values()
        )
        if not used:
            self._error(
                f"set_weights_name: no layer uses the weights to be named {name!r}; name them after use"
            )
            return False
        self._weights_names[identity] = name
        return True

    def mark_weights_refittable(self, name: str) -> bool:
        """Lets the named weights be refitted; returns whether there are such weights."""
        if name not in self._weights_names.values():
            return False
        self._refittable.add(name)
        return True

    def unmark_weights_refittable(self, name: str) -> bool:
        """Takes back ``mark_weights_refittable``; returns whether the weights were marked."""
        was_marked = name in self._refittable
        self._refittable.discard(name)
        return was_marked

    def are_weights_marked_refittable(self, name: str) -> bool:
        """Returns whether the named weights are marked."""
        return name in self._refittable

    def mark_debug(self, tensor: Tensor) -> bool:
        """Marks a tensor whose values listeners can receive; inside a loop it has many, and is not shown."""
        if not self.is_debug_tensor(tensor):
            self._debug.append(tensor)
        return True

    def unmark_debug(self, tensor: Tensor) -> bool:
        """Takes back ``mark_debug``."""
        self._debug = [marked for marked in self._debug if marked is not tensor]
        return True

    def is_debug_tensor(self, tensor: Tensor) -> bool:
        """Returns whether a tensor is marked for debugging."""
        return any(marked is tensor for marked in self._debug)

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Marks every tensor that a build keeps; the reference takes note and shows none of them."""
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Takes back ``mark_unfused_tensors_as_debug_tensors``."""
        return True

    def _needs_value(self, tensor: Tensor) -> bool:
        """Whether a shape depends on the tensor's value: directly, or through layers that compute small tensors."""
        pending, seen = [tensor], set()
        while pending:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            if any(output is current for output in self._shape_outputs):
                return True
            for layer in current._consumers.values():
                reads = [index for index, operand in enumerate(layer._inputs) if operand is current]
                if any(
                    index in layer._operation.values_needed(layer._attributes) for index in reads
                ):
                    return True
                if layer._operation.partial is not None or layer._operation.name == "reduce":
                    pending.extend(layer._outputs)
        return False

    def get_layer(self, index: int) -> Layer | None:
        """Returns a layer, None where there is none."""
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> Layer:
        return self._layers[index]

    def __iter__(self) -> Iterator[Layer]:
        return iter(tuple(self._layers))

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self._layers)

    @property
    def has_implicit_batch_dimension(self) -> bool:
        """Whether the batch dimension is implicit; it never is."""
        return False

    @property
    def has_explicit_precision(self) -> bool:
        """A remnant of an old quantization workflow."""
        return True

    @property
    def flags(self) -> int:
        """The creation flags, a bit mask."""
        return self._flags

    def get_flag(self, flag: Any) -> bool:
        """Returns whether a creation flag is set."""
        return bool(self._flags >> int(flag) & 1)

    @property
    def error_recorder(self) -> Any:
        """The error recorder that was set."""
        return self._recorder

    @error_recorder.setter
    def error_recorder(self, value: Any) -> None:
        self._recorder = value

    @property
    def builder(self) -> Any:
        """The builder that made this network."""
        return self._builder
