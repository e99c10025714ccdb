"""The parts of PyTorch that the compiler uses and that PyTorch may change in any version.

Other modules of this distribution import them from here.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._C import DisableTorchFunction, DispatchKey
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled
from torch._C._autograd import DeviceType
from torch._C._functorch import (
    get_dynamic_layer_stack_depth,
    is_functorch_wrapped_tensor,
    pop_dynamic_layer_stack_and_undo_to_depth,
)
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _is_cia_op as is_composite
from torch._export.utils import _is_preservable_cia_op as is_kept_whole
from torch._higher_order_ops.wrap import wrap_with_autocast, wrap_with_set_grad_enabled
from torch._ops import OpOverload
from torch._subclasses.fake_impls import _like_tensor_constructors as like_constructors
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, disable_fake_tensor_cache
from torch.amp.autocast_mode import _enter_autocast as enter_autocast
from torch.amp.autocast_mode import _exit_autocast as exit_autocast
from torch.export import ExportedProgram, ExportGraphSignature, exported_program
from torch.fx import GraphModule, proxy
from torch.fx._lazy_graph_module import _LazyGraphModule, _use_lazy_graph_module
from torch.fx._symbolic_trace import _Patcher
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._python_dispatch import _disable_current_modes as without_modes
from torch.utils._sympy import functions as sympy_functions
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torchtrt.graphs.nodes import all_nodes
from torchtrt_compiler.torch_internals.shape_rules import sizes_by_formulas
from torchtrt_compiler.torch_internals.size_questions import (
    LIBRARIES,
    asking_frame,
    is_guard_of_dynamo,
    noting_size_questions,
)

__all__ = [
    "LIBRARIES",
    "DeviceType",
    "DisableTorchFunction",
    "DispatchKey",
    "FakeTensor",
    "FakeTensorMode",
    "GraphModuleOfLateCode",
    "PythonPrinter",
    "TorchDispatchMode",
    "ValueRanges",
    "asking_frame",
    "bound_sympy",
    "compile_lock",
    "decomposition_table",
    "disable_fake_tensor_cache",
    "enable_python_dispatcher",
    "ending_transforms",
    "enter_autocast",
    "exit_autocast",
    "export_after_dispatch",
    "has_autocast_kernel",
    "has_kernel",
    "in_order_of_export",
    "int_oo",
    "is_any_autocast_enabled",
    "is_functional_tensor",
    "is_functorch_wrapped_tensor",
    "is_guard_of_dynamo",
    "is_traceable_wrapper_subclass",
    "is_unbacked",
    "like_constructors",
    "noting_size_questions",
    "op_calls",
    "reading_control_flow",
    "reads_base",
    "replace_graph",
    "size_as_traced",
    "sizes_by_formulas",
    "sizes_of_two_unknown",
    "sympy_functions",
    "trace_function",
    "whole_composites_of",
    "with_late_code",
    "with_shared_lines",
    "without_modes",
    "without_size_guards",
    "wrap_with_autocast",
    "wrap_with_set_grad_enabled",
]

has_kernel: Any = torch._C._dispatch_has_kernel
"""Returns whether an op, by its name, is dispatched at all: what only TorchScript has is not."""
has_autocast_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
"""Returns whether autocast itself has a rule for an op, by the op's name and the dispatch key of autocast."""
is_functional_tensor: Any = torch._is_functional_tensor
reads_base: frozenset[Any] = frozenset(
    {torch.Tensor._is_view, torch.Tensor._base.__get__}  # type: ignore[union-attr]
)
"""The functions that return whether a tensor is a view, and its base."""
op_calls: tuple[Any, ...] = (
    torch._ops.OpOverload.__call__,
    torch._ops.OpOverloadPacket.__call__,
)
"""The functions that hand a call of an op to the modes that are active."""

with_late_code = _use_lazy_graph_module
"""Lets PyTorch make graph modules of late code of what it traces, inside a ``with`` block; its argument is whether."""


