"""The number of boxes that non-maximum suppression keeps, with the maximum that it can be."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from torchtrt.conversion import value_of
from torchtrt.settings import CompilationSettings
from torchtrt_blocks import sizes
from torchtrt_blocks.sizes_from_data import limit_sizes_from_data
from torchtrt_converters_torchvision import pack


@pack.lowering_pass()
def kept_boxes(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Limits the number of boxes that are kept, and what follows from it."""
    graph = graph_module.graph
    ops = {node.target for node in graph.nodes if str(node.target) == "torchvision.nms.default"}
    if ops:
        limit_sizes_from_data(graph, dict.fromkeys(ops, _boxes))


def _boxes(node: Node) -> int | None:
    return sizes.maximum(value_of(node.args[0]).shape[0])
