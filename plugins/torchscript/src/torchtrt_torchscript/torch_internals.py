"""The parts of PyTorch without a public name that the TorchScript front end uses.

They ran with PyTorch 2.11, 2.13 and 2.15. TorchScript is deprecated, and PyTorch gives its graphs no public name: there
is no fallback for any of these.

- ``ScriptGraph``, ``ScriptNode`` and ``ScriptValue`` are the parts of a graph.
- ``FunctionSchema`` is a parsed schema, and ``parse_schema`` makes it of a text such as
  ``aten::relu(Tensor self) -> Tensor``, or raises a ``RuntimeError``.
- ``schemas_of`` returns the schemas of an operator, ``registered_schemas`` those of all.
- ``operation_overload`` returns an operator of TorchScript's interpreter, with its function first.
- ``has_kernel`` returns whether an op, such as ``aten::relu``, has a kernel.
- ``function_of_graph`` makes a function of a name and a graph.
"""

from torch._C import FunctionSchema, parse_schema
from torch._C import Graph as ScriptGraph
from torch._C import Node as ScriptNode
from torch._C import Value as ScriptValue
from torch._C import _create_function_from_graph as function_of_graph
from torch._C import _dispatch_has_kernel as has_kernel
from torch._C import _get_operation_overload as operation_overload
from torch._C import _jit_get_all_schemas as registered_schemas
from torch._C import _jit_get_schemas_for_operator as schemas_of

__all__ = [
    "FunctionSchema",
    "ScriptGraph",
    "ScriptNode",
    "ScriptValue",
    "function_of_graph",
    "has_kernel",
    "operation_overload",
    "parse_schema",
    "registered_schemas",
    "schemas_of",
]
