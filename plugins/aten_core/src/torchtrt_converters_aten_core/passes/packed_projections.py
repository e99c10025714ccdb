"""Projections that are computed as one and taken apart, as in PyTorch's multi-head attention.

It splits the last dimension, brings the new one to the front and selects from it. TensorRT moves that into the product,
for which it then has slow kernels only; slices of the product's last dimension cost it nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of
from torchtrt.settings import CompilationSettings
from torchtrt_converters_aten_core._pack import pack

aten = torch.ops.aten


@pack.lowering_pass()
def packed_projections(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Replaces selections from the parts of a last dimension by slices of it."""
    graph = graph_module.graph
    for node in graph.find_nodes(op="call_function", target=aten.select.int):
        packed = _packed(node)
        if packed is None:
            continue
        source, width = packed
        start = node.args[2] * width
        with graph.inserting_before(node):
            part = graph.call_function(
                aten.slice.Tensor, (source, source.meta["val"].dim() - 1, start, start + width)
            )
        part.meta = dict(node.meta)
        node.replace_all_uses_with(part)
    graph.eliminate_dead_code()


def _packed(node: Node) -> tuple[Node, int] | None:
    """Returns what a selection takes a part of, and the width of the parts.

    The steps are ``unflatten(-1, (parts, width)).unsqueeze(0).transpose(0, -2).squeeze(-2)[part]``.
    """
    if len(node.args) != 3 or node.args[1] != 0 or not isinstance(node.args[2], int):
        return None
    squeeze = _step(node.args[0], aten.squeeze.dim, dim=-2)
    transpose = _step(squeeze and squeeze.args[0], aten.transpose.int, dim0=0, dim1=-2)
    unsqueeze = _step(transpose and transpose.args[0], aten.unsqueeze.default, dim=0)
    unflatten = _step(unsqueeze and unsqueeze.args[0], aten.unflatten.int, dim=-1)
    if unflatten is None:
        return None
    parts, width = arguments_of(unflatten).sizes
    is_part = isinstance(parts, int) and isinstance(width, int) and 0 <= node.args[2] < parts
    source = unflatten.args[0]
    return (source, width) if is_part and isinstance(source, Node) else None


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
