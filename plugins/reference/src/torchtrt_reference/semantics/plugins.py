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


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A compiled kernel in a plan, and its launch.

    Attributes:
        name: The name of the kernel.
        code: The code, as text.
        sizes: The grid, the block and the bytes of shared memory, by the names of ``KernelLaunchParams``.
        scalars: The 32-bit integers that the kernel takes between its inputs and its outputs.
    """

    name: str
    code: str
    sizes: tuple[tuple[str, Size], ...]
    scalars: tuple[Size, ...]

    def to_json(self) -> list[Any]:
        """Returns the plain data."""
        return [self.name, self.code, self.sizes, self.scalars]

    def at(self, shapes: Sequence[Sequence[int]]) -> tuple[dict[str, int], list[int]]:
        """Returns the numbers of a launch and the scalars for the shapes of the inputs.

        Raises:
            RefusedError: CUDA launches no such kernel.
        """
        numbers = {name: evaluate(size, shapes) for name, size in self.sizes}
        threads = numbers["block_x"] * numbers["block_y"] * numbers["block_z"]
        for name, number in (*numbers.items(), ("block_x * block_y * block_z", threads)):
            low, high = _LIMITS.get(name, (1, 65535))
            if not low <= number <= high:
                message = (
                    f"the kernel {self.name} cannot be launched: {name} is {number}, and can be {low} to {high}. The "
                    f"inputs have the shapes {', '.join(map(str, map(tuple, shapes)))}"
                )
                raise RefusedError(message)
        scalars = [evaluate(size, shapes) for size in self.scalars]
        for scalar in scalars:
            if not -(2**31) <= scalar < 2**31:
                message = f"the kernel {self.name} takes integers of 32 bits, and {scalar} has more"
                raise RefusedError(message)
        return numbers, scalars


_LIMITS: Mapping[str, tuple[int, int]] = {
    "grid_x": (1, 2**31 - 1),
    "block_x": (1, 1024),
    "block_y": (1, 1024),
    "block_z": (1, 64),
    "block_x * block_y * block_z": (1, 1024),
    "shared_mem": (0, 227 << 10),
}
"""The limits of a launch that are not those of ``grid_y`` and ``grid_z``."""


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
        launch: The compiled kernel that the engine launches itself; None if the plugin runs.
        host: The plugin that stands in for the kernel where there is no GPU.
        kernel: What a runtime created from the fields; None in a network.
    """

    name: str
    version: str
    namespace: str
    fields: tuple[tuple[str, str, str], ...]
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]
    output_shapes: tuple[tuple[Size, ...], ...]
    launch: LaunchRecord | None = None
    host: PluginRecord | None = None
    kernel: Kernel | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the plain data."""
        data = {field.name: getattr(self, field.name) for field in fields(self) if field.repr}
        inner = {name: data[name] and data[name].to_json() for name in ("launch", "host")}
        return {**data, **inner}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PluginRecord:
        """Returns the plugin that ``to_json`` described, with tuples for lists."""
        launch, host = data.get("launch"), data.get("host")
        inner = {
            "launch": launch and LaunchRecord(*launch),
            "host": host and cls.from_json(host),
        }
        return cls(**{**data, **inner})


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
