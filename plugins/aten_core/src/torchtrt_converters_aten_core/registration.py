"""How this pack registers converters, and what every one of them requires."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import constant_of, value_of
from torchtrt.tensorrt.dtypes import dtype_name, network_dtype
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.impl.shims import tells_sizes_that_depend_on_data

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

Check = Callable[[Node], str | None]
"""Looks at a node of the graph and returns why TensorRT cannot do it, in words, or ``None`` if it can."""


def converts(
    *targets: Any,
    unless: Check | Sequence[Check] = (),
    dtypes: frozenset[torch.dtype] = COMPUTE_DTYPES,
    keep_constants: bool = False,
    empty: bool = False,
    numbers: bool = False,
    asks_sizes: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that registers a converter for each of the targets.

    Every converter of this pack supports dynamic shapes. The tensors that a node reads and makes
    must be of ``dtypes`` and of a rank that TensorRT has.

    Args:
        *targets: The ops.
        unless: One check or several: each returns a reason to reject a node, or ``None``.
        dtypes: The dtypes that the converter handles.
        keep_constants: Whether the converter wants weights as PyTorch tensors. Otherwise it
            receives them as network tensors.
        empty: Whether it handles tensors known to have no elements. TensorRT refuses many layers
            over them.
        numbers: Whether numbers among the arguments become elements, and not sizes or places.
        asks_sizes: Whether it may ask for a tensor's sizes at run time. Not every TensorRT tells
            those that depend on data.
    """
    return pack.converter(
        *targets,
        unless=(
            tensor_limits(dtypes, empty),
            constants_within_32_bits,
            *((numbers_within_32_bits,) if numbers else ()),
            *((sizes_known_before_data,) if asks_sizes else ()),
            *((unless,) if callable(unless) else unless),
        ),
        supports_dynamic_shapes=True,
        keep_constants=keep_constants,
    )


converts_elementwise = functools.partial(converts, empty=True, numbers=True, asks_sizes=False)
"""As ``converts``, for layers that work element by element: no elements are no trouble."""


def _tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """Returns the fake tensors of a node's value. Most nodes have one, which is worth telling first."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if not isinstance(value, (tuple, list)):
        return ()
    return [leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor)]


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
        result = node.meta.get("val")
        rank = result.dim() if isinstance(result, torch.Tensor) else 0
        for source in (node, *node.all_input_nodes):
            value = source.meta.get("val")
            for leaf in _tensors_in(value):
                if leaf.layout is not torch.strided:
                    return "TensorRT has no sparse tensors"
                if leaf.dtype not in dtypes:
                    return f"TensorRT does not compute this op with {dtype_name(leaf.dtype)}"
                if leaf.dim() > RANK_LIMIT:
                    return (
                        f"TensorRT has tensors of at most {RANK_LIMIT} dimensions, not {leaf.dim()}"
                    )
                if isinstance(value, (tuple, list)):
                    continue  # an output that nothing reads may be empty
                if not (empty and (leaf.dim() >= rank or leaf.dim() == 1)) and _has_zero(leaf):
                    return "TensorRT does not do this with an empty tensor"
        return None

    tensor_limits.dtypes = dtypes  # which listings show
    return tensor_limits


def sizes_known_before_data(node: Node) -> str | None:
    """Rejects tensors whose sizes depend on data where TensorRT tells no such size to the layers after."""
    if tells_sizes_that_depend_on_data():
        return None
    for source in node.all_input_nodes:
        value = value_of(source)
        extents = value.shape if isinstance(value, torch.Tensor) else ()
        if not all(isinstance(size, int) or is_backed(size) for size in extents):
            return "this TensorRT does not tell a size that depends on data"
    return None


def is_backed(size: torch.SymInt) -> bool:
    """Returns whether a size follows from the sizes of the model's inputs, and not from data."""
    # Imported here because sympy, which it brings, takes longer to import than all packs together.
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return not free_unbacked_symbols(size)


def constants_within_32_bits(node: Node) -> str | None:
    """Rejects 64-bit integers that do not fit into 32 bits, where TensorRT has no more."""
    for source in node.all_input_nodes:
        values: Any = constant_of(source)
        if _is_narrowed(values) and values.numel() and not _fits(values.aminmax()):
            return "this TensorRT has integers of 32 bits, and a constant is beyond them"
    return None


def numbers_within_32_bits(node: Node) -> str | None:
    """Rejects numbers among the arguments that do not fit into 32 bits, where TensorRT has no more."""
    leaves = [*_leaves(node.args), *_leaves(tuple(node.kwargs.values()))]
    integers = [leaf for leaf in leaves if isinstance(leaf, int)]
    becoming = [leaf for leaf in leaves if isinstance(leaf, float) and math.isfinite(leaf)]
    sources = (node, *node.all_input_nodes)
    if (not _fits(integers) and any(_is_narrowed(value_of(source)) for source in sources)) or (
        not _fits(becoming) and _is_narrowed(value_of(node))
    ):
        return "this TensorRT has integers of 32 bits, and a number is beyond them"
    return None


def _is_narrowed(value: Any) -> bool:
    """Returns whether a tensor's 64-bit integers have 32 bits inside the network."""
    is_long = isinstance(value, torch.Tensor) and value.dtype is torch.int64
    return is_long and network_dtype(torch.int64) is not torch.int64


def _fits(numbers: Iterable[Any]) -> bool:
    return all(-(2**31) <= number < 2**31 for number in numbers)


def is_empty(*values: Any) -> bool:
    """Returns whether one of these fake tensors is known to have no elements."""
    return any(_has_zero(value) for value in values)


def _has_zero(value: Any) -> bool:
    # A quarter of the time that reading the shape takes.
    if not getattr(value, "_has_symbolic_sizes_strides", True):
        return not value.numel()
    return any(isinstance(size, int) and size == 0 for size in value.shape)
