"""The inputs and outputs of a saved model as Triton describes them, read without loading an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.torch_internals import pytree
from torchtrt_runtime.serialization.call_interface import trees_of
from torchtrt_runtime.serialization.exported_program import user_inputs

DATA_TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "bfloat16": "TYPE_BF16",
}
"""Triton's name of each dtype that it has."""

_NUMBERS = {bool: "bool", int: "int64", float: "float64"}
"""The dtype of a Python number among the outputs."""


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of a model in Triton.

    Attributes:
        name: Its name in requests and responses.
        data_type: Triton's name of its dtype, such as ``TYPE_FP32``.
        dims: Its sizes without the batch, -1 for those that vary. A 0-d tensor has the sizes ``(1,)``.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class ModelInterface:
    """The inputs and outputs of a model, as its clients see them.

    Attributes:
        inputs: Its inputs, in the order of the flattened inputs that are tensors.
        outputs: Its outputs, in the order of the flattened outputs that are no ``None``.
        max_batch_size: The largest batch; 0 if the sizes are explicit.
        unbatched: Why the sizes are explicit; an empty string if they are not.
    """

    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    max_batch_size: int
    unbatched: str

    def with_input_names(self, names: Sequence[str]) -> ModelInterface:
        """Returns the interface with other names of the inputs."""
        pairs = zip(self.inputs, names, strict=True)
        return replace(self, inputs=tuple(replace(input_, name=name) for input_, name in pairs))


@dataclass(frozen=True)
class _Value:
    """An input or output in the program: its name, PyTorch's name of its dtype, and its sizes as expressions."""

    name: str
    dtype: str
    sizes: tuple[Any, ...]
    is_tensor: bool = True


def read_interface(program: ExportedProgram, metadata: Mapping[str, Any]) -> ModelInterface:
    """Returns the interface of a saved model.

    Args:
        program: The model's program.
        metadata: The model's metadata.

    Raises:
        UnsupportedProgramError: Triton has no type for a value, or the model has no input or no output.
        UnreadableFileError: A container of the outputs is unknown here.
    """
    inputs, outputs = list(_inputs(program, metadata)), list(_outputs(program, metadata))
    for what, values in (("input", inputs), ("output", outputs)):
        if not values:
            raise UnsupportedProgramError(
                f"The model has no tensor as an {what}, and Triton needs one. Add one to the model."
            )
        for value in values:
            _check_dtype(what, value)
    reason = _why_stateful(program) or _why_unbatched(inputs, outputs, metadata)
    largest = 0 if reason else _largest_batch(metadata)
    return ModelInterface(
        tuple(_described(value, bool(largest)) for value in inputs),
        tuple(_described(value, bool(largest)) for value in outputs),
        largest,
        reason,
    )


def _inputs(program: ExportedProgram, metadata: Mapping[str, Any]) -> Iterator[_Value]:
    """Yields the inputs that are tensors."""
    for node, described in zip(user_inputs(program), metadata["inputs"], strict=True):
        if "value" not in described:
            yield _Value(described["name"], described["dtype"], _sizes(node.meta["val"]))


