"""Notes the questions about sizes that Python code asks while PyTorch traces it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any
from unittest import mock

import sympy
import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor, symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

import torchtrt
import torchtrt_runtime
from torchtrt_compiler.torch_internals import shape_rules

LIBRARIES = tuple(
    os.path.dirname(str(file)) + os.sep
    for file in (
        torch.__file__,
        torchtrt.__file__,
        torchtrt_runtime.__file__,
        os.path.dirname(__file__),
    )
)
"""The folders of PyTorch, and of what of torchtrt stands between a model and PyTorch: no line of a model is there."""


def asking_frame() -> traceback.FrameSummary | None:
    """Returns the innermost line of a call of ``noting_size_questions``'s function that asks about sizes itself.

    Where Dynamo interprets code, that is the interpreted line.
    """
    interpreted = torch._guards.TracingContext.extract_stack()
    if stack := [summary for summary in interpreted if summary.filename != __file__]:
        return stack[-1]
    passing = symbolic_shapes.uninteresting_files()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_name == "__torch_function__"
        or frame.f_code.co_filename in passing
        or frame.f_code.co_filename.startswith(LIBRARIES[1:])
    ):
        frame = frame.f_back
    if frame is None:
        return None
    return traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


_GUARDS_OF_DYNAMO = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "guards.py")


def is_guard_of_dynamo() -> bool:
    """Returns whether Dynamo checks the guards of code that it has interpreted."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == _GUARDS_OF_DYNAMO:
            return True
        frame = frame.f_back
    return False


class _MethodCalls(TorchFunctionMode):
    """Counts calls of methods as calls of ops. No mode sees those that a function of PyTorch's makes.

    Args:
        inside: Returns a function that counts as an op.
    """

    def __init__(self, inside: Callable[[Any], Any]) -> None:
        super().__init__()
        self._inside, self._own = inside, threading.get_ident()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function."""
        del types
        options = kwargs or {}
        if func in _ASKING_METHODS:
            return self._inside(func)(*args, **options)
        is_own = isinstance(func, FunctionType) and threading.get_ident() == self._own
        if not is_own or "contiguous" in vars(torch.Tensor):
            return func(*args, **options)
        # Setting a special method, such as __getitem__, would change how NumPy reads all tensors from then on.
        torch.Tensor.contiguous = self._inside(_CONTIGUOUS)  # type: ignore[method-assign]
        try:
            return func(*args, **options)
        finally:
            del torch.Tensor.contiguous


_CONTIGUOUS = torch.Tensor.contiguous
_ASKING_METHODS = frozenset({_CONTIGUOUS, torch.Tensor.__getitem__, torch.Tensor.__setitem__})
"""Methods that ask about sizes before they call an op."""


@contextlib.contextmanager
def noting_size_questions(
    note: Callable[[Any, Any, bool], None],
    note_equal: Callable[[Any, Any], None],
    may_be_empty: bool,
) -> Iterator[None]:
    """Calls a function with each question about sizes that no op asks, and its answer, inside a ``with`` block.

    PyTorch asks ``ShapeEnv.evaluate_expr``, records ops in ``proxy_call``, and computes their sizes in
    ``FakeTensorMode.dispatch``.

    Args:
        note: The function. It gets the ``ShapeEnv``, the question as a condition of SymPy's, and the answer.
        note_equal: Gets the equation where an op asks whether sizes differ, and they do not.
        may_be_empty: Whether symbols of sizes may be 0. To PyTorch, they are positive.
    """
    own, depth = threading.get_ident(), 0

    def inside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if threading.get_ident() != own:
                return function(*args, **kwargs)
            depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                depth -= 1

        return call

    evaluate: Any = ShapeEnv.evaluate_expr
    make_symbol: Any = vars(symbolic_shapes)["make_symbol"]

    def evaluate_noted(environment: ShapeEnv, question: Any, *args: Any, **options: Any) -> Any:
        answer = evaluate(environment, question, *args, **options)
        is_own = threading.get_ident() == own and not depth
        # Code that names an answer for unknown sizes takes either one. Equal strides are a guard all the same.
        is_equal = isinstance(question, sympy.Ne) and not answer
        has_choice = options.get("fallback_value") is not None and not is_equal
        symbols: Any = getattr(question, "free_symbols", ())
        if is_own and not has_choice and answer in (True, False) and symbols:
            note(environment, question, bool(answer))
        elif depth and is_equal:
            note_equal(environment, sympy.Eq(*question.args))
        return answer

    def make_natural(*args: Any, positive: bool | None = None, **options: Any) -> Any:
        options |= {"nonnegative": True} if positive else {"positive": positive}
        return make_symbol(*args, **options)

    passing = {*symbolic_shapes.uninteresting_files(), __file__, shape_rules.__file__}

    with contextlib.ExitStack() as stack:
        patch = mock.patch.object
        stack.enter_context(patch(symbolic_shapes, "uninteresting_files", lambda: passing))
        stack.enter_context(patch(ShapeEnv, "evaluate_expr", evaluate_noted))
        stack.enter_context(patch(proxy_tensor, "proxy_call", inside(proxy_tensor.proxy_call)))
        stack.enter_context(patch(FakeTensorMode, "dispatch", inside(FakeTensorMode.dispatch)))
        stack.enter_context(
            patch(HigherOrderOperator, "dispatch", inside(HigherOrderOperator.dispatch))
        )
        stack.enter_context(_MethodCalls(inside))
        if may_be_empty:
            stack.enter_context(patch(symbolic_shapes, "make_symbol", make_natural))
        yield
