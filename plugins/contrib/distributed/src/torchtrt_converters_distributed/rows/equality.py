"""Which values of a program are equal in all of its processes.

An all-reduce makes a tensor that all processes have, and so does an op of such tensors. The weights of a plan are
either parts, which differ, or whole, as those of a normalization. A graph of local tensors does not show which, so the
processes compare their weights, the examples of their inputs, and the numbers in their calls. Memory that a call writes
to counts as different: it may be equal until the first call only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from torchtrt.contract import constant_of
from torchtrt.graphs import declares_alias, draws_random_numbers, mutates
from torchtrt_converters_distributed.rows.rules import is_product
from torchtrt_converters_distributed.torch_internals import OpOverload
from torchtrt_runtime.processes.groups import Processes, is_collective
from torchtrt_runtime.processes.meetings import equal_digests
from torchtrt_runtime.torch_internals import is_fake
from torchtrt_runtime.weights.recipe import digest

aten = torch.ops.aten
c10d = torch.ops._c10d_functional
_MAKE_EQUAL = frozenset({c10d.all_reduce.default, c10d.all_gather_into_tensor.default})
"""The collectives after which all processes of the group have the same tensor."""
_FORMS = frozenset(
    {aten.t.default, aten.transpose.int, aten.permute.default, aten._to_copy.default}
)
"""The ops between the weight of a product and the product."""
_OUTSIDE = frozenset({"placeholder", "get_attr"})
"""The kinds of nodes whose values come from outside of the graph."""


def equal_in(
    graph_module: GraphModule, group: str, examples: Mapping[Node, torch.Tensor]
) -> set[Node]:
    """Returns the nodes whose values are equal in all processes of a group; all processes call it together.

    Args:
        graph_module: The program of this process.
        group: The name of the process group.
        examples: The values of inputs. Inputs without one count as equal.

    Raises:
        ProcessGroupError: Another process does not arrive, or has failed.
    """
    equal_names, written = _compared(graph_module, group, examples), _written(graph_module)
    equal = set[Node]()
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            is_equal = node not in examples or _name_of(node) in equal_names
        elif node.op == "get_attr":
            is_equal = _name_of(node) in equal_names
        elif node.target in _MAKE_EQUAL and group in node.args:
            is_equal = True
        else:
            is_equal = _keeps_equal(node) and _name_of(node) in equal_names
            is_equal = is_equal and equal.issuperset(node.all_input_nodes)
        if is_equal and node not in written:
            equal.add(node)
    return equal


def weights_behind(nodes: Iterable[Node], equal: set[Node]) -> set[Node]:
    """Returns the weights from which nodes follow, up to the collectives that make tensors equal.

    Args:
        nodes: Nodes whose values are equal in all processes.
        equal: All such nodes.
    """
    seen, pending = set[Node](), list(nodes)
    while pending:
        node = pending.pop()
        if node in equal and node not in seen:
            seen.add(node)
            pending.extend(() if node.target in _MAKE_EQUAL else node.all_input_nodes)
    return {node for node in seen if node.op == "get_attr"}


def _keeps_equal(node: Node) -> bool:
    """Returns whether a call has equal results in all processes that call it with equal inputs."""
    if node.target is c10d.wait_tensor.default:
        return True
    if not isinstance(node.target, OpOverload):
        return node.op == "call_function"
    return not (is_collective(node.target) or mutates(node) or draws_random_numbers(node))


def _compared(
    graph_module: GraphModule, group: str, examples: Mapping[Node, torch.Tensor]
) -> set[str]:
    """Returns the names of the weights, inputs with examples, and calls that are equal in all processes of a group.

    Calls are equal if they read nodes of the same names, and have the same other arguments. A weight that only products
    read counts as different: such weights are most of a model, and a plan divides them.
    """
    nodes = graph_module.graph.find_nodes(op="get_attr")
    constants = {node: constant_of(node) for node in nodes if not _is_factor(node)}
    local_digests = {
        _name_of(node): digest(tensor)
        for node, tensor in {**examples, **constants}.items()
        if tensor is not None and not is_fake(tensor)
    }
    calls = graph_module.graph.nodes
    local_digests |= {
        _name_of(node): _digest_of_call(node) for node in calls if node.op not in _OUTSIDE
    }
    processes = Processes.of(graph_module)
    digests = equal_digests(processes, "the weights of a model", local_digests, group)
    return {name for name, digest in digests.items() if digest is not None}


def _written(graph_module: GraphModule) -> set[Node]:
    """Returns the weights and inputs to whose memory a call writes."""
    written = set[Node]()
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and mutates(node):
            written.add(_owner(node.all_input_nodes[0]))
    memory = {_memory(node) for node in written} - {None}
    weights = graph_module.graph.find_nodes(op="get_attr")
    return written.union(node for node in weights if _memory(node) in memory)


def _owner(node: Node) -> Node:
    """Returns the node whose memory a view shows."""
    while isinstance(node.target, OpOverload) and declares_alias(node.target):
        node = node.all_input_nodes[0]
    return node


def _memory(node: Node) -> int | None:
    """Returns what identifies the memory of a weight; ``None`` for others."""
    tensor = constant_of(node)
    if tensor is None or is_fake(tensor):
        return None
    identity: int = tensor.untyped_storage()._cdata
    return identity


def _name_of(node: Node) -> str:
    """Returns the name of a weight, an input or a call, which differs from those of all others."""
    return f"{node.op} {node.target}" if node.op in _OUTSIDE else node.name


def _digest_of_call(node: Node) -> str:
    """Returns what is equal for calls with the same arguments; processes have GPUs of different numbers."""

    def described(argument: Any) -> Any:
        return argument.type if isinstance(argument, torch.device) else argument

    arguments = map_aggregate((node.args, node.kwargs), described)
    return hashlib.sha256(f"{node.target} {arguments}".encode()).hexdigest()[:16]


def _is_factor(node: Node) -> bool:
    """Returns whether only products read a weight."""
    return all(
        is_product(user) or (user.target in _FORMS and _is_factor(user)) for user in node.users
    )
