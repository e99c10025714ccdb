"""Whether a partitioned model is one engine, and what else there is for PyTorch to do."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.targets import qualified_name


@dataclass(frozen=True)
class WholeEngine:
    """The one engine of a model that needs no PyTorch.

    Attributes:
        name: Its name in the graph module.
        inputs: The inputs of the model that it reads, in its order.
        outputs: For each output of the model, the place of the engine's output.
    """

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[int, ...]


def whole_engine(graph_module: GraphModule) -> WholeEngine | None:
    """Returns the engine that computes all of a partitioned model; ``None`` where ``obstacles`` has a reason."""
    if any(True for _ in obstacles(graph_module)):
        return None
    (call,) = graph_module.graph.find_nodes(op="call_module")
    outputs = tuple(int(result.args[1]) for result in _results(graph_module))
    return WholeEngine(str(call.target), tuple(call.args), outputs)


def obstacles(graph_module: GraphModule, is_dry: bool = False) -> Iterator[str]:
    """Yields the reasons why a partitioned model is more, or less, than one engine, each a sentence without period.

    Args:
        graph_module: The graph, with one submodule for each block.
        is_dry: Whether it is of a dry run, which copies results that no engine makes.
    """
    calls = graph_module.graph.find_nodes(op="call_module")
    if not calls:
        yield "It has no engine"
    if len(calls) > 1:
        yield f"It has {len(calls)} engines: {', '.join(str(call.target) for call in calls)}"
    for node in graph_module.graph.nodes:
        is_copy = is_dry and node.target is torch.ops.aten.clone.default
        if node.op == "call_function" and node.target is not operator.getitem and not is_copy:
            yield f"PyTorch runs {qualified_name(node.target)} (node {node.name})"
    for call in calls:
        for source in call.all_input_nodes:
            if source.op == "get_attr":
                yield f"PyTorch holds the buffer {source.target!r}, which the model changes"
    yield from _of_results(graph_module)


def _of_results(graph_module: GraphModule) -> Iterator[str]:
    """Yields why an output of the model is not the output of an engine."""
    counts: Counter[Any] = Counter()
    for index, returned in enumerate(_results(graph_module)):
        result = returned
        while isinstance(result, Node) and result.target is torch.ops.aten.clone.default:
            result = result.args[0]  # a copy, so that results share no memory with the model
        if not isinstance(result, Node):
            yield f"Result {index} is always {result!r}, and no tensor"
        elif result.op == "placeholder":
            yield f"Result {index} is the input {str(result.target)!r}"
        elif result.op == "get_attr":
            yield f"Result {index} is the constant or the buffer {str(result.target)!r}"
        else:
            counts[result] += 1
    for result, count in counts.items():
        if count > 1:
            shared = [str(i) for i, other in enumerate(_results(graph_module)) if other is result]
            yield f"Results {' and '.join(shared)} are the same tensor, and an engine has it once"


def _results(graph_module: GraphModule) -> list[Any]:
    results: Any = graph_module.graph.output_node().args[0]
    return list(results)
