"""``ITensor``: an edge of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torchtrt_reference.operations.tensor_facts import RefusedError, TensorFacts

if TYPE_CHECKING:
    from torchtrt_reference.interface.layer import Layer
    from torchtrt_reference.interface.network import NetworkDefinition


class Tensor:
    """A tensor of a network: an input, or an output of a layer.

    Its shape and type are inferred when asked for. A shape that cannot be inferred is invalid: its length is an
    error, and the build fails with the reason.
    """

    _trt: ClassVar[Any]

    def __init__(
        self, network: NetworkDefinition, name: str, producer: Layer | None = None, index: int = 0
    ) -> None:
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
        """What is known about this tensor.

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
        """The dimensions; -1 where only the runtime knows; invalid dimensions where they cannot be inferred."""
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
        """The type; the default is float32 where it cannot be inferred."""
        fact = self._facts_or_none()
        return self._trt.DataType.__members__["FLOAT" if fact is None else fact.dtype]

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if self._network._strong:
            self._network._error(
                f"{self._name}: the type of a tensor cannot be set in a strongly typed network"
            )
            return
        self._declared = value.name
        self._invalidate()

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
        """Forgets the range for implicit quantization."""
        self._range = None

    def set_dimension_name(self, index: int, name: str) -> None:
        """Names a dimension of an input; equal names must be equal lengths at run time."""
        self._dimension_names[index] = name

    def get_dimension_name(self, index: int) -> str | None:
        """Returns the name of a dimension, None if it has none."""
        return self._dimension_names.get(index)
