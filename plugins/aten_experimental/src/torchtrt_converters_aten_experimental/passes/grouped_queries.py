"""Heads of keys and values that are repeated for the queries that share them.

Exporters write grouped-query attention as copies: ``key[:, :, None].expand(...).reshape(...)`` in transformers, or
``repeat_interleave``. TensorRT's attention reads each head where it is.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks.attention import WHOLE
from torchtrt_blocks.sizes import have_same_sizes
from torchtrt_converters_aten_experimental import pack
from torchtrt_converters_aten_experimental.converters.attention import unlike_fused_attention

aten = torch.ops.aten

_MERGES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_COPIES = (aten.clone.default, aten.contiguous.default)


@pack.lowering_pass()
def grouped_queries(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Gives attention the keys and values before their heads are repeated, where one layer computes it."""
    if not supports(Capability.ATTENTION) or WHOLE in settings.torch_executed_ops:
        return
    graph = graph_module.graph
    for node in graph.find_nodes(op="call_function", target=WHOLE):
        op = arguments_of(node)
        key, value = unrepeated(op.key), unrepeated(op.value)
        if op.enable_gqa or key is None or value is None:
            continue
        if key.meta["val"].shape[1] != value.meta["val"].shape[1]:
            continue
        before = node.args, node.kwargs
        node.args, node.kwargs = (), {**vars(op), "key": key, "value": value, "enable_gqa": True}
        if unlike_fused_attention(node) is not None:
            node.args, node.kwargs = before
    graph.eliminate_dead_code()


def unrepeated(node: Any) -> Node | None:
    """Returns the tensor ``(batch, heads, length, width)`` whose heads a node repeats, each several times in a row.

    Returns:
        None if the node does something else.
    """
    node = _original(node)
    if not isinstance(node, Node) or node.op != "call_function":
        return None
    if node.target is aten.repeat_interleave.self_int:
        op = arguments_of(node)
        is_heads = op.dim in (1, -3) and isinstance(op.repeats, int)
        return op.self if is_heads and _is_of_heads(op.self) else None
    if node.target not in _MERGES:
        return None
    expanded = _original(node.args[0])
    if not isinstance(expanded, Node) or expanded.target is not aten.expand.default:
        return None
    wide = _original(expanded.args[0])
    if not isinstance(wide, Node) or wide.target is not aten.unsqueeze.default:
        return None
    source, dim = _original(wide.args[0]), wide.args[1]
    if not isinstance(source, Node) or not _is_of_heads(source) or dim not in (2, -3):
        return None
    batch, heads, times, *rest = expanded.meta["val"].shape
    if not isinstance(heads, int) or not isinstance(times, int):
        return None
    is_spread = have_same_sizes(source.meta["val"].shape, (batch, heads, *rest))
    is_merged = have_same_sizes(node.meta["val"].shape, (batch, heads * times, *rest))
    return source if is_spread and is_merged else None


def _original(node: Any) -> Any:
    """Returns the node that a node copies as it is, or the node itself."""
    while isinstance(node, Node) and (node.target in _COPIES or _is_whole_slice(node)):
        node = node.args[0]
    return node


def _is_whole_slice(node: Node) -> bool:
    if node.target is not aten.slice.Tensor:
        return False
    op = arguments_of(node)
    is_open = op.end is None or (isinstance(op.end, int) and op.end >= sys.maxsize)
    return op.start in (None, 0) and op.step == 1 and is_open


def _is_of_heads(node: Node) -> bool:
    """Returns whether a node is a tensor of four dimensions with a known number of heads."""
    shape = node.meta["val"].shape
    return len(shape) == 4 and isinstance(shape[1], int)
