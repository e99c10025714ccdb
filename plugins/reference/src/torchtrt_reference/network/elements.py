"""``ITensor`` and ``ILayer``: the edges and the nodes of a network, which refer to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torchtrt_reference.implementation import Implementation
from torchtrt_reference.rules import Rules
from torchtrt_reference.semantics.evaluation import infer
from torchtrt_reference.semantics.operation import Call, Operation
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts


class Surroundings(Protocol):
    """The interface of a network to its tensors and layers."""

    _strong: bool
    _inputs: list[Tensor]
    _outputs: list[Tensor]

    @property
    def _rules(self) -> Rules:
        """The rules of the version."""

    @property
    def _types_are_hints(self) -> bool:
        """Whether types are wishes: in a weakly typed network, in versions that treat them so."""

    def _next_position(self) -> int:
        """The number of a new layer."""

    def _new_tensor(self, name: str, producer: Layer | None = None, index: int = 0) -> Tensor:
        """A new tensor of the version's class."""

    def _needs_value(self, tensor: Tensor) -> bool:
        """Whether a shape depends on the tensor's value."""

    def _contains(self, tensors: Sequence[Tensor | None], what: str) -> bool:
        """Whether tensors are of this network; logs it if one is not."""

    def _error(self, message: str) -> None:
        """Logs what is refused."""

    def _report_once(self, message: str) -> None:
        """Logs what is refused, unless it was already."""


class Ported:
    """Something with inputs and outputs: a layer or a network."""

    _inputs: Sequence[Tensor | None]
    _outputs: Sequence[Tensor]

    def get_input(self, index: int) -> Tensor | None:
        """Returns an input, None where there is none."""
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> Tensor | None:
        """Returns an output, None where there is none."""
        return self._outputs[index] if 0 <= index < len(self._outputs) else None

    @property
    def num_inputs(self) -> int:
        """The number of inputs."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return len(self._outputs)


class Tensor(Implementation):
    """A tensor of a network: an input, or an output of a layer.

    Its shape and type are inferred when they are read. A shape that cannot be inferred is invalid: its length is an
    error, and the build fails with the reason.
    """

    _implements = ("ITensor",)

    def _initialize(
        self, network: Surroundings, name: str, producer: Layer | None = None, index: int = 0
    ) -> None:
        """Sets up a tensor that ``producer`` returns at ``index``, or, without a producer, a network input."""
        self._network = network
        self._name = name
        self._producer = producer
        self._index = index
        self._consumers: dict[int, Layer] = {}
        self._declared: str | None = None  # the type that was set
        self._shape: tuple[int, ...] = ()  # of a network input
        self._dimension_names: dict[int, str] = {}
        self._formats = 1
        self._location: Any = None
        self._range: tuple[float, float] | None = None
        self._broadcast = False

    def _facts(self) -> TensorFacts:
        """The known facts about this tensor.

        Raises:
            RefusedError: A rule is broken by the layer that makes it, or by one before.
        """
        if self._producer is None:
            return TensorFacts(self._declared or "FLOAT", self._shape)
        return self._producer._output_facts()[self._index]

    def _facts_or_none(self) -> TensorFacts | None:
        try:
            return self._facts()
        except RefusedError as error:
            self._network._report_once(str(error))
            return None

    @property
    def name(self) -> str:
        """The tensor's name, unique in its network."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if len(value) <= 4095:
            self._name = value
        else:
            self._network._error("a tensor name may have at most 4095 bytes")

    @property
    def shape(self) -> Any:
        """The dimensions; -1 where the runtime determines them; invalid dimensions where they cannot be inferred."""
        fact = self._facts_or_none()
        return self._trt.Dims._invalid() if fact is None else self._trt.Dims(fact.shape)

    @shape.setter
    def shape(self, value: tuple[int, ...]) -> None:
        if self._producer is not None:
            self._network._error(f"{self._name}: only the shape of a network input can be set")
            return
        self._shape = tuple(value)
        self._invalidate()

    @property
    def dtype(self) -> Any:
        """The type; the default is float32 where it cannot be inferred.

        TensorRT 8.6 calls what a layer makes Float, also where it is a constant or a cast of float16, until it is
        declared otherwise.
        """
        fact = self._facts_or_none()
        name = "FLOAT" if fact is None else fact.dtype
        is_hint = self._network._types_are_hints and self._producer and not self._asked_type()
        name = "FLOAT" if name == "HALF" and is_hint else name
        return self._trt.DataType.__members__[name]

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if self._network._strong:
            self._network._error(
                f"{self._name}: the type of a tensor cannot be set in a strongly typed network"
            )
            return
        self._declared = value.name
        self._invalidate()

    def _asked_type(self) -> str | None:
        """The type that is required: set for the tensor, or for what its layer makes."""
        if self._declared or self._producer is None:
            return self._declared
        return self._producer._output_types.get(self._index)

    def _invalidate(self) -> None:
        if self._producer is not None:
            self._producer._invalidate()
        for consumer in self._consumers.values():
            consumer._invalidate()

    @property
    def location(self) -> Any:
        """Where the tensor lives: on the host if it is a shape input."""
        host = self._producer is None and self.is_shape_tensor
        return self._location or self._trt.TensorLocation.__members__["HOST" if host else "DEVICE"]

    @location.setter
    def location(self, value: Any) -> None:
        self._location = value

    @property
    def is_network_input(self) -> bool:
        """Whether the tensor is an input of its network."""
        return any(tensor is self for tensor in self._network._inputs)

    @property
    def is_network_output(self) -> bool:
        """Whether the tensor is marked as an output."""
        return any(tensor is self for tensor in self._network._outputs)

    @property
    def is_shape_tensor(self) -> bool:
        """Whether the tensor's values are needed to compute shapes; final once the network is complete."""
        return self._network._needs_value(self)

    @property
    def is_execution_tensor(self) -> bool:
        """Whether the tensor is computed when the engine runs."""
        return not self.is_shape_tensor or self.is_network_output

    @property
    def allowed_formats(self) -> int:
        """The formats allowed for an input or output, a bit mask; the reference computes in linear format."""
        return self._formats

    @allowed_formats.setter
    def allowed_formats(self, value: int) -> None:
        self._formats = value

    @property
    def broadcast_across_batch(self) -> bool:
        """A remnant of implicit batches, without effect."""
        return self._broadcast

    @broadcast_across_batch.setter
    def broadcast_across_batch(self, value: bool) -> None:
        self._broadcast = value

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        """The range for implicit quantization, None if unset; the reference does not quantize implicitly."""
        return self._range

    @dynamic_range.setter
    def dynamic_range(self, value: tuple[float, float]) -> None:
        self._range = (float(value[0]), float(value[1]))

    def set_dynamic_range(self, min: float, max: float) -> bool:
        """Sets the range for implicit quantization."""
        self._range = (min, max)
        return True

    def reset_dynamic_range(self) -> None:
        """Removes the range for implicit quantization."""
        self._range = None

    def set_dimension_name(self, index: int, name: str) -> None:
        """Names a dimension of an input; equal names must be equal lengths at run time."""
        self._dimension_names[index] = name

    def get_dimension_name(self, index: int) -> str | None:
        """Returns the name of a dimension, None if it has none."""
        return self._dimension_names.get(index)


