"""Checks that converters share: each returns why TensorRT cannot compute a node, or ``None``."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import constant_of, value_of
from torchtrt.tensorrt import Capability, dtype_name, engine_dtype, supports

COMPUTE_DTYPES = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.bool,
    }
)
"""The dtypes that TensorRT computes with. float64 reaches a converter only with ``truncate_double``."""
STORAGE_DTYPES = COMPUTE_DTYPES | {torch.uint8, torch.int8}
"""The dtypes that can be cast. TensorRT moves no bytes around but in casts and at the network's edges."""
RANK_LIMIT = 8
_PLAIN_DTYPE = "_torchtrt_plain_dtype"

Check = Callable[[Node], str | None]
"""Looks at a node of the graph and returns why TensorRT cannot do it, in words, or ``None`` if it can."""


def _leaves(args: Iterable[Any]) -> Iterable[Any]:
    for arg in args:
        if isinstance(arg, (tuple, list)):
            yield from _leaves(arg)
        else:
            yield arg


@functools.cache
def tensor_limits(dtypes: frozenset[torch.dtype], empty: bool) -> Check:
    """Returns the check that all tensors of a node are of these dtypes, of TensorRT's ranks, and not empty."""

    def tensor_limits(node: Node) -> str | None:
        for source in (node, *node.all_input_nodes):
            value = source.meta.get("val")
            if _plain_dtype(value) in dtypes:
                continue
            reason = _beyond_limits(value, dtypes, node if empty else None)
            if reason is not None:
                return reason
        return None

    check: Any = tensor_limits
    check.dtypes = dtypes  # which listings show
    return tensor_limits


def _plain_dtype(value: Any) -> torch.dtype | None:
    """Returns a fake tensor's dtype, or ``None`` if anything but the dtype may keep TensorRT from computing with it.

    Each attribute of a fake tensor takes as long to read as a whole check, and the checks of each node that reads the
    tensor read the same ones. So the tensor keeps the result. A validator leaves graphs as they are.
    """
    if not isinstance(value, torch.Tensor):
        return None
    kept = value.__dict__
    if _PLAIN_DTYPE not in kept:
        is_plain = value.layout is torch.strided and value.dim() <= RANK_LIMIT
        kept[_PLAIN_DTYPE] = value.dtype if is_plain and not _has_zero(value) else None
    dtype: torch.dtype | None = kept[_PLAIN_DTYPE]
    return dtype


def _beyond_limits(
    value: Any, dtypes: frozenset[torch.dtype], accepting: Node | None
) -> str | None:
    """Returns why TensorRT cannot compute with what a node reads or makes, or ``None``.

    Args:
        value: A fake tensor, several of them, or anything else.
        dtypes: The dtypes that the op supports.
        accepting: The node whose op supports tensors without elements, if it does.
    """
    if not isinstance(value, torch.Tensor):
        return _wrong_dtype_among(value, dtypes)
    if accepting is None:
        return _wrong_dtype(value, dtypes, None)
    result = accepting.meta.get("val")
    rank = result.dim() if isinstance(result, torch.Tensor) else 0
    return _wrong_dtype(value, dtypes, (1, rank))


def _wrong_dtype(
    tensor: torch.Tensor, dtypes: frozenset[torch.dtype], empty: tuple[int, int] | None
) -> str | None:
    """Returns why TensorRT cannot compute with a tensor, or ``None``.

    Args:
        tensor: A fake tensor.
        dtypes: The dtypes that the op supports.
        empty: A rank at which the tensor may be empty, and the rank from which on it may; ``None`` if it may not.
    """
    if tensor.layout is not torch.strided:
        return "TensorRT has no sparse tensors"
    if tensor.dtype not in dtypes:
        return f"TensorRT does not compute this op with {dtype_name(tensor.dtype)}"
    rank = tensor.dim()
    if rank > RANK_LIMIT:
        return f"TensorRT has tensors of at most {RANK_LIMIT} dimensions, not {rank}"
    if empty is not None and (rank == empty[0] or rank >= empty[1]):
        return None
    return "TensorRT does not do this with an empty tensor" if _has_zero(tensor) else None