def _outputs(program: ExportedProgram, metadata: Mapping[str, Any]) -> Iterator[_Value]:
    """Yields the outputs that are tensors or numbers."""
    specs = program.graph_signature.output_specs
    (returned,) = program.graph.output_node().args
    assert isinstance(returned, tuple)
    values = [
        value
        for value, spec in zip(returned, specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    kept = [index for index, value in enumerate(values) if value is not None]
    _, tree = trees_of(metadata)
    for name, index in zip(output_names(tree, kept), kept, strict=True):
        value: Any = values[index]
        if isinstance(value, Node):
            value = value.meta["val"]
        if isinstance(value, torch.Tensor):
            yield _Value(name, str(value.dtype).removeprefix("torch."), _sizes(value))
        else:
            yield _Value(name, _number_dtype(value), (), False)


def _number_dtype(value: Any) -> str:
    """Returns the dtype of a number among the outputs."""
    for kind, symbolic in ((bool, torch.SymBool), (int, torch.SymInt), (float, torch.SymFloat)):
        if type(value) is kind or isinstance(value, symbolic):
            return _NUMBERS[kind]
    return type(value).__name__


def output_names(tree: pytree.TreeSpec, kept: Sequence[int]) -> list[str]:
    """Returns the names of outputs: keys and fields joined by underscores, or ``output_`` and the place.

    Args:
        tree: How the outputs nest.
        kept: The places of the outputs that are no ``None``, in the flattened outputs.
    """
    nested = pytree.tree_unflatten(range(tree.num_leaves), tree)
    paths = [path for path, _ in pytree.tree_flatten_with_path(nested)[0]]
    names: list[str] = []
    for count, index in enumerate(kept):
        words = [_word(key) for key in paths[index]]
        is_named = not all(word.isdigit() for word in words)
        name = re.sub(r"\W", "_", "_".join(words), flags=re.ASCII)
        if not is_named or not name.strip("_") or name[0].isdigit():
            name = f"output_{name if is_named else count}"
        distinct, suffix = name, 2
        while distinct in names:
            distinct, suffix = f"{name}_{suffix}", suffix + 1
        names.append(distinct)
    return names


def _word(key: Any) -> str:
    """Returns the part of a name for a key of PyTorch's paths."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _sizes(value: torch.Tensor) -> tuple[Any, ...]:
    """Returns the sizes of a value: numbers, and expressions for what varies."""
    sizes: Sequence[Any] = value.shape
    return tuple(size if isinstance(size, int) else size.node.expr for size in sizes)


def _check_dtype(what: str, value: _Value) -> None:
    if value.dtype not in DATA_TYPES:
        hint = "torch.view_as_real makes a real tensor of a complex one. "
        raise UnsupportedProgramError(
            f"The {what} {value.name!r} is {value.dtype}, for which Triton has no type. "
            f"{hint if value.dtype.startswith('complex') else ''}Give the model an {what} of another dtype."
        )


def _described(value: _Value, is_batched: bool) -> ModelTensor:
    """Returns an input or output as Triton describes it. Triton takes no empty list of sizes, and no size of 0."""
    sizes = value.sizes[1:] if is_batched else value.sizes
    dims = tuple(size if isinstance(size, int) and size > 0 else -1 for size in sizes)
    return ModelTensor(value.name, DATA_TYPES[value.dtype], dims or (1,))


def _why_stateful(program: ExportedProgram) -> str:
    """Returns why requests that run together would change the state of a model, or an empty string."""
    written = [
        spec.target or ""
        for spec in program.graph_signature.output_specs
        if spec.kind is not OutputKind.USER_OUTPUT
    ]
    return f"the model writes to {', '.join(sorted(written))}" if written else ""


def _why_unbatched(
    inputs: Sequence[_Value], outputs: Sequence[_Value], metadata: Mapping[str, Any]
) -> str:
    """Returns why a model has no batch dimension, or an empty string if it has one."""
    values = [*inputs, *outputs]
    for value in values:
        if not value.is_tensor:
            return f"{value.name} is a number"
        if not value.sizes:
            return f"{value.name} has no dimensions"
    batch = values[0].sizes[0]
    if not getattr(batch, "is_Symbol", False):
        return f"the first size of {values[0].name} is {batch}"
    for value in values:
        if value.sizes[0] != batch:
            return f"the first size of {value.name} is not that of {values[0].name}"
        others = [size for size in value.sizes[1:] if not isinstance(size, int)]
        if any(batch in size.free_symbols for size in others):
            return f"another size of {value.name} depends on the first"
    return _why_not_each_batch(metadata)


def _why_not_each_batch(metadata: Mapping[str, Any]) -> str:
    """Returns why a model does not take each batch from 1 to its largest, or an empty string."""
    name = _batch_name(metadata)
    if name is None or any(
        name in map(str, _flat(assumption)) for assumption in metadata["assumptions"]
    ):
        return "the program has a condition on the first size"
    reached = 0
    for low, high in sorted((low, high) for low, _, high in _batches(metadata, name)):
        if low > reached + 1:
            return f"the model takes no first size of {reached + 1}"
        reached = max(reached, high)
    return ""


def _batch_name(metadata: Mapping[str, Any]) -> str | None:
    """Returns the symbol of the first size of the first input, as the metadata names it."""
    first = next(input_ for input_ in metadata["inputs"] if "value" not in input_)
    match first["sizes"][0]:
        case ["symbol", str(name)]:
            return name
    return None


def _batches(metadata: Mapping[str, Any], name: str) -> Iterator[tuple[int, int, int]]:
    """Yields the minimum, optimum and maximum of the first size in each profile."""
    for profile in metadata.get("profiles") or [metadata["ranges"]]:
        low, opt, high = profile[name]
        yield int(low), int(opt), int(high)


def _largest_batch(metadata: Mapping[str, Any]) -> int:
    name = _batch_name(metadata)
    assert name is not None
    return max(high for _, _, high in _batches(metadata, name))


def _flat(data: Any) -> Iterator[Any]:
    """Yields what nested lists hold."""
    if isinstance(data, list):
        for nested in data:
            yield from _flat(nested)
    else:
        yield data
