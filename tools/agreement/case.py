"""The cases of the table: inputs, and a function that builds a small network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TENSORRT_TYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "int8": "INT8",
    "int32": "INT32",
    "bool": "BOOL",
    "uint8": "UINT8",
}
_MEMBER = re.compile(r"[A-Z]\w+\.[A-Z][A-Z0-9_]*")


class NotAdded(Exception):
    """``add_*`` returned None."""


@dataclass(frozen=True, eq=False)
class Dynamic:
    """An input with wildcard dimensions.

    Attributes:
        value: What the input holds.
        low: The minimum shape of the optimization profile.
        high: The maximum shape of the optimization profile.
        declared: The shape of the network input; -1 is a wildcard.
        best: The shape that the profile optimizes for; the value's if None.
    """

    value: np.ndarray
    low: tuple[int, ...]
    high: tuple[int, ...]
    declared: tuple[int, ...]
    best: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class ShapeValues:
    """An int32 input whose values TensorRT needs to compute shapes.

    Attributes:
        value: What the input holds.
        low: The minimum values of the optimization profile.
        high: The maximum values of the optimization profile.
        best: The values that the profile optimizes for; what the input holds if None.
    """

    value: np.ndarray
    low: tuple[int, ...]
    high: tuple[int, ...]
    best: tuple[int, ...] | None = None


Given = np.ndarray | Dynamic | ShapeValues


def dynamic(value: np.ndarray, *axes: int) -> Dynamic:
    """Returns an input whose ``axes`` (all, if none is given) are wildcards around the value's sizes."""
    wild = axes or tuple(range(value.ndim))
    sizes = list(enumerate(value.shape))
    return Dynamic(
        value,
        tuple(min(size, 1) if axis in wild else size for axis, size in sizes),
        tuple(size + 1 if axis in wild else size for axis, size in sizes),
        tuple(-1 if axis in wild else size for axis, size in sizes),
    )


class Network:
    """A network under construction, with its inputs by name: ``network["a"]``.

    Args:
        trt: NVIDIA's TensorRT or the reference.
        definition: The empty network.
        inputs: What to add as inputs.
    """

    def __init__(self, trt: Any, definition: Any, inputs: Mapping[str, Given]) -> None:
        self.trt = trt
        self.definition = definition
        self.calls: list[str] = []
        self._arrays: list[np.ndarray] = []  # TensorRT does not copy weights before it builds
        self._inputs = {name: self._add_input(name, input_) for name, input_ in inputs.items()}

    def _add_input(self, name: str, input_: Given) -> Any:
        array = input_ if isinstance(input_, np.ndarray) else input_.value
        declared = input_.declared if isinstance(input_, Dynamic) else array.shape
        dtype = getattr(self.trt.DataType, TENSORRT_TYPES[array.dtype.name])
        added = self.definition.add_input(name, dtype, tuple(declared))
        if added is None:
            raise NotAdded("input")
        return added

    def __getitem__(self, name: str) -> Any:
        return self._inputs[name]

    def resolve(self, value: Any) -> Any:
        """Returns the enum member that a text such as ``"PoolingType.MAX"`` names; anything else as it is."""
        if isinstance(value, str) and _MEMBER.fullmatch(value):
            kind, member = value.split(".")
            return getattr(getattr(self.trt, kind), member)
        return value

    def call(self, owner: Any, method: str, *arguments: Any, **attributes: Any) -> Any:
        """Returns what ``owner.method`` added, with attributes set.

        Raises:
            NotAdded: It returned None.
        """
        self.calls.append(method)
        layer = getattr(owner, method)(*map(self.resolve, arguments))
        if layer is None:
            raise NotAdded(method)
        for name, value in attributes.items():
            setattr(layer, name, self.resolve(value))
        return layer

    def layer(self, kind: str, *arguments: Any, **attributes: Any) -> Any:
        """Returns the layer that ``add_<kind>`` made, with attributes set; enum members may be texts."""
        return self.call(self.definition, f"add_{kind}", *arguments, **attributes)

    def out(self, kind: str, *arguments: Any, **attributes: Any) -> Any:
        """Returns the first output of ``layer``."""
        return self.layer(kind, *arguments, **attributes).get_output(0)

    def weights(self, value: Any, dtype: Any = np.float32) -> Any:
        """Returns ``trt.Weights`` of an array that stays alive as long as the network."""
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self._arrays.append(array)
        return self.trt.Weights(array)

    def constant(self, value: Any, dtype: Any = np.float32) -> Any:
        """Returns a constant tensor."""
        return self.out("constant", np.shape(value), self.weights(value, dtype))

    def ints(self, *values: int) -> Any:
        """Returns a one-dimensional int32 constant."""
        return self.constant(values, np.int32)

    def scalar(self, value: Any, dtype: Any = np.int32) -> Any:
        """Returns a constant of rank 0."""
        return self.constant(np.asarray(value), dtype)

    def shape(self, tensor: Any) -> Any:
        """Returns the shape of a tensor as a shape tensor."""
        return self.out("shape", tensor)

    def size(self, tensor: Any, axis: int) -> Any:
        """Returns the size of one dimension as a shape tensor of rank 0."""
        return self.out("gather", self.shape(tensor), self.scalar(axis), 0)


@dataclass(frozen=True, eq=False)
class Case:
    """One small network.

    Attributes:
        name: ``family/what/how``; unique in the table.
        inputs: What goes in, by name.
        build: Builds the network; returns its output tensors, or a layer whose outputs they are.
        flags: Builder flags to set, by name.
        types: Types to declare on the outputs, by name; empty for their natural types.
        undeclared: Whether the outputs' types must stay undeclared, even if TensorRT requires them to be declared.
        within: For random outputs: the bounds, which are all that is compared of the values.
        tolerance: Relative and absolute tolerance of values; by default what the types allow.
    """

    name: str
    inputs: Mapping[str, Given]
    build: Callable[[Network], Any]
    flags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    undeclared: bool = False
    within: tuple[float, float] | None = None
    tolerance: float | None = None

    @property
    def family(self) -> str:
        """The first part of the name."""
        return self.name.partition("/")[0]


def outputs_of(built: Any) -> list[Any]:
    """Returns the output tensors that a case's ``build`` meant."""
    if isinstance(built, Sequence):
        return list(built)
    if hasattr(built, "num_outputs"):
        return [built.get_output(index) for index in range(built.num_outputs)]
    return [built]
