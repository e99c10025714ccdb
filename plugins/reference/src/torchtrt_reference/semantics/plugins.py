"""Plugins as a built network holds them: plain data, and the kernel that a runtime creates from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

Size = int | tuple[Any, ...]
"""A dimension as an expression: an integer, ``("dim", input, axis)``, or ``(operation, left, right)``."""

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "SUM": lambda left, right: left + right,
    "PROD": lambda left, right: left * right,
    "MAX": max,
    "MIN": min,
    "SUB": lambda left, right: left - right,
    "EQUAL": lambda left, right: int(left == right),
    "LESS": lambda left, right: int(left < right),
    "FLOOR_DIV": lambda left, right: left // right,
    "CEIL_DIV": lambda left, right: -(-left // right),
}
"""The members of ``DimensionOperation``."""


class Kernel(Protocol):
    """A plugin that a runtime created."""

    def bind(
        self, inputs: Sequence[TensorFacts], outputs: Sequence[TensorFacts]
    ) -> Callable[..., Any]:
        """Returns the function that runs the plugin for these shapes."""


@dataclass(slots=True, eq=False)
class PluginRecord:
    """One plugin of a network.

    Attributes:
        name: The plugin's name, by which the registry has its creator.
        version: The plugin's version.
        namespace: The plugin's namespace.
        fields: What the plugin serializes: for each field its name, the name of its type, and its bytes in base64.
        input_types: The names of its inputs' types.
        output_types: The names of its outputs' types.
        output_shapes: The shape of each output, as expressions.
        kernel: What a runtime created from the fields; None in a network.
    """

    name: str
    version: str
    namespace: str
    fields: tuple[tuple[str, str, str], ...]
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]
    output_shapes: tuple[tuple[Size, ...], ...]
    kernel: Kernel | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.repr}


def combine(operation: str, left: int | None, right: int | None) -> int | None:
    """Returns the value of an operation on dimensions; None where one is unknown.

    Raises:
        RefusedError: It divides by zero.
    """
    if left is None or right is None:
        return None
    if operation.endswith("DIV") and right == 0:
        message = "an expression of a plugin's output shape divides by zero"
        raise RefusedError(message)
    return _OPERATIONS[operation](left, right)


def evaluate(size: Size, shapes: Sequence[Sequence[int]]) -> int:
    """Returns the dimension that an expression gives for the shapes of the inputs; -1 while it is unknown."""
    value = _value(size, shapes)
    return -1 if value is None else value


def _value(size: Size, shapes: Sequence[Sequence[int]]) -> int | None:
    if isinstance(size, int):
        return size
    operation, left, right = size
    if operation == "dim":
        dimension = shapes[left][right]
        return None if dimension < 0 else dimension
    return combine(operation, _value(left, shapes), _value(right, shapes))
