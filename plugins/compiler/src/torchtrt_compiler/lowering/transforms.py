"""Applies the function transforms in a program, such as ``torch.vmap``.

``torch.export`` leaves a transform's beginning and its end in the program as calls that run nowhere but in a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import all_nodes, model_line
from torchtrt_compiler.lowering.program import check_writes
from torchtrt_compiler.lowering.retracing import retrace
from torchtrt_compiler.torch_internals import ending_transforms, is_functorch_wrapped_tensor


def without_transforms(exported: ExportedProgram) -> ExportedProgram:
    """Returns the program with function transforms applied to what they transform. The program given is not changed.

    Raises:
        UnsupportedProgramError: PyTorch cannot apply a transform, such as ``torch.func.grad``.
    """
    calls = _transforms(exported)
    if any(map(_is_inside_transform, exported.constants.values())):
        raise _refusal(calls, "a tensor inside of it became a constant of the program")
    if not calls:
        return exported
    check_writes(exported)
    try:
        with ending_transforms():
            applied = retrace(exported)
        if not _transforms(applied):
            return applied
        reason = "some of its calls remain"
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        reason = f"{type(error).__name__}: {first}"
    raise _refusal(calls, reason)


def _refusal(calls: Sequence[Node], reason: str) -> UnsupportedProgramError:
    line = next(filter(None, map(model_line, calls)), "")
    return UnsupportedProgramError(
        f"PyTorch cannot export what the model's transform of a function computes{line and f' ({line})'}: {reason}\n"
        "Transforms such as torch.func.grad are for training: compute it by ops, or outside of what is compiled."
    )


def _is_inside_transform(value: object) -> bool:
    """Returns whether a value has no memory of its own, because a transform was computing it."""
    return isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value)


def _transforms(exported: ExportedProgram) -> list[Node]:
    """Returns the calls of functions that begin and end a transform, in the program and its branches."""
    return [
        node
        for node in all_nodes(exported.graph_module)
        if node.op == "call_function"
        and str(getattr(node.target, "__module__", "")).startswith("torch._functorch")
    ]
