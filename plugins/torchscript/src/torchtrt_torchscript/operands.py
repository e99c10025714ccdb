"""The values into and out of a branch or loop, as the tensors that PyTorch's ``cond`` and ``while_loop`` accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt.errors import ExportError
from torchtrt.graphs.memory import storage_of
from torchtrt_torchscript.numbers import Undecided, Uninitialized, is_undecided, number_as_tensor
from torchtrt_torchscript.source_location import source_line
from torchtrt_torchscript.torch_internals import ScriptNode


def description(value: Any) -> str:
    """Returns what must be alike in what the ways through a branch or the trips of a loop make."""
    value = unwrapped(value)
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return "a number"


def like(leaf: Any, operand: Any) -> Any:
    """Returns an operand in the form of the value that it replaces: ``Undecided`` if that was."""
    return Undecided(operand) if is_undecided(leaf) else operand


def is_operand(leaf: Any) -> bool:
    """Returns whether a value becomes an operand of a branch or loop."""
    return isinstance(leaf, (Undecided, Tensor, torch.SymInt))


def unwrapped(leaf: Any) -> Any:
    """Returns the tensor of an undecided number; anything else as it is."""
    return leaf.tensor if isinstance(leaf, Undecided) else leaf


def as_predicate(condition: Any) -> Any:
    """Returns a condition as a tensor."""
    return number_as_tensor(condition) if isinstance(condition, torch.SymBool) else condition.tensor


def as_tensors(
    results: Sequence[Any], inputs: Sequence[Any], node: ScriptNode
) -> tuple[Tensor, ...]:
    """Returns what a branch or a loop's body makes as tensors, each with memory of its own, one row after the other.

    Raises:
        ExportError: It makes something other than tensors and numbers.
    """
    taken = {storage_of(input_) for input_ in inputs if isinstance(input_, Tensor)}
    tensors: list[Tensor] = []
    for result in results:
        value = unwrapped(result)
        if isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            value = number_as_tensor(value)
        if not isinstance(value, Tensor):
            raise ExportError(_no_tensor(value, node))
        if storage_of(value) in taken or not is_in_rows(value):
            value = value.clone(memory_format=torch.contiguous_format)
        taken.add(storage_of(value))
        tensors.append(value)
    return tuple(tensors)


def is_in_rows(tensor: Tensor) -> bool:
    """Returns whether a tensor has its elements one row after the other; assumes nothing about dynamic sizes."""
    step: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if str(stride) != str(step):
            return False
        step = step * size
    return str(tensor.storage_offset()) == "0"


def knows_another_name(node: ScriptNode) -> str:
    """Returns the message about a tensor that is written inside and known outside under another view."""
    return (
        f"{node.kind()} depends on data. It writes to a tensor and reads another view of it, which was taken outside. "
        f"Take the view inside, or write to a clone.\n{source_line(node)}"
    )


def _no_tensor(value: Any, node: ScriptNode) -> str:
    if value is Uninitialized:
        what = (
            "returns from inside, before anything is there to return otherwise. Give the result a value of the "
            "same shape before it"
        )
    else:
        what = f"makes a {type(value).__name__}. What a compiled branch or loop makes must be tensors and numbers"
    return f"{node.kind()} depends on data and {what}.\n{source_line(node)}"


def as_values(results: Sequence[Any], node: ScriptNode) -> list[Any]:
    """Returns what a branch or loop made by its types in the graph: numbers are undecided."""
    return [
        Undecided(result)
        if str(output.type()) in ("int", "float", "bool") and isinstance(result, Tensor)
        else result
        for result, output in zip(results, node.outputs(), strict=True)
    ]
