"""Keeps symbolic sizes symbolic.

Comparing two symbolic sizes makes PyTorch assume the answer for the rest of the program: ``if
x.shape[0] == 2`` fixes the size to 2, or forbids it. That is how exporting works, but nothing that
looks at the exported graph may add assumptions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import Graph
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from torchtrt.errors import NewAssumptionError
from torchtrt.expressions.torch_internals import is_certain


def shape_env_of(graph: Graph) -> ShapeEnv | None:
    """Returns where the symbols of a graph live, or None for a graph without fake tensors."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return value.node.shape_env  # type: ignore[no-any-return]
        mode = getattr(value, "fake_mode", None)
        if mode is not None:
            return mode.shape_env  # type: ignore[no-any-return]
    return None


def size_at(size: Any, sizes: Mapping[Any, int]) -> Any:
    """Returns a size where the symbols have these values; an expression if it depends on others, such as on data.

    Args:
        size: An ``int``, a ``torch.SymInt``, or an expression of SymPy.
        sizes: The value of each symbol.
    """
    if isinstance(size, int):
        return size
    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    value = expression.xreplace(sizes)
    return value if getattr(value, "free_symbols", ()) else int(value)


def sizes_from_data(value: Any) -> set[Any]:
    """Returns the symbols in the sizes of a fake tensor, or of several, whose values depend on data."""
    if isinstance(value, (tuple, list)):
        return set().union(*map(sizes_from_data, value))
    # The flag takes a quarter of the time that reading the shape takes.
    is_symbolic = isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides
    return set(free_unbacked_symbols(tuple(value.shape))) if is_symbolic else set()


@contextlib.contextmanager
def no_new_assumptions(graph: Graph) -> Iterator[None]:
    """Makes what would add an assumption on the graph's sizes raise ``NewAssumptionError`` in a ``with`` block.

    Code of PyTorch's that names an answer for unknown sizes gets that answer: it asks how tensors lie in memory, and
    checks what else it assumes.
    """
    shape_env: Any = shape_env_of(graph)
    if shape_env is None or "_check_frozen" in vars(shape_env):
        yield
        return

    if hasattr(shape_env, "_version_counter"):
        # PyTorch caches the questions that it could not decide before exporting had the ranges.
        shape_env._version_counter += 1

    def refuse(expression: Any, value: Any) -> None:
        if is_certain(expression, value):
            return
        error = NewAssumptionError(
            f"This would assume that {expression} is {value}. Compare symbolic sizes with "
            "torch.fx.experimental.symbolic_shapes.statically_known_true(...)."
        )
        error.expression, error.value = expression, value
        raise error

    evaluate = shape_env.evaluate_expr

    def evaluate_certain(*args: Any, **options: Any) -> Any:
        try:
            return evaluate(*args, **options)
        except NewAssumptionError:
            if options.get("fallback_value") is None:
                raise
            return options["fallback_value"]

    # PyTorch calls this before it adds a guard; its own switch to raise here is newer than 2.9.
    shape_env._check_frozen, shape_env.evaluate_expr = refuse, evaluate_certain
    try:
        with quiet_tracing():
            yield
    finally:
        del shape_env._check_frozen, shape_env.evaluate_expr


_promised: ContextVar[bool] = ContextVar("torchtrt_same_for_all_answers", default=False)


@contextlib.contextmanager
def same_for_all_answers() -> Iterator[None]:
    """Promises that the answers to questions about sizes inside a ``with`` block change no result.

    A question that a model's Python code asks while it is exported, such as ``x.shape[0] == 1``, becomes a condition on
    the sizes of calls. A pack that knows a library's code enters this around a function of the library, in an export
    context, so that its questions become none.
    """
    token = _promised.set(True)
    try:
        yield
    finally:
        _promised.reset(token)


def answers_are_same() -> bool:
    """Returns whether the thread is inside a ``same_for_all_answers`` block."""
    return _promised.get()


@contextlib.contextmanager
def quiet_tracing() -> Iterator[None]:
    """Hides the tracebacks that PyTorch logs while it traces, in a ``with`` block whose errors are caught.

    The records that ``TORCH_LOGS`` asks for are below a warning, and stay.
    """

    def hide(record: logging.LogRecord) -> bool:  # one for each block, because blocks nest
        return record.levelno < logging.WARNING

    for logger in _NOISY:
        logger.addFilter(hide)
    try:
        yield
    finally:
        for logger in _NOISY:
            logger.removeFilter(hide)


_NOISY = tuple(
    logging.getLogger(name)
    for name in ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")
)
