"""Calls of a graph as PyTorch's files can have them: without notes, and with functions on numbers that files have."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

Call = Callable[..., Node]
"""Adds a function on numbers to a graph."""
_IN_FILES = ("val", "stack_trace", "nn_module_stack")
"""The metadata of nodes that belong in a file: values, and where a node comes from."""


def copy_call(graph: Graph, node: Node, env: Mapping[Node, Any]) -> Node:
    """Adds a call of a function to a graph.

    Args:
        graph: The graph.
        node: The call, in another graph.
        env: The nodes of the graph for those of the other one.
    """
    rewrite = _REWRITTEN.get(node.target)
    operands = [env[argument] if isinstance(argument, Node) else argument for argument in node.args]
    if rewrite is None or not operands or operands[1:] not in ([], [None]):
        return graph.node_copy(node, env.__getitem__)
    return rewrite(partial(_call, graph), operands[0])


def graphs_of(graph: Graph, owner: torch.nn.Module) -> dict[str, Any]:
    """Returns what a graph names: copies of graphs, such as branches, and other attributes as they are."""
    attributes: dict[str, Any] = {}
    for node in graph.find_nodes(op="get_attr"):
        name = str(node.target)
        value = attrgetter(name)(owner)
        attributes[name] = _copied(value) if isinstance(value, GraphModule) else value
    return attributes


def _copied(module: GraphModule) -> GraphModule:
    graph = Graph()
    env: dict[Node, Any] = {}
    for node in module.graph.nodes:
        is_call = node.op == "call_function"
        env[node] = (
            copy_call(graph, node, env) if is_call else graph.node_copy(node, env.__getitem__)
        )
    leave_out_notes(graph)
    return GraphModule(graphs_of(graph, module), graph)


def leave_out_notes(graph: Graph) -> None:
    """Removes from nodes what lowering and front ends noted for themselves."""
    for node in graph.nodes:
        node.meta = {name: value for name, value in node.meta.items() if name in _IN_FILES}


def _call(graph: Graph, function: Callable[..., Any], *operands: Any) -> Node:
    """Returns the node of a call of a function on numbers, with its value."""
    node = graph.call_function(function, operands)
    values = (operand.meta["val"] if isinstance(operand, Node) else operand for operand in operands)
    node.meta["val"] = function(*values)
    return node


def _floor(call: Call, number: Any) -> Node:
    return call(math.trunc, call(operator.floordiv, number, 1))


def _ceiling(call: Call, number: Any) -> Node:
    return call(operator.neg, _floor(call, call(operator.neg, number)))


def _absolute(call: Call, number: Any) -> Node:
    return call(torch.sym_max, number, call(operator.neg, number))


def _rounded(call: Call, number: Any) -> Node:
    """Rounds to the nearest whole number, and a half to the even one."""
    above = call(operator.add, number, 0.5)
    nearest = _floor(call, above)
    is_half = call(operator.eq, above, nearest)
    even = call(operator.sub, nearest, call(operator.mod, nearest, 2))
    return call(torch.sym_ite, is_half, even, nearest)


_REWRITTEN: Mapping[Any, Callable[[Call, Any], Node]] = {
    math.floor: _floor,
    math.ceil: _ceiling,
    operator.abs: _absolute,
    builtins.abs: _absolute,
    builtins.round: _rounded,
}
"""Functions on numbers that PyTorch's files lack, by those that they have."""
