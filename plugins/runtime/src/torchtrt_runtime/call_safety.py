"""Checks what the graphs of a file call: ops on tensors, which reach nothing outside of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from torchtrt.targets import qualified_name
from torchtrt.torch_internals import HigherOrderOperator, OpOverload
from torchtrt_runtime.torch_internals import is_dispatched

_MODULES = ("_operator", "builtins", "math", "torch", "torch.fx.experimental.sym_node")
"""Where functions on sizes are. PyTorch's reader has a list of those that it accepts."""
_OUTSIDE = frozenset(
    {"c10d", "debugprims", "inductor", "prim", "profiler", "static_runtime", "symm_mem"}
)
"""PyTorch's namespaces of ops on processes, on memory without a check of its bounds, and of its own machinery."""
_FILE = re.compile(r"file|path", re.IGNORECASE)
_HIGHER_ORDER = frozenset(
    {
        *("cond", "while_loop", "while_loop_stack_output", "scan", "associative_scan", "map_impl"),
        *("auto_functionalized", "auto_functionalized_v2", "with_effects", "out_dtype"),
        *("hints_wrapper", "invoke_subgraph", "strict_mode", "wrap", "foreach_map"),
        *("wrap_with_autocast", "wrap_with_set_grad_enabled", "flex_attention"),
        *("wrap_activation_checkpoint", "tag_activation_checkpoint"),
        *("invoke_quant", "invoke_quant_packed"),
    }
)
"""Ops on graphs that run these graphs, and the ops that they are given, and nothing else."""


def unsafe_call(module: torch.nn.Module) -> str | None:
    """Returns the first call in the graphs of a module that a file must not have, and why; None if there is none.

    Functions among the arguments count: ops on graphs call them.
    """
    for submodule in module.modules():
        for node in getattr(getattr(submodule, "graph", None), "nodes", ()):
            if node.op == "call_function" and (reason := reason_against(node.target)):
                return f"{qualified_name(node.target)}, which {reason}"
            for function in _functions(node):
                if (
                    reason := reason_against(function)
                    if isinstance(function, OpOverload)
                    else "is no op"
                ):
                    return f"{qualified_name(node.target)} with {qualified_name(function)}, which {reason}"
    return None


def reason_against(target: Any) -> str | None:
    """Returns why a file must not call a function, as the end of a sentence; None if it may."""
    if isinstance(target, HigherOrderOperator):
        return None if target.name() in _HIGHER_ORDER else "may run code that is not in the graph"
    if not isinstance(target, OpOverload):
        return None if getattr(target, "__module__", None) in _MODULES else "is no op"
    if any(
        _FILE.search(argument.name) and _is_text(argument) for argument in target._schema.arguments
    ):
        return "reads or writes a file"
    if target.namespace in _OUTSIDE or not is_dispatched(target.name()):
        return "does more than compute with tensors"
    return None


def _is_text(argument: Any) -> bool:
    return str(argument.type) in ("str", "Optional[str]")


def _functions(node: Node) -> Iterator[Any]:
    """Yields the functions and classes among the arguments of a node."""
    waiting: list[Any] = [node.args, node.kwargs]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (tuple, list)):
            waiting += value
        elif callable(value):
            yield value
