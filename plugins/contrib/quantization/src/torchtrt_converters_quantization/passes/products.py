"""Products of quantized values, as ``aten._int_mm`` and ``aten._scaled_mm``: torchao's inputs with computed scales.

A Quantize layer with the scale 1 rounds what the model has divided, and TensorRT multiplies the results in the type.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torchtrt.conversion import arguments_of, constant_of
from torchtrt.targets import qualified_name
from torchtrt_converters_quantization.ops import FAKE_QUANTIZE
from torchtrt_converters_quantization.passes.graphs import (
    CASTS,
    RESHAPES,
    Editor,
    cast,
    only_user,
)
from torchtrt_converters_quantization.passes.rounding import is_limited
from torchtrt_converters_quantization.passes.torchao import (
    CHOOSE_AFFINE,
    QUANTIZE_AFFINE,
    by_row,
    is_whole,
    spread_by_row,
)
from torchtrt_converters_quantization.passes.weights import Weight

aten = torch.ops.aten

INTEGERS = "aten._int_mm.default"
SCALED = "aten._scaled_mm.default"
BYTES = "quanto.qbytes_mm.default"
_FORMS = {torch.int8: "INT8", torch.float8_e4m3fn: "FP8"}
_SHIFT = 128


def rewrite_integers(editor: Editor, node: Node) -> None:
    """Replaces ``_int_mm`` with a weight, and the cast of its result, by ``linear`` of rounded numbers."""
    weight = editor.computed_constant(node.args[1])
    source: Any = node.args[0]
    last: Node | None = node
    if weight is None or weight.dtype is not torch.int8:
        return
    shifted = _before_shift(source)
    if shifted is not None:  # PyTorch multiplies unsigned numbers on a CPU
        source, last = shifted, _after_shift(editor, node, weight)
    result = None if last is None else only_user(last)
    if result is None or result.target not in CASTS or not _is_float(result):
        return
    steps = _steps(editor, source, torch.float32, node)
    if steps is None:
        return
    one = torch.ones((), dtype=torch.float32, device=weight.device)
    dense = Weight("INT8", weight.t().contiguous(), one).node(editor, node, torch.float32)
    made = editor.call(aten.linear.default, (steps, dense), result)
    _replace_typed(editor, result, made)


def rewrite_scaled(editor: Editor, node: Node) -> None:
    """Replaces ``_scaled_mm`` of E4M3 with a weight by ``linear`` of rounded numbers, scaled."""
    op = arguments_of(node)
    weight, weight_scale = editor.computed_constant(op.mat2), editor.computed_constant(op.scale_b)
    dtype = node.meta["val"].dtype
    if weight is None or weight_scale is None or weight.dtype is not torch.float8_e4m3fn:
        return
    rows, scales = op.scale_a.meta["val"], weight_scale.to(torch.float32)
    is_by_row = scales.dim() == 2 and scales.shape == (1, weight.shape[1])
    if op.scale_result is not None or not (scales.numel() == 1 or is_by_row):
        return
    if rows.numel() != 1 and rows.shape != (op.self.meta["val"].shape[0], 1):
        return
    product = torch.float32 if dtype is torch.float16 else dtype
    steps = _steps(editor, op.self, product, node)
    if steps is None:
        return
    scales = scales.reshape(()) if scales.numel() == 1 else scales.t().contiguous()
    dense = Weight("FP8", weight.t().contiguous(), scales).node(editor, node, product)
    made = editor.call(aten.linear.default, (steps, dense), node)
    made = editor.call(aten.mul.Tensor, (made, op.scale_a), node)
    if op.bias is not None:
        made = editor.call(aten.add.Tensor, (made, op.bias), node)
    _replace_typed(editor, node, made)


def rewrite_bytes(editor: Editor, node: Node) -> None:
    """Replaces ``qbytes_mm`` of quanto with a weight of 8 bits by ``linear``."""
    x, weight, scale = node.args[0], *map(editor.computed_constant, node.args[1:3])
    form = None if weight is None else _FORMS.get(weight.dtype)
    if form is None or weight is None or scale is None or not _is_float(x):
        return
    if scale.numel() != 1 and scale.shape != (weight.shape[0], 1):
        return
    dtype = node.meta["val"].dtype
    dense = Weight(form, weight.contiguous(), scale.reshape(()) if scale.numel() == 1 else scale)
    wanted = dense.node(editor, node, dtype)
    editor.replace(
        node, editor.call(aten.linear.default, (cast(editor, x, dtype, node), wanted), node)
    )


def _replace_typed(editor: Editor, node: Node, made: Node) -> None:
    dtype = node.meta["val"].dtype
    if made.meta["val"].dtype is not dtype:
        made = editor.call(aten._to_copy.default, (made,), node, {"dtype": dtype})
    editor.replace(node, made)


def _is_float(node: Any) -> bool:
    return bool(node.meta["val"].dtype in (torch.float32, torch.float16, torch.bfloat16))


def _before_shift(node: Node) -> Node | None:
    """Returns the int8 values of ``(values.to(int32) + 128).to(uint8)``."""
    if node.target not in CASTS or node.meta["val"].dtype is not torch.uint8:
        return None
    added: Any = node.args[0]
    if added.target is not aten.add.Tensor or added.args[1] != _SHIFT or added.kwargs:
        return None
    wide: Any = added.args[0]
    if wide.target not in CASTS or wide.meta["val"].dtype is not torch.int32:
        return None
    return wide.args[0] if isinstance(wide.args[0], Node) else None


def _after_shift(editor: Editor, node: Node, weight: Tensor) -> Node | None:
    """Returns what subtracts the part of a product that a shift of its input has added."""
    user = only_user(node)
    if user is None or user.target not in (aten.sub.Tensor, aten.sub_.Tensor):
        return None
    if user.args[0] is not node or user.kwargs:
        return None
    part = editor.computed_constant(user.args[1])
    added = _SHIFT * weight.sum(0, keepdim=True, dtype=torch.int32)
    # Of other weights the parts may be others, and only the answer has to be the same.
    return user if part is not None and bool((part.reshape(added.shape) == added).all()) else None


def _steps(editor: Editor, node: Node, dtype: torch.dtype, before: Node) -> Node | None:
    """Returns the floating-point values of quantized ones that the network computes."""
    if node.target in RESHAPES:
        source: Any = node.args[0]
        steps = _steps(editor, source, dtype, before)
        if steps is None:
            return None
        return editor.call(node.target, (steps, *node.args[1:]), before, dict(node.kwargs))
    if qualified_name(node.target) == QUANTIZE_AFFINE:
        return _affine_steps(editor, node, dtype, before)
    if node.target in CASTS and node.meta["val"].dtype is torch.float8_e4m3fn:
        limited: Any = node.args[0]
        if is_limited(limited) and _is_float(limited):  # which the layer does by itself
            return _rounded(editor, "FP8", limited.args[0], dtype, before)
    return None


def _rounded(editor: Editor, form: str, values: Node, dtype: torch.dtype, before: Node) -> Node:
    one = editor.constant(torch.ones((), dtype=torch.float32), before)
    return editor.call(FAKE_QUANTIZE[form], (values, one, -128, dtype), before)


def _affine_steps(editor: Editor, node: Node, dtype: torch.dtype, before: Node) -> Node | None:
    """Returns the values of ``quantize_affine`` to int8 by rows, or of a whole, if their zero points are 0."""
    op = arguments_of(node)
    shape = op.input.meta["val"].shape
    is_int8 = op.output_dtype is torch.int8 and (op.quant_min, op.quant_max) == (-128, 127)
    if not is_int8 or not _is_symmetric(op.zero_point):
        return None
    scale: Node | None = None
    if by_row(op.block_size, shape):
        scale = spread_by_row(editor, op.scale, len(shape), before)
    elif is_whole(op.block_size, shape) and op.scale.meta["val"].numel() == 1:
        scale = op.scale
    if scale is None:
        return None
    factor = editor.call(aten.reciprocal.default, (scale,), before)
    values = editor.call(aten.mul.Tensor, (op.input, factor), before)
    return _rounded(editor, "INT8", values, dtype, before)


def _is_symmetric(zero_point: Any) -> bool:
    """Returns whether zero points are 0: known, or those of a symmetric choice."""
    if zero_point is None:
        return True
    constant = constant_of(zero_point)
    if constant is not None:
        return not bool(constant.any())
    choice = zero_point.args[0] if zero_point.args else None
    if not isinstance(choice, Node) or qualified_name(choice.target) != CHOOSE_AFFINE:
        return False
    return bool(arguments_of(choice).mapping_type == "SYMMETRIC")


__all__ = ["BYTES", "INTEGERS", "SCALED", "rewrite_bytes", "rewrite_integers", "rewrite_scaled"]
