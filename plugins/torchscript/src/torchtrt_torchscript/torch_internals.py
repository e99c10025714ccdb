"""The parts of PyTorch without a public name that the TorchScript front end uses.

They ran with PyTorch 2.11, 2.13 and 2.15. TorchScript is deprecated, and PyTorch gives its graphs no public name: there
is no fallback for any of these. ``ScriptGraph``, ``ScriptNode`` and ``ScriptValue`` are the parts of a graph, and
``FunctionSchema`` is a parsed schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C import FunctionSchema, parse_ir
from torch._C import Graph as ScriptGraph
from torch._C import Node as ScriptNode
from torch._C import Value as ScriptValue

__all__ = [
    "FunctionSchema",
    "ScriptGraph",
    "ScriptNode",
    "ScriptValue",
    "function_of_graph",
    "has_kernel",
    "operation_overload",
    "parse_ir",
    "parse_schema",
    "registered_schemas",
    "schemas_of",
]


def function_of_graph(name: str, graph: ScriptGraph) -> Any:
    """Returns a TorchScript graph as a function. It wraps ``torch._C._create_function_from_graph``."""
    return torch._C._create_function_from_graph(name, graph)


def parse_schema(text: str) -> FunctionSchema:
    """Returns a schema such as ``aten::relu(Tensor self) -> Tensor``, parsed. It wraps ``torch._C.parse_schema``.

    Raises:
        RuntimeError: The text is no schema.
    """
    return torch._C.parse_schema(text)


def schemas_of(name: str) -> Sequence[FunctionSchema]:
    """Returns the schemas of an operator, ``aten::add``. It wraps ``torch._C._jit_get_schemas_for_operator``."""
    return torch._C._jit_get_schemas_for_operator(name)


def registered_schemas() -> Sequence[FunctionSchema]:
    """Returns the schemas of all operators of TorchScript. It wraps ``torch._C._jit_get_all_schemas``."""
    return torch._C._jit_get_all_schemas()


def operation_overload(name: str, overload: str) -> Any:
    """Returns an operator of TorchScript, with its function first. It wraps ``torch._C._get_operation_overload``."""
    return torch._C._get_operation_overload(name, overload)


def has_kernel(name: str) -> bool:
    """Returns whether an op, such as ``aten::relu``, has a kernel. It wraps ``torch._C._dispatch_has_kernel``."""
    return torch._C._dispatch_has_kernel(name)