class GraphModuleOfLateCode(_LazyGraphModule):
    """A ``GraphModule`` that writes its Python code when it is first called: most graphs of a compilation never are."""

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Writes the code and runs it. PyTorch's own calls the module again, and its hooks would run twice."""
        self.real_recompile()
        return self.forward(*args, **kwargs)

    forward = _lazy_forward


_MAX, _MIN = max, min


@contextlib.contextmanager
def reading_control_flow() -> Iterator[None]:
    """Lets Dynamo read branches and loops as a model has them, while it is exported in a ``with`` block.

    ``torch.export`` replaces ``max`` and ``min``, and Dynamo asks of Python's own which of them it is. For its log, it
    also asks why a graph that it made of the same code does not serve. This fixes sizes to those of an earlier export.
    """
    builtin, convert_frame = (
        f"torch._dynamo.{name}" for name in ("variables.builtin", "convert_frame")
    )
    with (
        mock.patch.multiple(builtin, create=True, max=_MAX, min=_MIN),
        mock.patch(f"{convert_frame}.get_and_maybe_log_recompilation_reasons", return_value=[]),
    ):
        yield


def compile_lock() -> Any:
    """Returns the lock that ``torch.compile`` holds; the first call takes a second."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


def trace_function(function: Callable[..., Any], values: Sequence[Any]) -> GraphModule:
    """Returns the graph of the ops that a function calls, which is no module and calls none.

    For each trace PyTorch replaces methods of ``torch.nn.Module``. Python then visits all subclasses: where libraries
    have a thousand of them, that takes longer than to trace a few ops.

    Args:
        function: The function.
        values: Its arguments: fake tensors and symbolic numbers.
    """
    own, patch_method = threading.get_ident(), _Patcher.patch_method

    def patch(patcher: _Patcher, kind: type, *replaced: Any, **options: Any) -> None:
        if kind is not torch.nn.Module or threading.get_ident() != own:
            patch_method(patcher, kind, *replaced, **options)

    patched = mock.patch.object(_Patcher, "patch_method", patch)
    with compile_lock(), patched, sizes_by_formulas():
        return make_fx(function, tracing_mode="real")(*values)


class _Frames:
    """The frames of a call stack; in place of PyTorch's class of this purpose, which reads the text of each line again.

    Args:
        innermost: The innermost frame.
        summaries: The frames that have been read, by file, line and function.
    """

    def __init__(
        self,
        innermost: FrameType,
        summaries: dict[tuple[str, int | None, str], traceback.FrameSummary],
    ) -> None:
        self.innermost = innermost
        self.summaries = summaries

    def summary(self) -> traceback.StackSummary:
        """Returns the frames, the innermost last."""
        stack = traceback.StackSummary()
        frame: FrameType | None = self.innermost
        while frame is not None:
            key = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            if key not in self.summaries:
                self.summaries[key] = traceback.FrameSummary(*key, lookup_line=False)
            stack.append(self.summaries[key])
            frame = frame.f_back
        stack.reverse()
        return stack


@contextlib.contextmanager
def with_shared_lines() -> Iterator[None]:
    """Lets PyTorch read each line of Python once for the stack traces of nodes, inside a ``with`` block."""
    if not hasattr(proxy, "CapturedTraceback"):  # PyTorch takes stack traces in another way
        yield
        return
    summaries: dict[tuple[str, int | None, str], traceback.FrameSummary] = {}

    def extract() -> _Frames:
        return _Frames(sys._getframe(1), summaries)

    with mock.patch.object(proxy, "CapturedTraceback", SimpleNamespace(extract=extract)):
        yield


def replace_graph(
    exported: ExportedProgram, graph_module: GraphModule, signature: ExportGraphSignature
) -> ExportedProgram:
    """Returns a copy of a program that computes by another graph. All else is shared, the guards too."""
    copied: Any = copy.copy(exported)
    copied._graph_module, copied._graph_signature = graph_module, signature
    return copied  # type: ignore[no-any-return]


@contextlib.contextmanager
def in_order_of_export(model: torch.nn.Module) -> Iterator[None]:
    """Puts the buffers of a model that are ``None`` behind the others.

    ``torch.export`` counts them where it looks for the inputs of those that ``forward`` replaces: it would lose the new
    values, or raise an ``IndexError``.
    """
    buffers = model._buffers
    order = list(buffers)
    for name in [name for name, buffer in buffers.items() if buffer is None]:
        buffers[name] = buffers.pop(name)
    try:
        yield
    finally:
        for name in filter(buffers.__contains__, order):
            buffers[name] = buffers.pop(name)


def export_after_dispatch(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Returns a model as ``torch.export.export`` does, but with the ops that tensor subclasses replace theirs by."""
    from torch.export._trace import _export

    program: ExportedProgram = _export(
        model, args, kwargs, dynamic_shapes, strict=False, pre_dispatch=False
    )
    return program


