"""The pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of, constant_of
from torchtrt.packs import AutocastRule
from torchtrt.registry import RejectionCode
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt_converters_quantization import pack
from torchtrt_converters_quantization.converters.formats import (
    lacks_format,
    no_blocks,
    no_positive_scale,
    no_weight,
    unfit_blocks,
    unknown_scale,
)
from torchtrt_converters_quantization.ops import (
    DEQUANTIZE,
    FAKE_QUANTIZE,
    FAKE_QUANTIZE_BLOCKS,
    FORMAT_OF,
)
from torchtrt_converters_quantization.passes.conversions import (
    is_conversion,
    rewrite_conversion,
    use_linear,
)
from torchtrt_converters_quantization.passes.graphs import CASTS, Editor, leave
from torchtrt_converters_quantization.passes.modelopt import (
    DYNAMIC,
    STATIC,
    rewrite_dynamic,
    rewrite_static,
)
from torchtrt_converters_quantization.passes.products import (
    BYTES,
    INTEGERS,
    SCALED,
    rewrite_bytes,
    rewrite_integers,
    rewrite_scaled,
)
from torchtrt_converters_quantization.passes.rounding import is_rounding, rewrite_rounding
from torchtrt_converters_quantization.passes.torchao import DEQUANTIZE_AFFINE, rewrite_affine
from torchtrt_converters_quantization.torch_internals import OpOverload

_REWRITES = {
    STATIC: rewrite_static,
    **dict.fromkeys(DYNAMIC, rewrite_dynamic),
    DEQUANTIZE_AFFINE: rewrite_affine,
    INTEGERS: rewrite_integers,
    SCALED: rewrite_scaled,
    BYTES: rewrite_bytes,
}
_EXPORTED = "quantized_decomposed"
_EXPORTED_DEQUANTIZE = (
    f"{_EXPORTED}.dequantize_per_tensor.default",
    f"{_EXPORTED}.dequantize_per_tensor.tensor",
    f"{_EXPORTED}.dequantize_per_channel.default",
)
_EXPORTED_QUANTIZE = tuple(name.replace("dequantize", "quantize") for name in _EXPORTED_DEQUANTIZE)
# A Quantize reads any precision, and what lies between it and the product before is of that product's.
pack.autocast_rule(
    AutocastRule.PROMOTE,
    *FAKE_QUANTIZE.values(),
    *FAKE_QUANTIZE_BLOCKS.values(),
    *(name.replace(".", "::", 1) for name in (STATIC, *DYNAMIC)),
    torch.ops.aten.fake_quantize_per_tensor_affine.default,
    torch.ops.aten.fake_quantize_per_channel_affine.default,
)
pack.disable_constant_folding(*(name.replace(".", "::", 1) for name in _REWRITES))
_CHECKS = {
    **dict.fromkeys(DEQUANTIZE.values(), (lacks_format, no_weight, no_positive_scale, no_blocks)),
    **dict.fromkeys(FAKE_QUANTIZE.values(), (lacks_format, unknown_scale, no_positive_scale)),
    **dict.fromkeys(
        FAKE_QUANTIZE_BLOCKS.values(),
        (lacks_format, unknown_scale, no_positive_scale, unfit_blocks),
    ),
}


@pack.lowering_pass(ops=_REWRITES)
def quantization(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Makes ops of ``torchtrt_quantization`` of every library's quantization, with packed weights."""
    editor = Editor(graph_module)
    for node in list(graph_module.graph.nodes):
        if node.op != "call_function" or node.graph is not graph_module.graph:
            continue
        if isinstance(node.target, OpOverload):
            _rewrite(editor, node)
    _drop_unused(graph_module)
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function":
            use_linear(editor, node)
    _drop_unused(graph_module)
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function":
            _absorb_cast(editor, node)
            _quantize_before_cast(node)
    for node in list(graph_module.graph.nodes):
        if node.target in FORMAT_OF:
            _fit(editor, node, settings)
    _drop_unused(graph_module)


def _drop_unused(graph_module: GraphModule) -> None:
    graph_module.graph.eliminate_dead_code()


def _rewrite(editor: Editor, node: Node) -> None:
    if node._erased:
        return
    rewrite = _REWRITES.get(qualified_name(node.target))
    if rewrite is not None:
        rewrite(editor, node)
    elif is_conversion(node):
        rewrite_conversion(editor, node)
    elif is_rounding(node):
        rewrite_rounding(editor, node)


def _absorb_cast(editor: Editor, node: Node) -> None:
    """Lets Dequantize return the dtype to which all of its readers cast."""
    is_exported = str(node.target) in _EXPORTED_DEQUANTIZE
    if node.target not in DEQUANTIZE.values() and not is_exported:
        return
    casts = [user for user in node.users if user.target in CASTS]
    dtypes = {cast.meta["val"].dtype for cast in casts}
    if len(casts) != len(node.users) or len(dtypes) != 1:
        return
    (dtype,) = dtypes
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return
    if is_exported:
        made = editor.call(node.target, node.args, node, {**node.kwargs, "out_dtype": dtype})
    else:
        op = arguments_of(node)
        made = editor.call(node.target, (op.data, op.scale, dtype), node)
    for cast in casts:
        editor.replace(cast, made)


def _quantize_before_cast(node: Node) -> None:
    """Lets Quantize read float16 or bfloat16 where it is cast to float32, which Quantize computes in anyway."""
    if str(node.target) not in _EXPORTED_QUANTIZE:
        return
    cast = node.args[0]
    if not isinstance(cast, Node) or cast.target not in CASTS:
        return
    source: Any = cast.args[0]
    is_widened = isinstance(source, Node) and (
        source.meta["val"].dtype in (torch.float16, torch.bfloat16)
        and cast.meta["val"].dtype is torch.float32
    )
    if is_widened:
        node.replace_input_with(cast, source)


def _fit(editor: Editor, node: Node, settings: CompilationSettings) -> None:
    """Leaves a node to PyTorch that the TensorRT in use has no layer for, or computes a weight of it now."""
    reason = next(filter(None, (check(node) for check in _CHECKS[node.target])), None)
    if reason is None:
        return
    if settings.allow_dequantized_weights and node.target in DEQUANTIZE.values():
        op = arguments_of(node)
        data, scale = constant_of(op.data), constant_of(op.scale)
        if data is not None and scale is not None:
            dequantize: Any = node.target
            value = dequantize(data, scale, op.dtype)
            editor.replace(node, editor.constant(value, node))
            return
    advice = ""
    if node.target in DEQUANTIZE.values():
        advice = ". allow_dequantized_weights=True compiles the weights in floating point"
    is_lacking = lacks_format(node) is not None
    code: RejectionCode = "tensorrt-capability" if is_lacking else "declined"
    leave(node, reason.removesuffix(".") + advice, code)
