"""Compares what engines make of PyTorch's samples with PyTorch's own results, where that is not plain equality."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

import torch

from torchtrt.torch_internals import pytree
from torchtrt_testing.op_info import Sample
from torchtrt_testing.torch_internals import default_tolerances

BOUNDS = {
    "bernoulli": (0, 1),
}
"""The minimum and maximum value of ops that are random."""
UNINITIALISED = re.compile(r"(new_)?empty(_like|_permuted|_strided)?|resize_|resize_as_")
"""Ops whose result has no defined values."""


def eager(sample: Sample, wide: bool = False) -> list[Any]:
    """Returns the results, and the inputs as they are afterwards."""
    torch.manual_seed(0)
    if wide:
        sample = replace(sample, leaves=tuple(map(_widen, sample.leaves)))
    tensors = sample.tensors
    if wide and not any(tensor.is_floating_point() for tensor in tensors):
        tensors = tuple(tensor.double() for tensor in tensors)
    return [*pytree.tree_leaves(sample.model(*tensors)), *tensors]


def difference(sample: Sample, exported: Any, actual: list[Any], expected: list[Any]) -> str | None:
    """Returns how the results differ from PyTorch's, or None."""
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    undefined = UNINITIALISED.fullmatch(sample.op) is not None or _is_random(exported)
    exact = functools.cache(functools.partial(_exact, sample, len(expected)))
    for index, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            if mine != theirs and not (mine != mine and theirs != theirs):
                return f"result {index} is {mine} instead of {theirs}"
            continue
        different = _difference_in_kind(mine, theirs)
        if different:
            return f"result {index} is {different}"
        if undefined:
            if not _is_plausible(sample, index, mine, theirs):
                return f"result {index} is random, and beyond its bounds"
            continue
        try:
            torch.testing.assert_close(mine, theirs, equal_nan=True)
        except AssertionError as error:
            is_exact = _is_as_exact(mine, theirs, exact()[index])
            if not (is_exact or _chooses_equals(sample, mine, theirs)):
                return f"result {index}: " + " ".join(str(error).split())[:200]
    return None


def _difference_in_kind(mine: Any, theirs: torch.Tensor) -> str:
    """Returns how a result differs from PyTorch's tensor in kind, dtype or shape; empty if it does not."""
    if not isinstance(mine, torch.Tensor):
        return f"{mine} instead of a tensor"
    if (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape):
        return ""
    before, after = (f"{tensor.dtype}{list(tensor.shape)}" for tensor in (theirs, mine))
    return f"{after} instead of {before}"


def _is_random(exported: Any) -> bool:
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for node in exported.graph.nodes
        if node.target is not torch.ops.aten.dropout.default or node.args[2]
    )


def _is_plausible(sample: Sample, index: int, mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Returns whether random values are finite where PyTorch's are, and within the op's bounds."""
    if UNINITIALISED.fullmatch(sample.op):
        return True
    bounds = BOUNDS.get(sample.op) if index == 0 else None
    if bounds is not None and mine.numel():
        low, high = mine.min().item(), mine.max().item()
        return bool(bounds[0] <= low and high <= bounds[1])
    return bool(mine.isfinite().all() or not theirs.isfinite().all())


_WIDER = {torch.float16: torch.float32, torch.float32: torch.float64}


def _widen(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.to(_WIDER.get(leaf.dtype, leaf.dtype))
    return _WIDER.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def _exact(sample: Sample, count: int) -> list[Any]:
    """Returns the results computed in the next wider dtype, or nothing to compare with."""
    try:
        results = eager(sample, wide=True)
    except Exception:  # not every op has a wider form
        results = []
    return results if len(results) == count else [None] * count


def _is_as_exact(mine: torch.Tensor, theirs: torch.Tensor, exact: Any) -> bool:
    """Returns whether no element is further from the exact result than twice PyTorch's own maximum error."""
    if not isinstance(exact, torch.Tensor) or not mine.dtype.is_floating_point:
        return False
    if exact.shape != mine.shape or exact.dtype not in _WIDER.values():
        return False
    relative, absolute = default_tolerances(mine)
    own = (theirs.to(exact.dtype) - exact).abs()
    own = own[own.isfinite()]
    allowed = 2 * own.max() if own.numel() else 0.0
    error = (mine.to(exact.dtype) - exact).abs()
    close = error <= allowed + absolute + relative * exact.abs()
    return bool((close | (mine == theirs) | (mine.isnan() & theirs.isnan())).all())


_AMONG_EQUALS = frozenset({"topk", "sort", "argsort", "kthvalue", "median", "nanmedian", "mode"})
"""Ops that may choose any index among equal elements."""


def _chooses_equals(sample: Sample, mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Returns whether two results that are indices choose equal elements, and none twice."""
    if sample.op not in _AMONG_EQUALS or mine.dtype is not torch.int64:
        return False
    tensor = sample.tensors[0]
    for dim in range(tensor.dim()):
        indices = [mine, theirs]
        if mine.dim() < tensor.dim():
            indices = [index.unsqueeze(dim) for index in indices]
        if any(
            size != full
            for index, (size, full) in enumerate(zip(indices[0].shape, tensor.shape, strict=True))
            if index != dim
        ):
            continue
        if not all(((index >= 0) & (index < tensor.shape[dim])).all() for index in indices):
            continue
        ordered = indices[0].sort(dim)[0]
        if (ordered.diff(dim=dim) == 0).any():
            continue
        chosen, wanted = (tensor.gather(dim, index) for index in indices)
        if torch.equal(chosen, wanted):
            return True
    return False
