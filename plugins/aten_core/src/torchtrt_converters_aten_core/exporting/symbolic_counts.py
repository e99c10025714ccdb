"""Keeps sizes symbolic where PyTorch's own op takes a number, and its exporting fixes the size to that of the example.

Each function computes the result of the op by ops that take symbolic sizes. ``torch.export`` compares programs for 0
and 1 with the general one, so the functions compute these numbers too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchtrt_converters_aten_core import pack


@pack.export_context
@contextlib.contextmanager
def symbolic_counts() -> Iterator[None]:
    """Computes ops whose count varies by others, in a ``with`` block."""
    with _SymbolicCounts():
        yield


class _SymbolicCounts(TorchFunctionMode):
    """Replaces calls with a symbolic count."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of PyTorch, or what computes its result."""
        options = kwargs or {}
        if func in _FORMS and "out" not in options:
            result = _FORMS[func](*args, **options)
            if result is not None:
                return result
        return func(*args, **options)


def _varies(count: object) -> bool:
    """Returns whether a count is symbolic, or one of those that PyTorch takes no symbol for."""
    return isinstance(count, torch.SymInt) or (type(count) is int and count in (0, 1))


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **_: Any,
) -> Tensor | None:
    """Returns numbers at equal distances, counted from both ends toward the middle, as PyTorch does it."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    is_complex = any(isinstance(bound, complex) for bound in (start, end))
    if not _varies(steps) or not dtype.is_floating_point or is_complex:
        return None
    wide = torch.promote_types(dtype, torch.float32)
    numbers = torch.arange(steps, dtype=wide, device=device)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    is_near_start = numbers < torch.sym_max(steps // 2, 1)
    return torch.where(
        is_near_start, numbers * step + start, end - (steps - 1 - numbers) * step
    ).to(dtype)


def _one_hot(tensor: Tensor, num_classes: Any = -1) -> Tensor | None:
    """Returns ones at the places that integers name in a new last dimension, and zeros elsewhere."""
    is_known = not isinstance(num_classes, torch.SymInt)
    if num_classes == 0 or (is_known and num_classes != 1):  # PyTorch refuses 0
        return None
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def _indices(is_lower: bool) -> Callable[..., Tensor | None]:
    """Returns what computes the indices of one part of a matrix, row by row."""

    def indices(
        row: Any,
        col: Any,
        offset: int = 0,
        *,
        dtype: torch.dtype = torch.int64,
        device: Any = None,
        **_: Any,
    ) -> Tensor | None:
        if not (_varies(row) or _varies(col)):
            return None
        ones = torch.ones(row, col, dtype=torch.bool, device=device)
        part = ones.tril(offset) if is_lower else ones.triu(offset)
        return part.nonzero().t().to(dtype)

    return indices


def _max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Returns maxima over one dimension by those over two. PyTorch counts the windows of one dimension with numbers."""
    if not _varies(input.shape[-1]):
        return None
    (size,), (pad,), (gap,) = map(_single, (kernel_size, padding, dilation))
    step = (*_single(stride), 1) if stride else None
    pool: Any = torch.nn.functional.max_pool2d
    pooled = pool(
        input.unsqueeze(-1), (size, 1), step, (pad, 0), (gap, 1), ceil_mode, return_indices
    )
    return (
        tuple(pooled_tensor.squeeze(-1) for pooled_tensor in pooled)
        if return_indices
        else pooled.squeeze(-1)
    )


def _single(number: Any) -> tuple[Any, ...]:
    return tuple(number) if isinstance(number, (tuple, list)) else (number,)


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor | None:
    """Returns a bag for each row. PyTorch counts the rows by dividing the number of all elements by their length."""
    if offsets is not None or input.dim() != 2 or not any(map(_varies, input.shape)):
        return None
    rows, length = input.shape
    weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    return torch.nn.functional.embedding_bag(
        input.reshape(-1), weight, torch.arange(rows, device=input.device) * length, max_norm,
        norm_type, scale_grad_by_freq, mode, sparse, weights, False, padding_idx,
    )  # fmt: skip


def _einsum(equation: Any, *operands: Any) -> Tensor | None:
    """Returns a contraction of three or more tensors, in an order that no dynamic size determines.

    PyTorch has ``opt_einsum`` choose the order, if that is installed, and it computes with sizes as numbers.
    """
    is_list = len(operands) == 1 and isinstance(operands[0], (list, tuple))
    tensors: Sequence[Tensor] = operands[0] if is_list else operands
    planner: Any = torch.backends.opt_einsum
    if len(tensors) < 3 or not (planner.enabled and planner.is_available()):
        return None
    if not any(_varies(size) for tensor in tensors for size in tensor.shape):
        return None
    shapes = [[_USUAL if _varies(size) else size for size in tensor.shape] for tensor in tensors]
    options = {"shapes": True, "optimize": planner.strategy}
    steps, _ = planner.get_opt_einsum().contract_path(equation, *shapes, **options)
    path = [*itertools.chain.from_iterable(steps)]
    contracted: Tensor = torch.ops.aten.einsum.default(equation, tensors, path=path)
    return contracted


_USUAL = 64
"""The number that stands for each dynamic size where the order of a contraction is chosen."""

_FORMS: Mapping[Any, Callable[..., Any]] = {
    torch.einsum: _einsum,
    torch.linspace: _linspace,
    torch.max_pool1d: _max_pool1d,
    torch.nn.functional.embedding_bag: _embedding_bag,
    torch.nn.functional.max_pool1d: _max_pool1d,
    torch.nn.functional.one_hot: _one_hot,
    torch.tril_indices: _indices(True),
    torch.triu_indices: _indices(False),
}