def _wrong_dtype_among(values: Any, dtypes: frozenset[torch.dtype]) -> str | None:
    """Returns why TensorRT cannot compute with one of several outputs, or ``None``."""
    for leaf in _leaves(values) if isinstance(values, (tuple, list)) else ():
        # An output that nothing reads may be empty.
        if isinstance(leaf, torch.Tensor) and (reason := _wrong_dtype(leaf, dtypes, (0, 0))):
            return reason
    return None


def sizes_known_before_data(node: Node) -> str | None:
    """Rejects tensors whose sizes depend on data where TensorRT has no layer that returns such a size."""
    tensors = [value_of(source) for source in node.all_input_nodes]
    symbolic = [
        tensor
        for tensor in tensors
        if isinstance(tensor, torch.Tensor) and _may_be_symbolic(tensor)
    ]
    if not symbolic or supports(Capability.SIZES_FROM_DATA):
        return None
    sizes: Iterable[int | torch.SymInt] = itertools.chain.from_iterable(
        tensor.shape for tensor in symbolic
    )
    for size in sizes:
        if not isinstance(size, int) and not is_backed(size):
            return "this TensorRT does not return a size that depends on data"
    return None


def is_backed(size: torch.SymInt) -> bool:
    """Returns whether a size follows from the sizes of the model's inputs, and not from data."""
    # Imported here because sympy, which it brings, takes longer to import than all packs together.
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return not free_unbacked_symbols(size)


def constants_within_32_bits(node: Node) -> str | None:
    """Rejects 64-bit integers that do not fit into 32 bits, where TensorRT has no more."""
    for source in node.all_input_nodes:
        values: Any = constant_of(source) if source.op == "get_attr" else None
        if _is_narrowed(values) and values.numel() and not _fits(values.aminmax()):
            return "this TensorRT has integers of 32 bits, and a constant is beyond them"
    return None


def numbers_within_32_bits(node: Node) -> str | None:
    """Rejects numbers that become elements and do not fit into 32 bits, where TensorRT has no more."""
    is_any_beyond = any(_numbers_beyond_32_bits(node.args))
    if not is_any_beyond and not (
        node.kwargs and any(_numbers_beyond_32_bits(node.kwargs.values()))
    ):
        return None
    beyond = [*_numbers_beyond_32_bits(_elements_among(node))]
    # A floating-point number becomes an integer only where the result is one.
    sources = node.all_input_nodes if any(isinstance(number, int) for number in beyond) else ()
    if beyond and any(_is_narrowed(value_of(source)) for source in (node, *sources)):
        return "this TensorRT has integers of 32 bits, and a number is beyond them"
    return None


def _numbers_beyond_32_bits(arguments: Iterable[Any]) -> Iterator[int | float]:
    """Yields the finite numbers among arguments that are no integers of 32 bits."""
    for argument in arguments:
        if isinstance(argument, (int, float)):
            is_number = isinstance(argument, int) or math.isfinite(argument)
            if not -(2**31) <= argument < 2**31 and is_number:
                yield argument
        elif isinstance(argument, (tuple, list)):
            yield from _numbers_beyond_32_bits(argument)


def _elements_among(node: Node) -> Iterator[Any]:
    """Yields the arguments that may be elements, not sizes or positions, which a schema calls integers."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        yield from (*node.args, *node.kwargs.values())
        return
    for index, argument in enumerate(schema.arguments):
        if "int" not in str(argument.type):
            yield node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)


def _is_narrowed(value: Any) -> bool:
    """Returns whether a tensor's 64-bit integers have 32 bits inside the network."""
    is_long = isinstance(value, torch.Tensor) and value.dtype is torch.int64
    return is_long and engine_dtype(torch.int64) is not torch.int64


def _fits(numbers: Iterable[Any]) -> bool:
    return all(-(2**31) <= number < 2**31 for number in numbers)


def is_empty(*values: Any) -> bool:
    """Returns whether one of these fake tensors is known to have no elements."""
    return any(_has_zero(value) for value in values)


def _has_zero(value: Any) -> bool:
    # A quarter of the time that reading the shape takes.
    if not _may_be_symbolic(value):
        return not value.numel()
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def _may_be_symbolic(value: Any) -> bool:
    """Returns whether a fake tensor may have a symbolic size."""
    return bool(getattr(value, "_has_symbolic_sizes_strides", True))
