"""Reads the guards that an exported program holds as text."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom, BooleanFunction
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.expressions.data import FUNCTIONS, InexpressibleError
from torchtrt.expressions.values import CompiledExpression
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
    arguments = _arguments_by_name(exported) if texts else {}
    guards = dict.fromkeys(_GuardReader(text, arguments).condition() for text in texts)
    guards.pop(sympy.true, None)
    return tuple(guards)


def _arguments_by_name(exported: ExportedProgram) -> dict[str, Any]:
    """Returns the program's inputs as its guards name them, nested."""
    leaves = list(map(_leaf, user_inputs(exported)))
    in_spec = exported.call_spec.in_spec
    signature = exported.module_call_graph[0].signature
    if in_spec is None or signature is None or len(leaves) != in_spec.num_leaves:
        return {"flat_args": leaves}
    args, kwargs = pytree.tree_unflatten(leaves, in_spec)
    names = signature.forward_arg_names or _names_of(args, exported)
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    return {"flat_args": leaves, **_collected(named), **named}


def _names_of(args: Sequence[Any], exported: ExportedProgram) -> list[str]:
    """Returns the names of arguments in a program without them, as that of a compiled model: those of their inputs.

    An argument that nests has none: its inputs are named by their places in it.
    """
    inputs, names = iter(user_inputs(exported)), []
    for argument in args:
        leaves = pytree.tree_leaves(argument)
        own = [str(next(inputs).target) for _ in leaves]
        names.append(own[0] if len(own) == 1 and leaves[0] is argument else "")
    return names


def _leaf(node: Node) -> Any:
    """Returns the sizes of an input, or its number."""
    value = node.meta.get("val")
    if is_number(node):
        return _expression(value.shape[0])  # type: ignore[union-attr]
    if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _expression(value)
    return _Sizes(tuple(map(_expression, getattr(value, "shape", ()))))


def _collected(named: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Returns what ``*args`` collects by the parameter's name: PyTorch names its values ``args_0``, ``args_1``."""
    collected: dict[str, dict[int, Any]] = {}
    for name, value in named.items():
        parameter, _, suffix = name.rpartition("_")
        if suffix.isdecimal():
            collected.setdefault(parameter, {})[int(suffix)] = value
    return collected


def _expression(value: Any) -> Any:
    return sympy.sympify(value) if isinstance(value, (int, float)) else value.node.expr


class _Sizes:
    """The sizes of one input as SymPy expressions, if it is a tensor. PyTorch nests no object of this class."""

    def __init__(self, sizes: tuple[Any, ...]) -> None:
        self.sizes = sizes


def _quotient(dividend: Any, divisor: Any) -> Any:
    """Returns a quotient of integers, or of other numbers: their texts are the same."""
    are_integers = dividend.is_integer and divisor.is_integer
    return (functions.IntTrueDiv if are_integers else functions.FloatTrueDiv)(dividend, divisor)


def _power(base: Any, exponent: Any) -> Any:
    """Returns a power of integers, or of other numbers: their texts are the same."""
    are_integers = base.is_integer and exponent.is_integer
    return (functions.PowByNatural if are_integers else functions.FloatPow)(base, exponent)


def _rounded(number: Any, digits: Any = None) -> Any:
    if digits is None:
        return functions.RoundToInt(number)
    return functions.RoundDecimal(number, digits)


_NAMED = {name: getattr(functions, name) for name in FUNCTIONS if hasattr(functions, name)}
"""PyTorch's functions of sizes by their own names, which its printer writes where Python has none."""
_OPERATIONS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.FloorDiv: functions.FloorDiv,
    ast.Mod: functions.PythonMod,
    ast.Pow: _power,
    ast.BitAnd: _NAMED.get("BitwiseFn_bitwise_and", operator.and_),
    ast.BitOr: _NAMED.get("BitwiseFn_bitwise_or", operator.or_),
    ast.BitXor: _NAMED.get("BitwiseFn_bitwise_xor", operator.xor),
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
    "abs": sympy.Abs,
    "round": _rounded,
    "math.floor": functions.FloorToInt,
    "math.ceil": functions.CeilToInt,
    "math.trunc": functions.TruncToInt,
    "torch.sym_float": functions.ToFloat,
    "torch._sym_sqrt": _NAMED["OpaqueUnaryFn_sqrt"],
    **{
        name.replace("OpaqueUnaryFn_", "math."): function
        for name, function in _NAMED.items()
        if name.startswith("OpaqueUnaryFn_")
    },
    **_NAMED,
}
_CONDITIONS = (Relational, BooleanFunction, BooleanAtom)


class _GuardReader(ast.NodeVisitor):
    """Reads one guard, such as ``L['x'].size()[0] % 2 == 0``, as a SymPy condition. It evaluates no code.

    Args:
        text: The guard, a Python expression.
        arguments: The program's inputs, by the names that the text uses.
    """

    def __init__(self, text: str, arguments: Mapping[str, Any]) -> None:
        self._text = text
        self._arguments = arguments

    def condition(self) -> Any:
        """Returns the condition.

        Raises:
            UnsupportedProgramError: The text has another form, or no call could be checked for the condition.
        """
        condition = self.read()
        if not isinstance(condition, _CONDITIONS):
            raise self._unreadable()
        try:
            CompiledExpression.of(condition)
        except InexpressibleError as error:
            raise self._unreadable() from error
        return condition

    def read(self) -> Any:
        """Returns what the text is: a condition, or a size.

        Raises:
            UnsupportedProgramError: The text has another form.
        """
        try:
            return self.visit(ast.parse(self._text, mode="eval").body)
        except Exception as error:  # SymPy may refuse operands in any way
            raise self._unreadable() from error

    def generic_visit(self, node: ast.AST) -> Any:
        """Refuses an expression that the other methods do not read."""
        raise TypeError(ast.dump(node))

    def visit_Constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, (bool, int, float)):
            raise TypeError(node.value)  # SymPy evaluates text
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
        if node.keywords:
            return self.generic_visit(node)
        if (name := ast.unparse(node.func)) in _FUNCTIONS:
            return _FUNCTIONS[name](*map(self.visit, node.args))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args:
            return self.visit(node.func.value).sizes
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        condition, value, other = map(self.visit, (node.test, node.body, node.orelse))
        return sympy.Piecewise((value, condition), (other, True))

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
