"""The ops of NVIDIA's ModelOpt, which need not be installed: they are known by their names.

``tensorrt::quantize_op`` quantizes and dequantizes by a largest magnitude, and ``tensorrt::dynamic_block_quantize_op``
by blocks whose scales it computes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torchtrt.conversion import arguments_of, constant_of, value_of
from torchtrt_converters_quantization.formats import FP4_LIMIT, FP8_LIMIT
from torchtrt_converters_quantization.ops import FAKE_QUANTIZE, FAKE_QUANTIZE_BLOCKS
from torchtrt_converters_quantization.passes.graphs import (
    RESHAPES,
    Editor,
    cast,
    computed_on,
    leave,
    only_user,
)
from torchtrt_converters_quantization.passes.weights import (
    Weight,
    fits_blocks,
    floats,
    in_blocks,
    integers,
)

aten = torch.ops.aten

STATIC = "tensorrt.quantize_op.default"
DYNAMIC = (
    "tensorrt.dynamic_block_quantize_op.default",
    "tensorrt.dynamic_block_quantize_op.overload",
)
_STATIC_FORMS = {(8, 0): "INT8", (4, 0): "INT4", (8, 4): "FP8"}
_DYNAMIC_FORMS = {(4, 2, 8, 4, 16): "NVFP4", (8, 4, 9, 8, 32): "MXFP8"}


def rewrite_static(editor: Editor, node: Node) -> None:
    """Replaces ``quantize_op`` by the pack's ops, or leaves it to PyTorch with the reason."""
    op = arguments_of(node)
    form = _STATIC_FORMS.get((op.num_bits, op.exponent_bits))
    maximum = editor.computed_constant(op.amax)
    if form is None or op.unsigned:
        sign = "unsigned " if op.unsigned else ""
        leave(node, f"TensorRT has no {sign}format of {op.num_bits} bits like this one")
    elif maximum is None:
        _rewrite_computed(editor, node, form)
    elif (weight := editor.computed_constant(op.input)) is not None:
        _rewrite_weight(editor, node, form, weight, maximum)
    elif maximum.numel() != 1 or form == "INT4":
        reason = "TensorRT has scales for channels, and INT4, for weights only"
        leave(node, reason)
    else:
        bound = FP8_LIMIT if form == "FP8" else 127.0
        scale = _positive(maximum.to(torch.float32).reshape(())) / bound
        least = -127 if op.narrow_range else -128
        args = (op.input, editor.constant(scale, node), least)
        editor.replace(node, editor.call(FAKE_QUANTIZE[form], args, node))


def _rewrite_computed(editor: Editor, node: Node, form: str) -> None:
    """Replaces the quantization by a largest magnitude that the model computes, of all values or of each token.

    Ordinary layers scale the values, and a Quantize layer of scale 1 rounds them.
    """
    op = arguments_of(node)
    amax, rank = op.amax.meta["val"], op.input.meta["val"].dim()
    if form == "INT4" or not (amax.numel() == 1 or amax.dim() == rank):
        leave(
            node,
            "TensorRT has INT4 for weights only, and magnitudes of all values or of the rank of the input",
        )
        return

    def call(target: Any, *args: Any) -> Node:
        return editor.call(target, args, node)

    def number(value: float) -> Node:
        return editor.constant(torch.tensor(value), node)

    maximum = cast(editor, op.amax, torch.float32, node)
    if amax.numel() == 1 and amax.dim() != rank:
        maximum = call(aten.reshape.default, maximum, [])
    is_tiny = call(aten.le.Scalar, maximum, 2.0**-24)
    largest = call(aten.where.self, is_tiny, number(1.0), maximum)
    bound = FP8_LIMIT if form == "FP8" else 127.0
    factor = call(aten.div.Tensor, number(bound), largest)
    used = factor
    if form == "INT8":  # ModelOpt makes zeros of these
        used = call(aten.where.self, is_tiny, number(0.0), factor)
    values = call(aten.mul.Tensor, cast(editor, op.input, torch.float32, node), used)
    least = -127 if op.narrow_range else -128
    steps = call(FAKE_QUANTIZE[form], values, number(1.0), least)
    if form == "FP8":
        result = call(aten.mul.Tensor, steps, call(aten.reciprocal.default, factor))
    else:
        result = call(aten.div.Tensor, steps, factor)
    editor.replace(node, cast(editor, result, node.meta["val"].dtype, node))


