"""The registrations of the program itself, and the registry's answers under the names of Torch-TensorRT."""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import GraphModule

from torchtrt.packs.state import local_pack
from torchtrt.registry.registry import DYNAMO_CONVERTERS
from torchtrt.settings import CompilationSettings
from torchtrt.targets import Target

dynamo_tensorrt_converter = local_pack.converter
"""Returns a decorator that registers a function as a converter of this program, in the pack named ``local``."""

register_torch_trt_decomposition = local_pack.decomposition
"""Returns a decorator that registers a decomposition of this program, in the pack named ``local``."""


def get_graph_converter_support(
    gm: GraphModule, torch_executed_ops: Iterable[Target | str] = frozenset()
) -> tuple[int, int]:
    """Returns how many of the graph's calls have a converter, and how many calls there are.

    Args:
        gm: The graph.
        torch_executed_ops: Ops that stay in PyTorch, in any spelling.
    """
    settings = CompilationSettings.from_keywords(torch_executed_ops=torch_executed_ops)
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    return sum(bool(DYNAMO_CONVERTERS.resolve(node, settings)) for node in calls), len(calls)


decompositions = DYNAMO_CONVERTERS.decompositions
