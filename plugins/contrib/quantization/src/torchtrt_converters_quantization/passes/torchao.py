"""The ops of torchao, which need not be installed: they are known by their names."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, constant_of, value_of
from torchtrt.targets import qualified_name
from torchtrt_converters_quantization.passes.graphs import CASTS, Editor, cast, leave
from torchtrt_converters_quantization.passes.weights import Weight, along_one_dimension

aten = torch.ops.aten

DEQUANTIZE_AFFINE = "torchao.dequantize_affine.default"
QUANTIZE_AFFINE = "torchao.quantize_affine.default"
CHOOSE_AFFINE = "torchao.choose_qparams_affine.default"
_ZERO_POINT_DTYPE = 8
"""The place of this argument of ``choose_qparams_affine``."""


def rewrite_affine(editor: Editor, node: Node) -> None:
    """Replaces ``dequantize_affine`` of a weight by the pack's op, or with its quantization by arithmetic."""
    op = arguments_of(node)
    data, scale = constant_of(op.input), constant_of(op.scale)
    zero_point = None if op.zero_point is None else constant_of(op.zero_point)
    if data is None and isinstance(op.input, Node):
        _rewrite_rounding(editor, node)
    if data is None or scale is None or data.dtype is not torch.int8:
        return
    if op.zero_point is not None and zero_point is None:
        return
    low, high = op.quant_min, op.quant_max
    is_small = low is not None and high is not None and low >= -8 and high <= 7
    blocks = [size // block for size, block in zip(data.shape, op.block_size, strict=True)]
    scale = scale.to(torch.float32).reshape(blocks)
    scales = along_one_dimension(scale, data.shape)
    made = Weight("INT4" if is_small else "INT8", data.contiguous(), scales)
    if zero_point is None or not bool(zero_point.any()):
        editor.replace(node, made.node(editor, node, node.meta["val"].dtype))
        return
    layers = _linear_layers(node)
    if layers is None or len(blocks) != 2 or blocks[0] != data.shape[0]:
        leave(
            node, "TensorRT has no zero points, and ordinary layers compute those of linear layers"
        )
        return
    _add_zero_points(editor, layers, made, -scale * zero_point.reshape(blocks).to(torch.float32))


def _linear_layers(node: Node) -> list[Node] | None:
    """Returns the linear layers whose weight a node is, perhaps in another dtype; ``None`` if others read it."""
    linear_layers: list[Node] = []
    for user in node.users:
        if user.target in CASTS:
            layers = _linear_layers(user)
            if layers is None:
                return None
            linear_layers += layers
        elif user.target is aten.linear.default and user.args.index(node) == 1:
            linear_layers.append(user)
        else:
            return None
    return linear_layers


def _add_zero_points(
    editor: Editor, layers: list[Node], weight: Weight, offset: torch.Tensor
) -> None:
    """Replaces linear layers by those of a weight without zero points, and adds the part of these in float32.

    Args:
        editor: Of the graph.
        layers: The linear layers.
        weight: Their weight, as if its zero points were 0.
        offset: What they add to the weights of each group, float32 ``(out, groups)``.
    """
    for linear in layers:
        x, dtype = linear.args[0], linear.meta["val"].dtype
        own: Any = linear.args[1]
        bias = linear.args[2] if len(linear.args) > 2 else linear.kwargs.get("bias")
        symmetric = weight.node(editor, linear, own.meta["val"].dtype)
        product = editor.call(aten.linear.default, (x, symmetric), linear)
        groups = [offset.shape[1], weight.data.shape[1] // offset.shape[1]]
        wide = cast(editor, x, torch.float32, linear)
        parts = editor.call(aten.unflatten.int, (wide, -1, groups), linear)
        sums = editor.call(aten.sum.dim_IntList, (parts, [-1]), linear)
        if bias is not None:
            bias = cast(editor, bias, torch.float32, linear)
        further = (sums, editor.constant(offset, linear), bias)
        rest = editor.call(aten.linear.default, further, linear)
        product = cast(editor, product, torch.float32, linear)
        result = editor.call(aten.add.Tensor, (product, rest), linear)
        editor.replace(linear, cast(editor, result, dtype, linear))


def by_row(block: Any, shape: Any) -> bool:
    """Returns whether each row of the last dimension is a block."""
    return [*block] == [1] * (len(shape) - 1) + [shape[-1]]


def is_whole(block: Any, shape: Any) -> bool:
    """Returns whether a tensor is one block."""
    return all(value_of(part) == size for part, size in zip(block, shape, strict=True))


def spread_by_row(editor: Editor, values: Node, rank: int, before: Node) -> Node | None:
    """Returns the numbers of rows so that they broadcast with a tensor of some rank, or ``None``."""
    if values.meta["val"].dim() == rank - 1:
        return editor.call(aten.unsqueeze.default, (values, -1), before)
    return values if values.meta["val"].dim() == rank else None


def _rewrite_rounding(editor: Editor, node: Node) -> None:
    """Replaces ``dequantize_affine`` of ``quantize_affine`` with computed zero points, by rows, by arithmetic.

    TensorRT's int8 is what its layers have quantized, symmetrically, so that the integers stay floating point.
    """
    op = arguments_of(node)
    if qualified_name(op.input.target) != QUANTIZE_AFFINE:
        return
    source = arguments_of(op.input)
    x = source.input.meta["val"]
    same = ("block_size", "scale", "zero_point", "quant_min", "quant_max")
    if any(getattr(op, name) != getattr(source, name) for name in same):
        return
    zero = _wide_zero_point(editor, op.zero_point, node)
    if zero is None or not by_row(op.block_size, x.shape):
        return
    zero = spread_by_row(editor, zero, x.dim(), node)
    scale = spread_by_row(editor, op.scale, x.dim(), node)
    if zero is None or scale is None:
        return
    dtype = node.meta["val"].dtype
    zero = editor.call(aten._to_copy.default, (zero,), node, {"dtype": torch.float32})
    factor = editor.call(aten.reciprocal.default, (scale,), node)
    steps = editor.call(aten.mul.Tensor, (source.input, factor), node)
    steps = editor.call(aten.round.default, (steps,), node)
    steps = editor.call(aten.add.Tensor, (steps, zero), node)
    steps = editor.call(aten.clamp.default, (steps, op.quant_min, op.quant_max), node)
    made = editor.call(aten.sub.Tensor, (steps, zero), node)
    made = editor.call(aten._to_copy.default, (made,), node, {"dtype": dtype})
    made = editor.call(aten.mul.Tensor, (made, scale), node)
    if made.meta["val"].dtype is not dtype:
        made = editor.call(aten._to_copy.default, (made,), node, {"dtype": dtype})
    editor.replace(node, made)


def _wide_zero_point(editor: Editor, zero_point: Any, before: Node) -> Node | None:
    """Returns zero points that the model computes as int8, as int32."""
    choice = zero_point.args[0] if isinstance(zero_point, Node) and zero_point.args else None
    if not isinstance(choice, Node) or qualified_name(choice.target) != CHOOSE_AFFINE:
        return None
    if len(choice.args) <= _ZERO_POINT_DTYPE or zero_point.args[1] != 1:
        return None
    args = list(choice.args)
    args[_ZERO_POINT_DTYPE] = torch.int32
    made = editor.call(choice.target, tuple(args), before, dict(choice.kwargs))
    return editor.call(operator.getitem, (made, 1), before)
