"""Answers that are right for all sizes, where PyTorch asks about sizes while it traces.

PyTorch divides the sizes of a tensor by those of its view, and compares the last window of pooling with the padding.
Each answer becomes a guard, which excludes sizes for which the program is right. The view of a contiguous tensor is
contiguous for all sizes, and the number of windows is a minimum.

It also asks of each tensor whether it is contiguous. ``x[:, :n]`` is, where ``n`` is the whole size. Where PyTorch only
notes the answer, or takes either one, a tensor that is contiguous for some sizes only is one that is not.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import _meta_registrations, _prims_common, _refs
from torch._prims_common import (
    extract_shape_from_varargs,
    infer_size,
    is_contiguous_or_false,
    make_contiguous_strides_for,
)
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils import _pytree as pytree

from torchtrt.errors import NewAssumptionError

_lock = threading.Lock()
_installed = contextlib.ExitStack()
_users: Counter[int] = Counter()
"""How many blocks are open in each thread."""


@contextlib.contextmanager
def sizes_by_formulas() -> Iterator[None]:
    """Answers PyTorch's questions for all sizes in a ``with`` block, in this thread."""
    own = threading.get_ident()
    with _lock:
        if not _users:
            for module, name, rule in _RULES:
                in_blocks = _in_blocks(getattr(module, name), rule)
                _installed.enter_context(mock.patch.object(module, name, in_blocks))
        _users[own] += 1
    try:
        yield
    finally:
        with _lock:
            _users[own] -= 1
            if not _users[own]:
                del _users[own]
            if not _users:
                _installed.close()


def _in_blocks(theirs: Any, rule: Any) -> Any:
    """Returns a rule in place of PyTorch's in the threads with blocks."""

    @functools.wraps(theirs)
    def apply(*args: Any, **options: Any) -> Any:
        if threading.get_ident() in _users:
            return rule(theirs, *args, **options)
        return theirs(*args, **options)

    return apply


def _view(rule: Any, tensor: Any, *shape: Any, **options: Any) -> Any:
    """Returns a view with another shape, or what PyTorch's rule returns."""
    sizes = extract_shape_from_varargs(shape, validate=False)
    varies = any(isinstance(size, torch.SymInt) for size in (*tensor.shape, *sizes))
    if not varies or not tensor.dim() or not sizes or not is_contiguous_or_false(tensor):
        return rule(tensor, *shape, **options)
    sizes = infer_size(sizes, tensor.numel())
    return tensor.as_strided(sizes, make_contiguous_strides_for(sizes))


def _windows(rule: Any, size: Any, *window: Any) -> Any:
    """Returns how many windows pooling has along a dimension."""
    kernel, before, after, stride, dilation, rounds_up = window
    if not rounds_up or not isinstance(size, torch.SymInt):
        return rule(size, *window)
    extent = dilation * (kernel - 1) + 1
    count = (size + before + after - extent + stride - 1) // stride + 1
    if after + stride <= extent:
        return count  # no window starts in the padding at the end
    return torch.sym_min(count, (size + before - 1) // stride + 1)


def _metadata(rule: Any, tensor: Any, **options: Any) -> Any:
    """Returns what PyTorch notes of each result beside its value, without how it lies in memory."""
    return rule(tensor, **{**options, "include_contiguity": False})


def _dispatch(rule: Any, mode: Any, op: Any, types: Any, args: Any, options: Any) -> Any:
    """Returns the results of an op. Of those in its cache, PyTorch answers for the example, and asks nothing.

    These serve where a question would be an assumption.
    """
    if not any(map(_is_dynamic, pytree.tree_leaves((args, options)))):
        return rule(mode, op, types, args, options)
    try:
        return mode._dispatch_impl(op, types, args, options)
    except NewAssumptionError:
        return rule(mode, op, types, args, options)


def _is_dynamic(value: Any) -> bool:
    is_tensor = isinstance(value, FakeTensor) and value._has_symbolic_sizes_strides
    return is_tensor or isinstance(value, torch.SymInt)


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


def _is_always_equal(left: Any, right: Any) -> bool:
    return statically_known_true(sym_eq(left, right))


def _packed(sizes: Any, least: int) -> list[Any]:
    """Returns the strides of a contiguous tensor, in which a size counts at least so much."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * (torch.sym_max(size, least) if least else size))
    return strides[::-1]


_RULES = (
    (_refs, "_reshape_view_helper", _view),
    (_meta_registrations, "pooling_output_shape_pad_lr", _windows),
    (_prims_common, "check_contiguous_sizes_strides", _is_contiguous),
    (proxy_tensor, "_extract_tensor_metadata", _metadata),
    (FakeTensorMode, "_cached_dispatch_impl", _dispatch),
)
"""Modules and classes of PyTorch, the names of their rules, and the functions in their place."""
