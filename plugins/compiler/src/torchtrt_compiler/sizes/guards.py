"""The conditions on input sizes under which a program was exported. PyTorch calls them guards."""

from __future__ import annotations

import ast
import operator
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import is_number
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.torch_internals import pytree
from torchtrt_compiler.torch_internals import LIBRARIES, ValueRanges, bound_sympy, int_oo
from torchtrt_compiler.torch_internals import sympy_functions as functions
from torchtrt_runtime.serialization.exported_program import user_inputs


def guards_of(exported: ExportedProgram, numbers: Collection[Any] = frozenset()) -> dict[Any, str]:
    """Returns a program's guards as SymPy conditions on the symbols of its inputs' sizes, each with the model's line.

    PyTorch keeps them with the symbols while the program stays in the process that traced it, and as
    text in a file. The symbols of a program from a file have guards too: those that opening it added.
    A guard that holds for all sizes of 2 or more is none of the program's. ``torch.export`` takes no size for less,
    and ``torch.export.save`` writes this down. Of a number it assumes nothing.

    Args:
        exported: The program.
        numbers: The symbols that are numbers.

    Raises:
        UnsupportedProgramError: A guard in a program from a file has a form that cannot be read.
    """
    environment: Any = shape_env_of(exported.graph)
    traced = guard_lines(environment, numbers)
    # Only tracing records which inputs its symbols come from.
    if environment is not None and getattr(environment, "var_to_sources", None):
        return traced
    written = (guard for guard in written_guards(exported) if not _is_assumed(guard, numbers))
    return {**dict.fromkeys(written, ""), **traced}


def _is_assumed(guard: Any, numbers: Collection[Any]) -> bool:
    """Returns whether a guard holds for all sizes of 2 or more: PyTorch assumes it, and asks where a file lost that."""
    if not guard.free_symbols.isdisjoint(numbers):
        return False
    ranges = {symbol: ValueRanges(2, int_oo) for symbol in guard.free_symbols}
    bounds = bound_sympy(guard, ranges)
    return bool(bounds.is_singleton() and bounds.lower == True)  # noqa: E712  (SymPy's)


def guard_lines(environment: Any, numbers: Collection[Any] = frozenset()) -> dict[Any, str]:
    """Returns the guards of a ``ShapeEnv``, each with the line of the model that it comes from, if any."""
    guards = () if environment is None else environment.guards
    lines: dict[Any, str] = {}
    for guard in guards:
        lines.setdefault(environment.replace(guard.expr), place_of(guard.sloc))
    lines.pop(sympy.true, None)
    return {guard: line for guard, line in lines.items() if not _is_assumed(guard, numbers)}


def fixing_lines(environment: Any, size: int) -> list[str]:
    """Returns the lines of the model at which a dynamic size may have been fixed to a number.

    Args:
        environment: The ``ShapeEnv`` of the program, or None.
        size: The number.
    """
    if environment is None:
        return []
    symbols = {symbol for symbol, value in environment.replacements.items() if value == size}
    fixing = getattr(environment, "replacements_slocs", {})
    sources = [fixing.get(symbol) for symbol in symbols]
    sources += [guard.sloc for guard in environment.guards if symbols & guard.expr.free_symbols]
    return list(dict.fromkeys(filter(None, map(place_of, sources))))


def place_of(source: Any) -> str:
    """Returns the line of the model that PyTorch took an assumption from, unless that was PyTorch's own code."""
    return line_of(getattr(source, "framework_loc", None))


def line_of(frame: Any) -> str:
    """Returns a line of the model, unless a frame is of PyTorch's own code, or of torchtrt's."""
    if not isinstance(frame, traceback.FrameSummary) or frame.filename.startswith(LIBRARIES):
        return ""
    return f'File "{frame.filename}", line {frame.lineno}, in {frame.name}'


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
