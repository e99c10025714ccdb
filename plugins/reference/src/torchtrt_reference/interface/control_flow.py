"""``ILoop`` and ``IIfConditional``: the objects that add the boundary layers of control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torchtrt_reference.interface.layer import Layer
from torchtrt_reference.interface.ports import Named
from torchtrt_reference.interface.tensors import Tensor
from torchtrt_reference.operations import OPERATIONS

if TYPE_CHECKING:
    from torchtrt_reference.interface.network import NetworkDefinition


class LoopBoundaryLayer(Layer):
    """A layer at the boundary of a loop."""

    _loop: Loop

    @property
    def loop(self) -> Any:
        """The loop it belongs to."""
        return self._loop

    def _operands(self) -> Sequence[Tensor | None]:
        # A recurrence's next value depends on the recurrence itself: inference starts from the initial value.
        return self._inputs[:1] if self._operation.name == "recurrence" else self._inputs


class Loop(Named):
    """A loop: recurrences, iterators, trip limits and outputs around layers that depend on them."""

    _trt: ClassVar[Any]

    def _initialize(self, network: NetworkDefinition, name: str) -> None:
        self._network = network
        self._name = name
        self._layers: list[LoopBoundaryLayer] = []

    def _boundary(self, interface: str, operation: str, tensor: Tensor, **attributes: Any) -> Any:
        layer: Any = self._network._append(
            getattr(self._trt, interface), OPERATIONS[operation], [tensor], attributes
        )
        layer._loop = self
        self._layers.append(layer)
        return layer

    def _of(self, operation: str) -> list[LoopBoundaryLayer]:
        return [layer for layer in self._layers if layer._operation.name == operation]

    def add_recurrence(self, initial_value: Tensor) -> Any:
        """Adds a value that is carried over; ``set_input(1, next)`` closes the circle."""
        return self._boundary("IRecurrenceLayer", "recurrence", initial_value)

    def add_trip_limit(self, tensor: Tensor, kind: Any) -> Any:
        """Adds a limit; the build wants at most one of each kind."""
        return self._boundary("ITripLimitLayer", "trip_limit", tensor, kind=kind.name)

    def add_iterator(self, tensor: Tensor, axis: int = 0, reverse: bool = False) -> Any:
        """Adds an iteration over the slices of a tensor."""
        return self._boundary("IIteratorLayer", "iterator", tensor, axis=axis, reverse=reverse)

    def add_loop_output(self, tensor: Tensor, kind: Any, axis: int = 0) -> Any:
        """Adds an output; the build wants the last value to be a recurrence's."""
        return self._boundary("ILoopOutputLayer", "loop_output", tensor, kind=kind.name, axis=axis)


class IfBoundaryLayer(Layer):
    """A layer at the boundary of a conditional."""

    _conditional: IfConditional

    @property
    def conditional(self) -> Any:
        """The conditional it belongs to."""
        return self._conditional

    def _operands(self) -> Sequence[Tensor | None]:
        if self._operation.name == "conditional_output":
            return [self._conditional._condition, *self._inputs]
        return self._inputs


class IfConditional(Named):
    """A conditional: a condition, inputs, and outputs that come from one branch or the other."""

    _trt: ClassVar[Any]

    def _initialize(self, network: NetworkDefinition, name: str) -> None:
        self._network = network
        self._name = name
        self._number = network._control_count  # tells the outputs of conditionals apart
        self._condition: Tensor | None = None

    def _boundary(self, interface: str, operation: str, *tensors: Tensor, **attributes: Any) -> Any:
        layer: Any = self._network._append(
            getattr(self._trt, interface), OPERATIONS[operation], tensors, attributes
        )
        layer._conditional = self
        return layer

    def set_condition(self, condition: Tensor) -> Any:
        """Sets the scalar boolean that decides."""
        self._condition = condition
        return self._boundary("IConditionLayer", "condition", condition)

    def add_input(self, input: Tensor) -> Any:
        """Adds a tensor that the branches read."""
        return self._boundary("IIfConditionalInputLayer", "conditional_input", input)

    def add_output(self, true_subgraph_output: Tensor, false_subgraph_output: Tensor) -> Any:
        """Adds a result with one value for each branch."""
        return self._boundary(
            "IIfConditionalOutputLayer",
            "conditional_output",
            true_subgraph_output,
            false_subgraph_output,
            conditional=self._number,
        )