def is_unbacked(symbol: Any) -> bool:
    """Returns whether a symbol is a number that depends on data."""
    return bool(symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)))


def size_as_traced(size: torch.SymInt) -> Any:
    """Returns the expression that a size had before PyTorch replaced symbols in it by equal ones."""
    return size.node._expr


@contextlib.contextmanager
def sizes_of_two_unknown(environment: Any) -> Iterator[None]:
    """Lets sizes that are 2 and no other be 3 as well inside a ``with`` block.

    PyTorch takes no symbol for 1, so that a size of 1 or 2 is 2 to it, and a number as soon as code reads it.

    Args:
        environment: The ``ShapeEnv`` of the sizes, or ``None``.
    """
    ranges = {} if environment is None else environment.var_to_range
    twos = {
        symbol: range_ for symbol, range_ in ranges.items() if range_.lower == range_.upper == 2
    }
    try:
        for symbol in twos:
            ranges[symbol] = ValueRanges(2, 3)
            environment._update_version_counter()
        yield
    finally:
        for symbol, two in twos.items():
            ranges[symbol] = two
            environment._update_version_counter()


@contextlib.contextmanager
def without_size_guards() -> Iterator[None]:
    """Lets ``DTensor`` choose placements by the sizes of the examples, without a guard for each size that it looks at.

    Where it then divides a size, the ops on local tensors have their guards as ever.
    """
    tensor = sys.modules["torch.distributed.tensor"].DTensor
    propagator = tensor._op_dispatcher.sharding_propagator
    name = "propagate_op_sharding_non_cached"
    chosen = getattr(propagator, name)

    def choose(*args: Any, **kwargs: Any) -> Any:
        mode = torch._guards.detect_fake_mode()
        if mode is None or mode.shape_env is None:
            return chosen(*args, **kwargs)
        with mode.shape_env.suppress_guards():
            return chosen(*args, **kwargs)

    with mock.patch.object(propagator, name, choose):
        yield


@contextlib.contextmanager
def whole_composites_of(program: ExportedProgram, simple_composites: Set[Any]) -> Iterator[None]:
    """Lets ``run_decompositions`` check only the composite ops that a program calls.

    PyTorch keeps composite ops without aliases whole. For each of its thousand such ops it replaces kernels, which
    takes longer than to trace a small program. Where the program calls a composite op that PyTorch takes apart, and
    whose parts may be composites again, it checks all.

    Args:
        program: The program.
        simple_composites: Composite ops without a composite among their parts.
    """
    targets = {node.target for node in all_nodes(program.graph_module)}
    # Overloads that only TorchScript has are not dispatched, and ``_can_decompose`` raises for them.
    ops = [
        target for target in targets if isinstance(target, OpOverload) and has_kernel(target.name())
    ]
    ops = [op for op in ops if is_composite(op)]
    whole = {op for op in ops if is_kept_whole(op)}
    if not {*ops} - whole <= simple_composites:
        yield
        return
    with mock.patch.object(exported_program, "_collect_all_valid_cia_ops", return_value=whole):
        yield


@contextlib.contextmanager
def ending_transforms() -> Iterator[None]:
    """Ends the function transforms that begin in a ``with`` block, also if an error leaves it before their end."""
    depth = get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        pop_dynamic_layer_stack_and_undo_to_depth(depth)
