"""One call of an op as a plugin: its arguments, its dtypes and the sizes of its results, as data that a plan keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.expressions.data import InexpressibleError, Size, evaluate
from torchtrt_kernels.dimensions import to_size
from torchtrt_kernels.operators import PluginOp
from torchtrt_kernels.torch_internals import SymbolicCall, example_size

DTYPES = frozenset(
    {torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool}
)
"""The dtypes of a plugin's inputs and outputs."""
RANK_LIMIT = 8
"""The maximum number of dimensions of a tensor in TensorRT."""
ARGUMENTS = "arguments"
FIELDS = (ARGUMENTS, "inputs", "outputs")
"""The names of the fields that a plan keeps of a call."""


@dataclass(frozen=True, slots=True)
class PluginCall:
    """One call of an op.

    Attributes:
        arguments: ``[args, kwargs]`` as JSON. ``{"tensor": 0}`` is the first input. ``{"size": ...}``,
            ``{"dtype": ...}`` and ``{"float": ...}`` are values that JSON lacks.
        inputs: The dtype of each input, by name.
        outputs: The dtype and the sizes of each result.
    """

    arguments: Any
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[Size, ...]], ...]

    def to_fields(self) -> dict[str, bytes]:
        """Returns the call as the fields of a plugin: JSON texts."""
        values = self.arguments, self.inputs, self.outputs
        return {
            name: json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
            for name, value in zip(FIELDS, values, strict=True)
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, bytes]) -> PluginCall:
        """Returns the call that ``to_fields`` described."""
        arguments, inputs, outputs = (json.loads(fields[name]) for name in FIELDS)
        return cls(
            arguments,
            tuple(inputs),
            tuple((dtype, tuple(shape)) for dtype, shape in outputs),
        )

    @classmethod
    def with_arguments(cls, arguments: bytes, inputs: tuple[str, ...]) -> PluginCall:
        """Returns a call without results from the field of its arguments, and the dtypes of its inputs."""
        return cls(json.loads(arguments), inputs, ())

    def bind(
        self, tensors: Sequence[torch.Tensor], shapes: Sequence[Sequence[Any]] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Returns the op's arguments, with these tensors as its inputs.

        Args:
            tensors: The inputs.
            shapes: Their shapes, from which sizes among the arguments follow; the tensors' own if omitted.
        """
        sizes = [tensor.shape for tensor in tensors] if shapes is None else shapes

        def decoded(value: Any) -> Any:
            """Returns an argument from its JSON."""
            if isinstance(value, list):
                return [decoded(argument) for argument in value]
            if not isinstance(value, dict):
                return value
            ((kind, content),) = value.items()
            return _DECODERS[kind](content, tensors, sizes)

        args, kwargs = self.arguments
        return decoded(args), {name: decoded(value) for name, value in kwargs.items()}


_DECODERS: Mapping[str, Callable[[Any, Sequence[torch.Tensor], Sequence[Any]], Any]] = {
    "tensor": lambda content, tensors, _: tensors[content],
    "size": lambda content, _, sizes: evaluate(
        content, lambda input_dim: sizes[input_dim[0]][input_dim[1]]
    ),
    "dtype": lambda content, *_: getattr(torch, content),
    "float": lambda content, *_: float(content),
}


class _Encoder:
    """Turns a node's arguments into JSON, and numbers its tensors."""

    def __init__(self) -> None:
        self.inputs: list[Node] = []

    def encode(self, value: Any) -> Any:
        """Returns an argument as JSON.

        Raises:
            InexpressibleError: A plan keeps no such value.
        """
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else {"float": str(value)}
            case torch.dtype():
                return {"dtype": str(value).removeprefix("torch.")}
            case list() | tuple():
                return [self.encode(argument) for argument in value]
            case Node():
                return self._encode_node(value)
        message = f"plans keep no argument of type {type(value).__name__} ({value})"
        raise InexpressibleError(message)

    def _encode_node(self, node: Node) -> Any:
        """Returns a node's tensor by its number among the inputs, a size as it is, and a number as itself."""
        node_value = node.meta.get("val")
        if isinstance(node_value, torch.Tensor):
            if node not in self.inputs:
                self.inputs.append(node)
            return {"tensor": self.inputs.index(node)}
        if isinstance(node_value, (int, float)):
            return self.encode(node_value)
        if isinstance(node_value, torch.SymInt):
            return {"size": node_value}
        message = (
            f"its argument {node.name} is computed by the model, and is neither a tensor nor a size"
        )
        raise InexpressibleError(message)


def _collect(node: Node) -> tuple[Any, list[Node]]:
    """Returns a node's arguments as JSON but for symbolic sizes, and the nodes of its tensors.

    Raises:
        InexpressibleError: A plan keeps no such value.
    """
    encoder = _Encoder()
    kwargs = {name: encoder.encode(value) for name, value in node.kwargs.items()}
    return [encoder.encode(node.args), kwargs], encoder.inputs


def tensor_nodes(node: Node) -> list[Node]:
    """Returns the nodes of the tensors that a plugin reads, in the order of its inputs."""
    return _collect(node)[1]


def describe_call(plugin: PluginOp, node: Node) -> PluginCall:
    """Returns a node's call of a plugin's op.

    Runs the op's fake implementation with a symbol for each dynamic size.

    Raises:
        InexpressibleError: A plugin cannot make this call; the text is the reason.
    """
    arguments, nodes = _collect(node)
    values: list[torch.Tensor] = [node.meta["val"] for node in nodes]
    _check_values(values)
    input_dims = _input_dims(values)
    arguments = _with_sizes(arguments, input_dims.get)
    inputs = tuple(_dtype_name(value.dtype, "input") for value in values)
    call = PluginCall(arguments, inputs, ())
    symbolic = SymbolicCall()
    tensors = [_symbolic(symbolic, index, value) for index, value in enumerate(values)]
    args, kwargs = call.bind(tensors)
    try:
        results = symbolic.results(lambda: plugin.op(*args, **kwargs))
    except Exception as error:
        message = f"its fake implementation raised {type(error).__name__}: {error}"
        raise InexpressibleError(message) from error
    return PluginCall(arguments, inputs, tuple(_output(symbolic, result) for result in results))


def _check_values(values: Sequence[torch.Tensor]) -> None:
    """Checks that a plugin can read tensors like these.

    Raises:
        InexpressibleError: It cannot.
    """
    if not values:
        message = "it reads no tensor, and an engine computes nothing without inputs"
        raise InexpressibleError(message)
    for value in values:
        _check_rank(value, "input")
        if any(example_size(size) is None for size in value.shape):
            message = "a size of its input depends on the data"
            raise InexpressibleError(message)


def _input_dims(values: Sequence[torch.Tensor]) -> dict[Any, tuple[int, int]]:
    """Returns for each symbol of the program an input and a dimension that it is the size of."""
    input_dims: dict[Any, tuple[int, int]] = {}
    for index, value in enumerate(values):
        sizes: Sequence[Any] = value.shape
        for dim, size in enumerate(sizes):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                input_dims.setdefault(size.node.expr, (index, dim))
    return input_dims


def _with_sizes(value: Any, place_of: Callable[[Any], Sequence[int] | None]) -> Any:
    """Returns arguments in which symbolic sizes are computed from those of the inputs."""
    if isinstance(value, list):
        return [_with_sizes(argument, place_of) for argument in value]
    if not isinstance(value, dict):
        return value
    if isinstance(size := value.get("size"), torch.SymInt):
        try:
            return {"size": to_size(size.node.expr, place_of)}
        except InexpressibleError as error:
            message = f"its argument {size} does not follow from the sizes of its inputs: {error}"
            raise InexpressibleError(message) from error
    return {name: _with_sizes(argument, place_of) for name, argument in value.items()}


def _symbolic(symbolic: SymbolicCall, index: int, value: torch.Tensor) -> torch.Tensor:
    sizes: Sequence[Any] = value.shape
    varies = [isinstance(size, torch.SymInt) for size in sizes]
    examples = [example_size(size) or 0 for size in sizes]
    return symbolic.tensor(index, examples, varies, value)


def _output(symbolic: SymbolicCall, result: torch.Tensor) -> tuple[str, tuple[Size, ...]]:
    """Returns the dtype and the sizes of a result."""
    _check_rank(result, "result")
    dtype = _dtype_name(result.dtype, "result")
    sizes: Sequence[Any] = result.shape
    try:
        return dtype, tuple(to_size(symbolic.expression(size), symbolic.place_of) for size in sizes)
    except InexpressibleError as error:
        message = f"a plugin cannot compute the size {tuple(sizes)} of its result: {error}"
        raise InexpressibleError(message) from error


def _check_rank(value: torch.Tensor, what: str) -> None:
    if value.dim() > RANK_LIMIT:
        message = f"its {what} has {value.dim()} dimensions, and tensors in TensorRT have at most {RANK_LIMIT}"
        raise InexpressibleError(message)


def _dtype_name(dtype: torch.dtype, what: str) -> str:
    """Returns ``"float32"``.

    Raises:
        InexpressibleError: Plugins have no such dtype.
    """
    name = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        message = f"its {what} is {name}, which plugins do not take"
        raise InexpressibleError(message)
    return name