def _positive(maximum: Tensor) -> Tensor:
    return torch.where(maximum <= 2.0**-24, 1.0, maximum)


def _rewrite_weight(editor: Editor, node: Node, form: str, weight: Tensor, maximum: Tensor) -> None:
    """Replaces the quantization of a constant weight by quantized constants and one op that dequantizes them.

    The node stays as it is, with a warning, where its largest magnitudes do not fit the weight.
    """
    if maximum.numel() != 1 and maximum.dim() != weight.dim():
        leave(node, "its largest magnitudes are of another rank than the weight")
        return
    op = arguments_of(node)
    if form == "FP8":
        data, scale = floats(weight, maximum)
    else:
        data, scale = integers(weight, maximum, op.num_bits, op.narrow_range)
    if scale.numel() == 1:
        scale = scale.reshape(())
    last, data, scale = _in_shape_of_weight(node, data, scale)
    made = Weight(form, data.contiguous(), scale).node(editor, last, last.meta["val"].dtype)
    editor.replace(last, made)


def _in_shape_of_weight(node: Node, data: Tensor, scale: Tensor) -> tuple[Node, Tensor, Tensor]:
    """Returns the node at which a weight has its own shape again, and the weight and its scales in it.

    ModelOpt quantizes blocks as the rows of a matrix, and pads the last of each row of the weight.
    """
    rows, block = (data.shape[0], data.shape[-1]) if data.dim() == 2 else (0, 0)
    steps: list[Node] = []
    last = node
    while (user := only_user(last)) is not None and (
        user.target in RESHAPES or user.target is aten.slice.Tensor
    ):
        steps.append(user)
        last = user
    shape = last.meta["val"].shape
    if not steps or not rows or scale.shape != (rows, 1) or len(shape) < 2:
        return node, data, scale
    width = shape[-1]
    count = math.prod(shape[:-1])
    probe = torch.arange(data.numel(), dtype=torch.int32).reshape(data.shape)
    wanted = probe.reshape(count, -1)[:, :width].reshape(shape)
    if rows % count or not torch.equal(computed_on(steps, node, probe), wanted):
        return node, data, scale
    part = width if block >= width else math.gcd(block, width)
    scales = scale.reshape(count, -1).repeat_interleave(block // part, 1)[:, : width // part]
    data = data.reshape(count, -1)[:, :width]
    return last, data.reshape(shape), scales.reshape(*shape[:-1], -1)


def rewrite_dynamic(editor: Editor, node: Node) -> None:
    """Replaces ``dynamic_block_quantize_op`` likewise."""
    op = arguments_of(node)
    form = _DYNAMIC_FORMS.get(
        (
            op.num_bits,
            op.exponent_bits,
            op.scale_num_bits,
            op.scale_exponent_bits,
            op.block_size,
        )
    )
    maximum = constant_of(op.amax) if op.amax is not None else torch.ones(())
    shape = value_of(op.input).shape
    if form is None:
        leave(node, "TensorRT has NVFP4 with blocks of 16, and MXFP8 with blocks of 32")
    elif maximum is None:
        leave(node, "TensorRT takes scales that are known when the engine is built")
    elif not fits_blocks(shape, form):
        leave(node, f"blocks of {op.block_size} do not divide the last dimension")
    else:
        double = _positive(maximum.to(torch.float32).amax()) / (FP4_LIMIT * FP8_LIMIT)
        weight = editor.computed_constant(op.input)
        if weight is not None:
            made = in_blocks(weight, form, double).node(editor, node, weight.dtype)
        else:
            args: tuple[Any, ...] = (op.input, editor.constant(double, node))
            made = editor.call(FAKE_QUANTIZE_BLOCKS[form], args, node)
        editor.replace(node, made)


__all__ = ["DYNAMIC", "STATIC", "rewrite_dynamic", "rewrite_static"]
