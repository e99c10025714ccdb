"""Which values of a program are equal in all of its processes.

An all-reduce makes a tensor that all processes have, and so does an op of such tensors. The weights of a plan are
either parts, which differ, or whole, as those of a normalization. A graph of local tensors does not show which, so the
processes compare their weights. Inputs count as equal, as in PyTorch's plans for tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from torchtrt.contract import constant_of
from torchtrt.graphs.nodes import draws_random_numbers, mutates
from torchtrt_compiler.lowering.row_rules import is_product
from torchtrt_runtime.meetings import agreed
from torchtrt_runtime.process_groups import Processes, is_collective
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


def equal_in(graph_module: GraphModule, group: str) -> set[Node]:
    """Returns the nodes whose values are equal in all processes of a group; all processes call it together.

    Args:
        graph_module: The program of this process.
        group: The name of the process group.

    Raises:
        ProcessGroupError: Another process does not arrive, or has failed.
    """
    weights = _equal_weights(graph_module)
    equal = set[Node]()
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            is_equal = True
        elif node.op == "get_attr":
            is_equal = str(node.target) in weights
        elif node.target in _MAKE_EQUAL and group in node.args:
            is_equal = True
        else:
            is_equal = _keeps_equal(node) and equal.issuperset(node.all_input_nodes)
        if is_equal:
            equal.add(node)
    return equal


def _keeps_equal(node: Node) -> bool:
    """Returns whether a call has equal results in all processes that call it with equal inputs."""
    if node.target is c10d.wait_tensor.default:
        return True
    if not isinstance(node.target, OpOverload) or is_collective(node.target) or mutates(node):
        return node.op == "call_function" and not isinstance(node.target, OpOverload)
    return not draws_random_numbers(node)


def _equal_weights(graph_module: GraphModule) -> set[str]:
    """Returns the names of the weights that are equal in all processes.

    A weight that only products read counts as different: such weights are most of a model, and a plan divides them.
    """
    digests = dict(_digests(graph_module))
    processes = Processes.of(graph_module)
    equal: dict[str, str] = agreed(processes, "the weights of a model", digests, _in_both)
    return set(equal)


def _digests(graph_module: GraphModule) -> Iterator[tuple[str, str]]:
    """Yields the name of each weight that more than products read, with what is equal for equal ones."""
    for node in graph_module.graph.find_nodes(op="get_attr"):
        tensor = constant_of(node)
        if tensor is not None and not is_fake(tensor) and not _is_factor(node):
            yield str(node.target), digest(tensor)


def _is_factor(node: Node) -> bool:
    """Returns whether only products read a weight."""
    return all(
        is_product(user) or (user.target in _FORMS and _is_factor(user)) for user in node.users
    )


def _in_both(first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    return {name: each for name, each in first.items() if second.get(name) == each}
