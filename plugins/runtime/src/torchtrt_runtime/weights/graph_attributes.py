"""The attributes of a compiled graph: the tensors that PyTorch reads and writes between the engines."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from torchtrt.graphs.nodes import writes


def copied_attributes(
    module: GraphModule, names: Collection[str], value: Callable[[str], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Returns copies of values for attributes of a graph, as PyTorch reads and writes them between the engines.

    Args:
        module: The graph.
        names: The names of the attributes.
        value: Returns the value for a name. Names of one tensor get one copy.
    """
    copies: dict[int, torch.Tensor] = {}
    tensors = {}
    for node in module.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        old = attrgetter(name)(module)
        if not isinstance(old, torch.Tensor) or name not in names:
            continue
        if id(old) not in copies:
            new = value(name).detach().to(old.device).clone()
            is_parameter = isinstance(old, torch.nn.Parameter)
            copies[id(old)] = torch.nn.Parameter(new, old.requires_grad) if is_parameter else new
        tensors[name] = copies[id(old)]
    return tensors


def written_attributes(graph: Graph) -> frozenset[str]:
    """Returns the names of the buffers and parameters that a call of a graph writes to."""
    destinations: list[Any] = [node.args[0] for node in graph.nodes if writes(node)]
    return frozenset(str(node.target) for node in destinations if node.op == "get_attr")
