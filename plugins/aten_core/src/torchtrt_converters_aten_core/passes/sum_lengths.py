"""How many terms a result is the sum of, for ``autocast_max_depth_of_reduction``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt_blocks.sizes import maximum_product

aten = torch.ops.aten


def sum_length(node: Node) -> float:
    """Returns how many terms an element of a result is the sum of: for products, convolutions and averages.

    Dynamic sizes count with the most that they can be; infinity where nothing bounds one. Other ops have 1.
    """
    measure = _MEASURES.get(getattr(node.target, "overloadpacket", None))
    return 1 if measure is None else measure(arguments_of(node))


def _shape(tensor: Any) -> Sequence[Any]:
    return tuple(value_of(tensor).shape)


def _most(sizes: Sequence[Any]) -> float:
    product = maximum_product(sizes)
    return math.inf if product is None else product


def _last_of(name: str) -> Callable[[Any], float]:
    """Returns the measure of products along the last dimension of an argument."""
    return lambda op: _most(_shape(getattr(op, name))[-1:])


def _sum_of_products(op: Any) -> float:
    batch, _, terms = _shape(op.batch1)
    return _most([batch, terms])


def _chain(op: Any) -> float:
    matrices = getattr(op, "matrices", None) or op.tensors
    return max(_most(_shape(matrix)[-1:]) for matrix in matrices[:-1])


def _einsum(op: Any) -> float:
    """Returns the product of the sizes whose letters the result lacks."""
    inputs, arrow, output = op.equation.replace(" ", "").partition("->")
    sizes: dict[str, Any] = {}
    for labels, tensor in zip(inputs.split(","), op.tensors, strict=True):
        first, _, last = labels.partition("...")
        sizes.update(zip(first, _shape(tensor), strict=False))
        sizes.update(zip(reversed(last), reversed(_shape(tensor)), strict=False))
    remaining = output if arrow else [label for label in sizes if inputs.count(label) == 1]
    return _most([size for label, size in sizes.items() if label not in remaining])


def _attention(op: Any) -> float:
    return max(_most(_shape(op.query)[-1:]), _most(_shape(op.key)[-2:-1]))


def _convolution(op: Any) -> float:
    if getattr(op, "transposed", False):
        return _transposed_convolution(op)
    return _most(_shape(op.weight)[1:])


def _transposed_convolution(op: Any) -> float:
    inputs, _, *kernel = _shape(op.weight)
    return _most([inputs, *kernel]) / float(op.groups)


def _average(dimensions: int) -> Callable[[Any], float]:
    def measure(op: Any) -> float:
        sizes = list(op.kernel_size)
        return float(math.prod(sizes * dimensions if len(sizes) == 1 else sizes))

    return measure


def _adaptive_average(op: Any) -> float:
    results = list(op.output_size)
    if not all(isinstance(size, int) and size for size in results):
        return 1
    return _most(_shape(op.self)[-len(results) :]) / float(math.prod(results))


_MEASURES: dict[Any, Callable[[Any], float]] = {
    **dict.fromkeys((aten.bmm, aten.matmul, aten.mm, aten.mv), _last_of("self")),
    aten.linear: _last_of("input"),
    aten.addmm: _last_of("mat1"),
    aten.addmv: _last_of("mat"),
    aten.baddbmm: _last_of("batch1"),
    aten.addbmm: _sum_of_products,
    aten.bilinear: lambda op: _most(_shape(op.weight)[1:]),
    aten.chain_matmul: _chain,
    aten.linalg_multi_dot: _chain,
    aten.einsum: _einsum,
    aten.scaled_dot_product_attention: _attention,
    **dict.fromkeys((aten.conv1d, aten.conv2d, aten.conv3d, aten.convolution), _convolution),
    aten.conv_tbc: lambda op: _most(_shape(op.weight)[:2]),
    aten.conv_transpose1d: _transposed_convolution,
    aten.conv_transpose2d: _transposed_convolution,
    aten.conv_transpose3d: _transposed_convolution,
    aten.avg_pool1d: _average(1),
    aten.avg_pool2d: _average(2),
    aten.avg_pool3d: _average(3),
    aten.adaptive_avg_pool1d: _adaptive_average,
    aten.adaptive_avg_pool2d: _adaptive_average,
    aten._adaptive_avg_pool2d: _adaptive_average,
}
