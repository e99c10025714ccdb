"""Traces functions of tensors into a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from torchtrt_converters_complex.torch_internals import python_dispatcher, pytree

aten = torch.ops.aten

_IN_PLACE = {
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.transpose_.default: aten.transpose.int,
}
"""How PyTorch's own transforms turn what is theirs alone, and the same as views."""
_KEPT_META = ("stack_trace", "nn_module_stack")


def fake_mode_of(graph_module: GraphModule) -> Any:
    """Returns the mode of a graph's fake tensors, or None for a graph without tensors."""
    leaves = (
        leaf
        for node in graph_module.graph.nodes
        for leaf in pytree.tree_leaves(node.meta.get("val"))
    )
    return next((leaf.fake_mode for leaf in leaves if hasattr(leaf, "fake_mode")), None)


def trace(
    mode: Any, function: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[GraphModule, list[Node], Any]:
    """Traces a function over the values of nodes.

    Args:
        mode: The mode of the fake tensors.
        function: The function of tensors and numbers; it may return pairs and lists.
        args: Its arguments, nodes in place of tensors and sizes.
        kwargs: Its keyword arguments, likewise.

    Returns:
        A graph of functional ops, the nodes that its placeholders stand for, and how its results nest.
    """
    from torchtrt_compiler.lowering.functionalization import rewrite_writes
    from torchtrt_compiler.torch_internals import trace_function

    leaves, tree = pytree.tree_flatten((args, kwargs))
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
    positions = {source: index for index, source in enumerate(sources)}
    nesting: list[Any] = []

    def traced(*values: Any) -> list[Any]:
        filled = [values[positions[leaf]] if isinstance(leaf, Node) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, tree)
        results, spec = pytree.tree_flatten(function(*args, **kwargs))
        nesting[:] = [spec]
        return results

    values = [source.meta["val"] for source in sources]
    # The dispatcher in Python accepts symbolic sizes where the one in C++ needs numbers.
    with torch.no_grad(), mode, python_dispatcher():
        parts = trace_function(traced, values)
        for part in parts.graph.nodes:
            part.target = _IN_PLACE.get(part.target, part.target)
        if not rewrite_writes(parts.graph):
            parts = trace_function(torch.func.functionalize(traced), values)
    for placeholder, value in zip(parts.graph.find_nodes(op="placeholder"), values, strict=True):
        placeholder.meta["val"] = value
    return parts, sources, nesting[0]


def inline(
    graph_module: GraphModule, before: Node, parts: GraphModule, sources: list[Node], nesting: Any
) -> Any:
    """Copies a traced graph into another one, and returns the nodes of its results, nested as they were returned."""
    graph = graph_module.graph
    placeholders = parts.graph.find_nodes(op="placeholder")
    env: dict[Node, Node] = dict(zip(placeholders, sources, strict=True))
    kept = {key: before.meta[key] for key in _KEPT_META if key in before.meta}
    with graph.inserting_before(before):
        for part in parts.graph.nodes:
            if part.op == "call_function":
                env[part] = graph.node_copy(part, env.__getitem__)
                env[part].meta.update(kept)
            elif part.op == "get_attr":
                value = getattr(parts, part.target)
                name = free_name(graph_module)
                setattr(graph_module, name, value)
                env[part] = graph.create_node("get_attr", name)
                env[part].meta["val"] = part.meta.get("val", value)
            elif part.op == "output":
                results = [
                    env[output] if isinstance(output, Node) else output for output in part.args[0]
                ]
    return pytree.tree_unflatten(results, nesting)


def emit(
    graph_module: GraphModule, before: Node, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Adds what a function computes of nodes to a graph, before a node, and returns the nodes of its results."""
    parts, sources, nesting = trace(fake_mode_of(graph_module), function, args, kwargs)
    return inline(graph_module, before, parts, sources, nesting)


def add_constant(graph_module: GraphModule, before: Node, value: Tensor) -> Node:
    """Returns a new node that holds a tensor."""
    name = free_name(graph_module)
    value = value.detach().contiguous()
    setattr(graph_module, name, value)
    with graph_module.graph.inserting_before(before):
        node = graph_module.graph.create_node("get_attr", name)
    with fake_mode_of(graph_module):
        node.meta["val"] = torch.empty(value.shape, dtype=value.dtype, device=value.device)
    return node


def free_name(graph_module: GraphModule) -> str:
    """Returns a name that no attribute of a graph module has."""
    number = 0
    while hasattr(graph_module, f"_complex_part_{number}"):
        number += 1
    return f"_complex_part_{number}"
