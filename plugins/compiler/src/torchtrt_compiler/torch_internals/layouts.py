"""Answers to PyTorch's questions how tensors lie in memory: those that are right for all sizes.

PyTorch asks of each tensor whether it is contiguous. ``x[:, :n]`` is, where ``n`` is the whole size. If it is for the
sizes of the example, each answer would become a guard, and the program would take no others. No value that an op
computes depends on it, so that a tensor that is contiguous for some sizes only is taken for one that is not.
``is_contiguous`` answers the questions of a model's own code.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch import _prims_common
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils import _pytree as pytree

_INNERMOST_FIRST = {
    torch.channels_last: (1, 3, 2, 0),
    torch.channels_last_3d: (1, 4, 3, 2, 0),
}
"""The dimensions of tensors in other formats than the contiguous one, from the smallest stride to the largest."""


def is_contiguous(tensor: Any, memory_format: Any = torch.contiguous_format) -> bool:
    """Returns whether a tensor is contiguous, with guards. PyTorch may know it of the example without asking."""
    if not any(isinstance(size, torch.SymInt) for size in tensor.shape):
        answer: bool = tensor.is_contiguous(memory_format=memory_format)
        return answer
    dims = _INNERMOST_FIRST.get(memory_format, range(tensor.dim())[::-1])
    if len(dims) != tensor.dim():
        return False
    expected = 1
    for dim in dims:
        size, stride = tensor.shape[dim], tensor.stride(dim)
        if stride != expected and size != 1:
            return any(size == 0 for size in tensor.shape)
        expected = expected * size
    return True


@contextlib.contextmanager
def _in_general(environment: Any, *, with_numbers: bool = False) -> Iterator[None]:
    """Answers questions about sizes and strides as for other sizes than the example's, without guards, in a block.

    Sizes that are not always equal differ. Dynamo learns from its questions that no size of a branch is 0.

    Args:
        environment: The ``ShapeEnv`` of the sizes, or None.
        with_numbers: Whether a size that is compared with a number is large. No op may depend on the answers then.
    """
    if environment is None or _is_of_dynamo(environment):
        yield
        return
    evaluate, before = environment.evaluate_expr, vars(environment).get("evaluate_expr")

    def answer(question: Any, *args: Any, **options: Any) -> Any:
        in_general = _IN_GENERAL.get(type(question))
        has_number = any(side.is_number for side in getattr(question, "args", ()))
        if in_general is None or (has_number and not with_numbers):
            return evaluate(question, *args, **options)
        certain = environment._maybe_evaluate_static(question)
        return in_general if certain is None else certain

    environment.evaluate_expr = answer
    try:
        yield
    finally:
        del environment.evaluate_expr
        if before is not None:
            environment.evaluate_expr = before


_IN_GENERAL = {
    sympy.Eq: sympy.false, sympy.Ne: sympy.true,
    sympy.StrictLessThan: sympy.false, sympy.LessThan: sympy.false,
    sympy.StrictGreaterThan: sympy.true, sympy.GreaterThan: sympy.true,
}  # fmt: skip


def _is_of_dynamo(environment: Any) -> bool:
    """Returns whether Dynamo interprets code with the symbols of a ``ShapeEnv``."""
    module: Any = sys.modules.get("torch._dynamo.symbolic_convert")
    translator = getattr(module.tls, "current_tx", None) if module else None
    return translator is not None and translator.output.shape_env is environment


def _may_differ(rule: Any, node: Any, *where: Any) -> Any:
    """Returns whether C++, which takes either answer, has to take two sizes or strides for different ones."""
    with _in_general(node.shape_env):
        return rule(node, *where)


def _dispatch(rule: Any, mode: Any, *args: Any, **options: Any) -> Any:
    """Returns the results of an op. C++ asks of each result once whether it is contiguous, and keeps the answer."""
    results = rule(mode, *args, **options)
    leaves = [results] if isinstance(results, FakeTensor) else pytree.tree_leaves(results)
    varying = [
        leaf
        for leaf in leaves
        if isinstance(leaf, FakeTensor)
        and leaf._has_symbolic_sizes_strides
        and leaf.layout is torch.strided
    ]
    if varying:
        with _in_general(mode.shape_env, with_numbers=True):
            for fake in varying:
                torch._debug_has_internal_overlap(fake)
    return results


def _cached(rule: Any, mode: Any, *args: Any, **options: Any) -> Any:
    """Returns a result from PyTorch's cache. C++ asks the same of it."""
    with _in_general(mode.shape_env, with_numbers=True):
        return rule(mode, *args, **options)


def _overlaps(rule: Any, tensor: Any) -> Any:
    """Returns whether elements of a tensor are in one place, which a write refuses."""
    sizes = (size for size in tensor.shape if isinstance(size, torch.SymInt))
    size = next(sizes, None)
    with _in_general(None if size is None else size.node.shape_env):
        return rule(tensor)


def _metadata(rule: Any, tensor: Any, **options: Any) -> Any:
    """Returns what PyTorch notes of each result beside its value, without how it lies in memory."""
    return rule(tensor, **{**options, "include_contiguity": False})


def _is_contiguous(rule: Any, sizes: Any, strides: Any, false_if_dde: bool = False) -> bool:
    """Returns whether strides are those of a contiguous tensor: for all sizes, or what PyTorch's rule returns.

    Code that takes ``False`` where PyTorch cannot know it gets it for strides of other tensors.
    """
    if any(isinstance(size, torch.SymInt) for size in sizes):
        for expected in (_packed(sizes, 0), _packed(sizes, 1)):
            if all(map(_is_always_equal, strides, expected)):
                return True
        if false_if_dde:
            return False
    is_contiguous: bool = rule(sizes, strides, false_if_dde)
    return is_contiguous


def _copied(rule: Any, mode: Any, op: Any, args: Any, options: Any) -> Any:
    """Returns the result of an op that takes tensors of several devices. Copying equal sizes asks only how they lie."""
    is_copy = op is torch.ops.aten.copy.default
    if is_copy and statically_known_true(sym_eq(args[0].shape, args[1].shape)):
        with _in_general(mode.shape_env):
            return rule(mode, op, args, options)
    return rule(mode, op, args, options)


def _is_always_equal(left: Any, right: Any) -> bool:
    return statically_known_true(sym_eq(left, right))


def _packed(sizes: Any, least: int) -> list[Any]:
    """Returns the strides of a contiguous tensor, in which a size counts at least so much."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * (torch.sym_max(size, least) if least else size))
    return strides[::-1]


RULES = (
    (SymNode, "guard_or_true", _may_differ),
    (FakeTensorMode, "dispatch", _dispatch),
    (FakeTensorMode, "_get_output_tensor_from_cache_entry", _cached),
    (torch, "_debug_has_internal_overlap", _overlaps),
    (fake_impls, "run_and_return_new_tensor_of_input_device", _copied),
    (proxy_tensor, "_extract_tensor_metadata", _metadata),
    (_prims_common, "check_contiguous_sizes_strides", _is_contiguous),
)
"""Where PyTorch asks, the names of its functions, and what answers."""
