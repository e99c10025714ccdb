"""Sizes of views and of pooling by formulas, where PyTorch asks about sizes while it traces.

PyTorch divides the sizes of a tensor by those of its view, and compares the last window of pooling with the padding.
Each answer becomes a guard, which excludes sizes for which the program is right. The view of a contiguous tensor is
contiguous for all sizes, and the number of windows is a minimum.
"""

from __future__ import annotations

import contextlib
import functools
import threading
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
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

_lock = threading.Lock()
_installed = contextlib.ExitStack()
_users = 0


@contextlib.contextmanager
def sizes_by_formulas() -> Iterator[None]:
    """Lets PyTorch compute the sizes of views and of pooling without questions, in a ``with`` block.

    The sizes are the same, also in other threads.
    """
    global _users  # how many blocks are open in all threads
    with _lock:
        _users += 1
        if _users == 1:
            for module, name, rule in _RULES:
                rule = functools.partial(rule, getattr(module, name))
                _installed.enter_context(mock.patch.object(module, name, rule))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _installed.close()


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


def _is_contiguous(rule: Any, sizes: Any, strides: Any, false_if_dde: bool = False) -> bool:
    """Returns whether strides are those of a contiguous tensor: for all sizes, or what PyTorch's rule returns.

    Code that takes ``False`` where PyTorch cannot know it gets it for strides of other tensors.
    """
    if any(isinstance(size, torch.SymInt) for size in sizes):
        for expected in (_packed(sizes, 0), _packed(sizes, 1)):
            if all(map(_is_always_equal, strides, expected)):
                return True
        hints = [*map(_hint, sizes)], [*map(_hint, strides)]
        if false_if_dde and None not in (*hints[0], *hints[1]) and not rule(*hints):
            return False
    is_contiguous: bool = rule(sizes, strides, false_if_dde)
    return is_contiguous


def _is_always_equal(left: Any, right: Any) -> bool:
    return statically_known_true(sym_eq(left, right))


def _hint(size: Any) -> int | None:
    """Returns a size of the example, or None if it depends on data."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    hint: int | None = size.node.hint if size.node.has_hint() else None
    return hint


def _packed(sizes: Any, least: int) -> list[Any]:
    """Returns the strides of a contiguous tensor, in which a size counts at least so much."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * (torch.sym_max(size, least) if least else size))
    return strides[::-1]


_RULES = (
    (_prims_common, "check_contiguous_sizes_strides", _is_contiguous),
    (_refs, "_reshape_view_helper", _view),
    (_meta_registrations, "pooling_output_shape_pad_lr", _windows),
)
"""Modules of PyTorch, the names of their rules, and what computes the same."""
