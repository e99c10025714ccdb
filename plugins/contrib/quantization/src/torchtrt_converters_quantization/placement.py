"""The places of int8: the ops whose inputs are quantized so that TensorRT fuses the layers between them."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten

PRODUCTS = frozenset(
    {
        aten.conv1d.default,
        aten.conv2d.default,
        aten.conv2d.padding,
        aten.conv3d.default,
        aten.linear.default,
    }
)
"""Ops with a weight, whose input and weight are quantized."""
MATRIX_PRODUCTS = frozenset({aten.matmul.default, aten.bmm.default})
"""Ops of two inputs that are quantized."""
SUMS = frozenset({aten.add.Tensor, aten.add_.Tensor})


def quantized_inputs(node: Node, matrix_products: bool = True) -> list[Node]:
    """Returns which inputs of a node TensorRT needs quantized; of one with a weight, the weight is the second."""
    if node.op != "call_function":
        return []
    if node.target in PRODUCTS:
        return [argument for argument in node.args[:2] if isinstance(argument, Node)]
    if node.target in MATRIX_PRODUCTS and matrix_products:
        return [argument for argument in node.args[:2] if isinstance(argument, Node)]
    if node.target in SUMS:
        return _residual(node)
    return []


def _residual(node: Node) -> list[Node]:
    """Returns what a sum adds to a product."""
    operands: Any = node.args[:2]
    if not all(isinstance(operand, Node) and _is_tensor(operand) for operand in operands):
        return []
    products = [
        operand for operand in operands if operand.target in PRODUCTS and len(operand.users) == 1
    ]
    if not products or operands[0].meta["val"].shape != operands[1].meta["val"].shape:
        return []
    return [operand for operand in operands if operand is not products[0]]


def _is_tensor(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point
