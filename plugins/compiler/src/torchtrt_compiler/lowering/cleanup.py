"""Removes nodes that compute nothing: copies, eval-mode dropout, assertions, casts to the same dtype."""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node, has_side_effect

from torchtrt.graphs.nodes import resolution_of
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.lowering.strides import copy_memory_read_by_strides, is_read_by_strides

aten = torch.ops.aten

_COPIES = frozenset({
    aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default,
    aten.lift_fresh_copy.default,
})  # fmt: skip
_VIEWS = frozenset({aten.view.default, aten._unsafe_view.default})
_CASTS = frozenset({
    aten._to_copy.default, aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.type_as.default,
})  # fmt: skip
_SIZES_AND_RANGES = frozenset({
    aten.sym_size.int, aten.arange.default, aten.arange.start, aten.arange.start_step,
})  # fmt: skip


def remove_no_ops(graph_module: GraphModule) -> None:
    """Removes the graph's no-ops and what is no longer used.

    Copies go: nothing is written between what is copied and its copy, and where a result must be
    memory of its own, ``clone_aliased_outputs`` copies it at the end. They stay where something reads
    memory by strides, and where an input is only copied and returned: that copy is for a converter.

    Raises:
        UnsupportedProgramError: Something reads memory by strides that the graph does not have.
    """
    graph = graph_module.graph
    copy_memory_read_by_strides(graph)
    for node in list(graph.nodes):
        if node.target in _VIEWS:
            node.target = aten.reshape.default  # needs no copy before it to be contiguous
        if node.target in _COPIES and is_read_by_strides(node):
            continue
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            if node.target.namespace == "aten":  # assertions
                graph.erase_node(node)
            else:  # the model calls it for its effect
                has_side_effect(node.target)
        elif _copies_input(node) and not _returns_input(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    _merge_equal_nodes(graph)
    graph.eliminate_dead_code()


def remove_unread(graph: Graph) -> None:
    """Removes converted ops whose results nothing reads.

    They are random ones, which PyTorch keeps because they advance its generator. TensorRT's do not.
    """
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and resolution_of(node):
            graph.erase_node(node)


def _copies_input(node: Node) -> bool:
    if node.target in _COPIES:
        return True
    if node.target is aten.dropout.default:
        return not node.args[2]
    return node.target in _CASTS and _keeps_type(node)


def _keeps_type(node: Node) -> bool:
    values = (
        value_node.meta.get("val")
        for value_node in (node.args[0], node)
        if isinstance(value_node, Node)
    )
    types = [(value.dtype, value.device) for value in values if isinstance(value, torch.Tensor)]
    return len(types) == 2 and types[0] == types[1]


def _returns_input(node: Node) -> bool:
    source = node.args[0]
    return (
        isinstance(source, Node)
        and source.op == "placeholder"
        and any(user.op == "output" for user in node.users)
    )


def _merge_equal_nodes(graph: Graph) -> None:
    """Merges nodes without inputs that make the same value (sizes and ranges asked for again and again)."""
    seen: dict[tuple[object, ...], Node] = {}
    for node in list(graph.nodes):
        if node.target not in _SIZES_AND_RANGES:
            continue
        key = (node.target, node.args, tuple(sorted(node.kwargs.items(), key=lambda item: item[0])))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
