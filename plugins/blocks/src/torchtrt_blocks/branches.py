"""The results of the two branches of ``cond``."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from torchtrt.conversion import value_of
from torchtrt_blocks.torch_internals import pytree


def branch_results(node: Node) -> list[list[Any]]:
    """Returns PyTorch's values of the results of each branch: fake tensors, or what else a branch returns.

    Args:
        node: A node of ``torch.ops.higher_order.cond``.
    """
    from torchtrt.graphs import inner_graphs  # takes longer to import than all packs

    return [
        [value_of(leaf) for leaf in pytree.tree_leaves(branch.graph.output_node().args[0])]
        for branch in inner_graphs(node)
    ]
