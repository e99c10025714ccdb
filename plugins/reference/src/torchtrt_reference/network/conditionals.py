"""``IIfConditional``: the object that adds the layers at the boundary of a conditional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.network.named import Named
from torchtrt_reference.operations import OPERATIONS


class IfBoundaryLayer(Layer):
    """A layer at the boundary of a conditional."""

    _implements = ("IIfConditionalBoundaryLayer",)
    _conditional: IfConditional

    @property
    def conditional(self) -> Any:
        """The conditional it belongs to."""
        return self._conditional

    def _operands(self) -> Sequence[Tensor | None]:
        if self._operation.name == "conditional_output":
            return [self._conditional._condition, *self._inputs]
        return self._inputs


class IfConditional(Implementation, Named):
    """A conditional: a condition, inputs, and outputs that come from one branch or the other."""

    _implements = ("IIfConditional",)

    def _initialize(self, network: NetworkDefinition, name: str) -> None:
        self._network = network
        self._name = name
        self._number = network._control_count  # distinguishes the outputs of conditionals
        self._condition: Tensor | None = None

    def _boundary(self, name: str, *tensors: Tensor, **attributes: Any) -> Any:
        operation = OPERATIONS[name]
        layer: Any = self._network._append(
            getattr(self._trt, operation.interface), operation, tensors, attributes
        )
        if layer is not None:
            layer._conditional = self
        return layer

    def set_condition(self, condition: Tensor) -> Any:
        """Sets the scalar boolean that decides."""
        self._condition = condition
        return self._boundary("condition", condition)

    def add_input(self, input: Tensor) -> Any:
        """Adds a tensor that the branches read."""
        return self._boundary("conditional_input", input)

    def add_output(self, true_subgraph_output: Tensor, false_subgraph_output: Tensor) -> Any:
        """Adds a result with one value for each branch."""
        return self._boundary(
            "conditional_output",
            true_subgraph_output,
            false_subgraph_output,
            conditional=self._number,
        )
