"""Answers to PyTorch's questions how tensors lie in memory: those that are right for all sizes.

PyTorch asks of each tensor whether it is contiguous. ``x[:, :n]`` is, where ``n`` is the whole size. If it is for the
sizes of the example, the answer becomes a guard, and the program takes no others. Where PyTorch only notes the answer,
or takes either one, such a tensor is one that is not contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _prims_common
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils import _pytree as pytree

from torchtrt.errors import NewAssumptionError


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


RULES = (
    (proxy_tensor, "_extract_tensor_metadata", _metadata),
    (FakeTensorMode, "_cached_dispatch_impl", _dispatch),
    (_prims_common, "check_contiguous_sizes_strides", _is_contiguous),
)
"""Where PyTorch asks, the names of its functions, and what answers."""
