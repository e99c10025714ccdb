"""Reads the guards that an exported program from a file holds as text."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import is_number
from torchtrt.torch_internals import pytree
from torchtrt_compiler.torch_internals import sympy_functions as functions
from torchtrt_runtime.serialization.exported_program import user_inputs


def written_guards(exported: ExportedProgram) -> tuple[Any, ...]:
    """Returns the guards that a program holds as text.

    Raises:
        UnsupportedProgramError: A guard has a form that cannot be read.
    """
    texts = getattr(exported, "_guards_code", ())  # newer than torch 2.9
    if not texts:
        return ()
    arguments = _arguments_by_name(exported)
    return _undecided(_GuardReader(text, arguments).read() for text in texts)


def _undecided(guards: Any) -> tuple[Any, ...]:
    """Returns guards without repetitions and without those that always hold."""
    return tuple(guard for guard in dict.fromkeys(guards) if guard != True)  # noqa: E712  (SymPy's)


def _arguments_by_name(exported: ExportedProgram) -> dict[str, Any]:
    """Returns the program's inputs as its guards name them, nested.

    The leaf of a tensor has its sizes, and that of a number is its symbol.
    """
    leaves = [
        _expression(node.meta["val"].shape[0])
        if is_number(node)
        else _Sizes(tuple(map(_expression, getattr(node.meta.get("val"), "shape", ()))))
        for node in user_inputs(exported)
    ]
    in_spec = exported.call_spec.in_spec
    signature = exported.module_call_graph[0].signature
    if in_spec is None or signature is None or len(leaves) != in_spec.num_leaves:
        return {}
    args, kwargs = pytree.tree_unflatten(leaves, in_spec)
    named = {**dict(zip(signature.forward_arg_names or (), args, strict=False)), **kwargs}
    return {"flat_args": leaves, **_collected(named), **named}


def _collected(named: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Returns what ``*args`` collects by the parameter's name: PyTorch names its values ``args_0``, ``args_1``."""
    collected: dict[str, dict[int, Any]] = {}
    for name, value in named.items():
        parameter, _, suffix = name.rpartition("_")
        if suffix.isdecimal():
            collected.setdefault(parameter, {})[int(suffix)] = value
    return collected


def _expression(size: int | torch.SymInt) -> Any:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


class _Sizes:
    """The sizes of one input tensor as SymPy expressions. PyTorch nests no object of this class."""

    def __init__(self, sizes: tuple[Any, ...]) -> None:
        self.sizes = sizes


_OPERATIONS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: functions.IntTrueDiv,
    ast.FloorDiv: functions.FloorDiv,
    ast.Mod: functions.PythonMod,
    ast.Pow: functions.PowByNatural,
    ast.USub: operator.neg,
    ast.Not: sympy.Not,
    ast.And: sympy.And,
    ast.Or: sympy.Or,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": functions.Max,
    "min": functions.Min,
    "torch.sym_max": functions.Max,  # since torch 2.15
    "torch.sym_min": functions.Min,
}


class _GuardReader(ast.NodeVisitor):
    """Reads one guard, such as ``L['x'].size()[0] % 2 == 0``, as a SymPy condition. It evaluates no code.

    Args:
        text: The guard, a Python expression.
        arguments: The program's inputs, by the names that the text uses.
    """

    def __init__(self, text: str, arguments: Mapping[str, Any]) -> None:
        self._text = text
        self._arguments = arguments

    def read(self) -> Any:
        """Returns the condition."""
        try:
            return self.visit(ast.parse(self._text, mode="eval").body)
        except (SyntaxError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._unreadable() from error

    def generic_visit(self, node: ast.AST) -> Any:  # noqa: ARG002
        """Refuses an expression that the other methods do not read."""
        raise self._unreadable()

    def visit_Constant(self, node: ast.Constant) -> Any:
        return sympy.sympify(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return _OPERATIONS[type(node.op)](self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return _OPERATIONS[type(node.op)](self.visit(node.left), self.visit(node.right))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return _OPERATIONS[type(node.op)](*map(self.visit, node.values))

    def visit_Compare(self, node: ast.Compare) -> Any:
        terms = [self.visit(term) for term in (node.left, *node.comparators)]
        pairs = zip(node.ops, terms, terms[1:])  # noqa: B905  (one comparison fewer than terms)
        return sympy.And(*(_OPERATIONS[type(kind)](left, right) for kind, left, right in pairs))

    def visit_Call(self, node: ast.Call) -> Any:
        if (name := ast.unparse(node.func)) in _FUNCTIONS:
            return _FUNCTIONS[name](*map(self.visit, node.args))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args:
            return self.visit(node.func.value).sizes
        raise self._unreadable()

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        key = ast.literal_eval(node.slice)
        if isinstance(node.value, ast.Name) and node.value.id == "L":
            return self._arguments[key]
        return self.visit(node.value)[key]

    def _unreadable(self) -> UnsupportedProgramError:
        return UnsupportedProgramError(
            f"The exported program holds only if {self._text}, and torchtrt cannot read this condition. "
            "A compiled model could not check it. Compile the module instead of the file, or export it again "
            "for fixed sizes."
        )
