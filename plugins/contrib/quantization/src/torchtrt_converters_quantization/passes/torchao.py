"""The ops of torchao, which need not be installed: they are known by their names."""

from __future__ import annotations

import torch
from torch.fx import Node

from torchtrt.conversion import arguments_of, constant_of
from torchtrt_converters_quantization.passes.graphs import Editor
from torchtrt_converters_quantization.passes.weights import Weight, along_one_dimension

DEQUANTIZE_AFFINE = "torchao.dequantize_affine.default"


def rewrite_affine(editor: Editor, node: Node) -> None:
    """Replaces ``dequantize_affine`` of a symmetric weight by the pack's op."""
    op = arguments_of(node)
    data, scale = constant_of(op.input), constant_of(op.scale)
    zero_point = None if op.zero_point is None else constant_of(op.zero_point)
    if data is None or scale is None or data.dtype is not torch.int8:
        return
    if op.zero_point is not None and (zero_point is None or bool(zero_point.any())):
        return
    low, high = op.quant_min, op.quant_max
    is_small = low is not None and high is not None and low >= -8 and high <= 7
    blocks = [size // block for size, block in zip(data.shape, op.block_size, strict=True)]
    scales = along_one_dimension(scale.to(torch.float32).reshape(blocks), data.shape)
    made = Weight("INT4" if is_small else "INT8", data.contiguous(), scales)
    editor.replace(node, made.node(editor, node, node.meta["val"].dtype))
