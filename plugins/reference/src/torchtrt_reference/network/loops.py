"""``ILoop``: the object that adds the layers at the boundary of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.network.named import Named
from torchtrt_reference.operations import OPERATIONS


class LoopBoundaryLayer(Layer):
    """A layer at the boundary of a loop."""

    _implements = ("ILoopBoundaryLayer",)
    _loop: Loop

    @property
    def loop(self) -> Any:
        """The loop it belongs to."""
        return self._loop

    def _operands(self) -> Sequence[Tensor | None]:
        # A recurrence's next value depends on the recurrence itself: inference starts from the initial value.
        return self._inputs[:1] if self._operation.name == "recurrence" else self._inputs


class Loop(Implementation, Named):
    """A loop: recurrences, iterators, trip limits and outputs around layers that depend on them."""

    _implements = ("ILoop",)

    def _initialize(self, network: NetworkDefinition, name: str) -> None:
        self._network = network
        self._name = name
        self._layers: list[LoopBoundaryLayer] = []

    def _boundary(self, name: str, tensor: Tensor, **attributes: Any) -> Any:
        operation = OPERATIONS[name]
        layer: Any = self._network._append(
            getattr(self._trt, operation.interface), operation, [tensor], attributes
        )
        if layer is not None:
            layer._loop = self
            self._layers.append(layer)
        return layer

    def _of(self, operation: str) -> list[LoopBoundaryLayer]:
        return [layer for layer in self._layers if layer._operation.name == operation]

    def add_recurrence(self, initial_value: Tensor) -> Any:
        """Adds a value that is carried over; ``set_input(1, next)`` closes the circle."""
        return self._boundary("recurrence", initial_value)

    def add_trip_limit(self, tensor: Tensor, kind: Any) -> Any:
        """Adds a limit; the build accepts at most one of each kind."""
        return self._boundary("trip_limit", tensor, kind=kind.name)

    def add_iterator(self, tensor: Tensor, axis: int = 0, reverse: bool = False) -> Any:
        """Adds an iteration over the slices of a tensor."""
        return self._boundary("iterator", tensor, axis=axis, reverse=reverse)

    def add_loop_output(self, tensor: Tensor, kind: Any, axis: int = 0) -> Any:
        """Adds an output; the build requires the last value to be a recurrence's."""
        return self._boundary("loop_output", tensor, kind=kind.name, axis=axis)