class Layer(Implementation, Ported):
    """A layer of a network: an operation, its attributes, its inputs and its outputs.

    The properties of the subclasses in the interface (``axis``, ``op``, ...) read and write ``attributes``.
    """

    _implements = ("ILayer",)
    _inputs: list[Tensor | None]
    _outputs: list[Tensor]

    def _initialize(
        self,
        network: Surroundings,
        operation: Operation,
        inputs: Sequence[Tensor | None],
        attributes: dict[str, Any],
    ) -> None:
        """Sets up a layer that was added to a network."""
        self._network = network
        self._operation = operation
        self._attributes = attributes
        self._inputs = []
        self._position = network._next_position()
        self._name = f"(Unnamed Layer* {self._position}) [{operation.title}]"
        self._metadata = ""
        self._output_types: dict[int, str] = {}
        self._precision: Any = None
        self._cached: tuple[TensorFacts, ...] | RefusedError | None = None
        for tensor in inputs:
            self._inputs.append(tensor)
            if tensor is not None:
                tensor._consumers[id(self)] = self
        self._outputs = []
        self._fit_outputs()

    def _fit_outputs(self) -> None:
        """Makes or drops outputs until there are as many as the operation has with these attributes."""
        count = self._operation.output_count(self._attributes)
        del self._outputs[count:]
        for index in range(len(self._outputs), count):
            self._outputs.append(self._network._new_tensor(self._output_name(index), self, index))

    def _output_name(self, index: int) -> str:
        return f"{self._name}_output" if index == 0 else f"{self._name}_output_{index}"

    def _held(self) -> Layer:
        """The result of the method that adds the layer."""
        return self

    def _operands(self) -> Sequence[Tensor | None]:
        """The tensors that the operation reads: the inputs, and in subclasses those that TensorRT counts apart."""
        return self._inputs

    def _input_facts(self) -> list[TensorFacts | None]:
        return [None if tensor is None else tensor._facts() for tensor in self._operands()]

    def _call(self) -> Call:
        return Call(
            self._attributes,
            self._input_facts(),
            self._network._rules,
            self._network._strong,
            [tensor._asked_type() for tensor in self._outputs],
        )

    def _output_facts(self) -> tuple[TensorFacts, ...]:
        """The facts of the outputs.

        Raises:
            RefusedError: A rule is broken here or before; the text names the layer.
        """
        if self._cached is None:
            for layer in self._unknown_before():
                layer._settle()
        if isinstance(self._cached, RefusedError):
            raise self._cached
        assert self._cached is not None
        return self._cached

    def _unknown_before(self) -> list[Layer]:
        """Returns the layers without known facts that this one depends on, and itself, each after those it reads."""
        # Iterative, because a network may be deeper than Python's stack.
        order: list[Layer] = []
        stack: list[tuple[Layer, bool]] = [(self, False)]
        seen: set[int] = set()
        while stack:
            layer, is_ready = stack.pop()
            if is_ready:
                order.append(layer)
                continue
            if id(layer) in seen or layer._cached is not None:
                continue
            seen.add(id(layer))
            stack.append((layer, True))
            for tensor in layer._operands():
                if tensor is not None and tensor._producer is not None:
                    stack.append((tensor._producer, False))
        return order

    def _settle(self) -> None:
        try:
            call = self._call()
        except RefusedError as error:
            self._cached = error  # of an earlier layer, which is already named
            return
        try:
            self._cached = infer(self._operation, call)
        except RefusedError as error:
            self._cached = RefusedError(f"{self._name}: {error}")

    def _invalidate(self) -> None:
        pending = [self]
        while pending:
            layer = pending.pop()
            if layer._cached is None:
                continue
            layer._cached = None
            for tensor in layer._outputs:
                pending.extend(tensor._consumers.values())

    def _drop_inputs(self, first: int) -> None:
        for index in range(first, len(self._inputs)):
            self._drop_input(index)

    def _drop_input(self, index: int) -> None:
        if index < len(self._inputs):
            dropped = self._inputs[index]
            self._inputs[index] = None
            if dropped is not None and not any(tensor is dropped for tensor in self._inputs):
                dropped._consumers.pop(id(self), None)
        while self._inputs and self._inputs[-1] is None:
            self._inputs.pop()
        self._invalidate()

    def set_input(self, index: int, tensor: Tensor) -> None:
        """Connects an input, and extends the inputs where the layer documents further ones."""
        limit = self._operation.maximum_inputs or len(self._inputs)
        if not 0 <= index < max(limit, len(self._inputs)):
            self._network._error(f"{self._name}: input {index} does not exist")
            return
        if not self._network._contains([tensor], f"{self._name}: set_input"):
            return
        while len(self._inputs) <= index:
            self._inputs.append(None)
        self._inputs[index] = tensor
        tensor._consumers[id(self)] = self
        self._invalidate()

    @property
    def name(self) -> str:
        """The layer's name."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if len(value) > 4095:
            self._network._error("a layer name may have at most 4095 bytes")
            return
        named_after = [t for t in self._outputs if t._name.startswith(f"{self._name}_output")]
        self._name = value
        for tensor in named_after:
            tensor._name = self._output_name(tensor._index)
        self._invalidate()

    @property
    def metadata(self) -> str:
        """A text that travels with the layer into the engine."""
        return self._metadata

    @metadata.setter
    def metadata(self, value: str) -> None:
        self._metadata = value

    @property
    def type(self) -> Any:
        """The kind of layer."""
        return self._trt.LayerType.__members__[
            self._operation.layer_type or self._operation.name.upper()
        ]

    @property
    def precision(self) -> Any:
        """The type a weakly typed build should compute in; the reference computes in the declared types."""
        return self._precision or self._trt.DataType.FLOAT

    @precision.setter
    def precision(self, value: Any) -> None:
        self._precision = value

    @property
    def precision_is_set(self) -> bool:
        """Whether a precision was set."""
        return self._precision is not None

    def reset_precision(self) -> None:
        """Removes the precision."""
        self._precision = None

    def set_output_type(self, index: int, dtype: Any) -> None:
        """Sets the type of an output of a weakly typed network."""
        if self._network._strong:
            self._network._error(
                f"{self._name}: output types cannot be set in a strongly typed network"
            )
            return
        self._output_types[index] = dtype.name
        self._invalidate()

    def get_output_type(self, index: int) -> Any:
        """Returns the type of an output."""
        if not 0 <= index < len(self._outputs):
            self._network._error(f"{self._name}: output {index} does not exist")
            return self._trt.DataType.FLOAT
        return self._outputs[index].dtype

    def output_type_is_set(self, index: int) -> bool:
        """Returns whether the type of an output was set."""
        return index in self._output_types

    def reset_output_type(self, index: int) -> None:
        """Removes the type that was set for an output."""
        self._output_types.pop(index, None)
        self._invalidate()

    @property
    def num_ranks(self) -> int:
        """How many processes a distributed layer spans."""
        return int(self._attributes.get("num_ranks", 1))

    @num_ranks.setter
    def num_ranks(self, value: int) -> None:
        try:
            if "num_ranks" in self._attributes:
                self._operation.write(self, "num_ranks", value)
                self._invalidate()
            elif value != 1:
                raise RefusedError("this layer runs in one process")
        except RefusedError as error:
            self._network._error(f"{self._name}: {error}")
            text = "Failed to set num_ranks. Only IDistCollectiveLayer supports num_ranks > 1 via ILayer."
            raise RuntimeError(text) from error
