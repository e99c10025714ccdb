"""Projections around attention, in the form for which TensorRT has fast kernels.

PyTorch's multi-head attention transposes before it projects, computes query, key and value as one product, splits its
last dimension, brings the new one to the front and selects from it. TensorRT moves transpositions into the product,
which then is many small ones; it projects faster first, and slices of the product's last dimension cost it nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of
from torchtrt.settings import CompilationSettings
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.lowering_pass()
def attention_projections(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Projects before transposing, and slices what was projected as one."""
    graph = graph_module.graph
    for node in graph.find_nodes(op="call_function", target=aten.linear.default):
        _project_first(node)
    for node in graph.find_nodes(op="call_function", target=aten.select.int):
        _slice(node)
    graph.eliminate_dead_code()


def _project_first(node: Node) -> None:
    """Moves a transposition of dimensions that a projection leaves alone behind it."""
    op = arguments_of(node)
    moved = op.input
    if not isinstance(moved, Node) or moved.target is not aten.transpose.int:
        return
    move, rank = arguments_of(moved), moved.meta["val"].dim()
    first, second = move.dim0 % rank, move.dim1 % rank
    if rank - 1 in (first, second):
        return
    graph = node.graph
    with graph.inserting_before(node):
        projected = graph.call_function(aten.linear.default, (move.self, op.weight, op.bias))
        turned = graph.call_function(aten.transpose.int, (projected, first, second))
    projected.meta, turned.meta = dict(node.meta), dict(node.meta)
    projected.meta["val"] = node.meta["val"].transpose(first, second)
    turned.meta["val"] = projected.meta["val"].transpose(first, second)
    node.replace_all_uses_with(turned)


def _slice(node: Node) -> None:
    """Replaces a selection from the parts of a last dimension by a slice of it."""
    packed = _packed(node)
    if packed is None:
        return
    source, start, width = packed
    with node.graph.inserting_before(node):
        part = node.graph.call_function(
            aten.slice.Tensor, (source, source.meta["val"].dim() - 1, start, start + width)
        )
    part.meta = dict(node.meta)
    node.replace_all_uses_with(part)


def _packed(node: Node) -> tuple[Node, int, int] | None:
    """Returns what a selection takes a part of, where the part starts, and its width.

    The steps are ``unflatten(-1, (parts, width)).unsqueeze(0).transpose(0, -2).squeeze(-2)[part]``.
    """
    if len(node.args) != 3 or node.args[1] != 0 or not isinstance(part := node.args[2], int):
        return None
    squeeze = _step(node.args[0], aten.squeeze.dim, dim=-2)
    transpose = _step(squeeze and squeeze.args[0], aten.transpose.int, dim0=0, dim1=-2)
    unsqueeze = _step(transpose and transpose.args[0], aten.unsqueeze.default, dim=0)
    unflatten = _step(unsqueeze and unsqueeze.args[0], aten.unflatten.int, dim=-1)
    if unflatten is None:
        return None
    parts, width = arguments_of(unflatten).sizes
    is_part = isinstance(parts, int) and isinstance(width, int) and 0 <= part < parts
    source = unflatten.args[0]
    return (source, part * width, width) if is_part and isinstance(source, Node) else None


def _step(node: Any, target: Any, **arguments: int) -> Node | None:
    """Returns a node if it calls an op with these arguments, dimensions counted from the end or not."""
    if not isinstance(node, Node) or node.target is not target:
        return None
    op = arguments_of(node)
    rank = node.meta["val"].dim() + (target is aten.squeeze.dim) - (target is aten.unflatten.int)
    for name, wanted in arguments.items():
        if getattr(op, name) % rank != wanted % rank:
            return None
    if target is aten.unflatten.int and len(op.sizes) != 2:
        return None
    return node
