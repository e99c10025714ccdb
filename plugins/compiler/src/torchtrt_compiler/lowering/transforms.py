"""Applies the function transforms in a program, such as ``torch.vmap``.

``torch.export`` leaves a transform's beginning and its end in the program as calls that run nowhere but in a trace.
"""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import model_line
from torchtrt_compiler.lowering.functionalization import retrace
from torchtrt_compiler.lowering.program import check_writes


def without_transforms(exported: ExportedProgram) -> ExportedProgram:
    """Returns the program with function transforms applied to what they transform. The program given is not changed.

    Raises:
        UnsupportedProgramError: PyTorch cannot apply a transform, such as ``torch.func.grad``.
    """
    if not (calls := _transforms(exported)):
        return exported
    check_writes(exported)
    try:
        applied = retrace(exported)
        if not _transforms(applied):
            return applied
        reason = "some of its calls remain"
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        reason = f"{type(error).__name__}: {first}"
    line = next(filter(None, map(model_line, calls)), "")
    raise UnsupportedProgramError(
        f"PyTorch cannot export what the model's transform of a function computes ({line}): {reason}\n"
        "Transforms such as torch.func.grad are for training: compute it by ops, or outside of what is compiled."
    )


def _transforms(exported: ExportedProgram) -> list[Node]:
    """Returns the calls of functions that begin and end a transform, in the program and its branches."""
    modules = (each for each in exported.graph_module.modules() if isinstance(each, GraphModule))
    return [
        node
        for module in modules
        for node in module.graph.nodes
        if node.op == "call_function"
        and str(getattr(node.target, "__module__", "")).startswith("torch._functorch")
    ]
