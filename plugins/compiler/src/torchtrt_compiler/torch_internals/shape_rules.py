"""Sizes of views and of pooling by formulas, where PyTorch asks about sizes while it traces.

PyTorch divides the sizes of a tensor by those of its view, and compares the last window of pooling with the padding.
Each answer becomes a guard, which excludes sizes for which the program is right. The view of a contiguous tensor is
contiguous for all sizes, and the number of windows is a minimum. ``layouts`` has the rules for the layout of tensors.
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
from torch import _meta_registrations, _refs
from torch._prims_common import (
    extract_shape_from_varargs,
    infer_size,
    is_contiguous_or_false,
    make_contiguous_strides_for,
)

from torchtrt_compiler.torch_internals import layouts

_lock = threading.Lock()
_installed = contextlib.ExitStack()
_users: Counter[int] = Counter()
"""How many blocks are open in each thread."""


@contextlib.contextmanager
def sizes_by_formulas() -> Iterator[None]:
    """Lets PyTorch compute the sizes of views and of pooling without questions in a ``with`` block, in this thread."""
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


_RULES = (
    (_refs, "_reshape_view_helper", _view),
    (_meta_registrations, "pooling_output_shape_pad_lr", _windows),
    *layouts.RULES,
)
"""Modules of PyTorch, the names of their rules, and what computes the same."""
