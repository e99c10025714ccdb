"""Whether a partitioned model is one engine, and what else there is for PyTorch to do."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.graphs.nodes import writes
from torchtrt.targets import qualified_name


@dataclass(frozen=True)
class WholeEngine:
    """The one engine of a model that needs no PyTorch.

    Attributes:
        name: Its name in the graph module.
        inputs: The inputs of the model that it reads, in its order, and then the buffers that the model writes.
        outputs: For each output of the model, the index of the engine's output.
        written: For each buffer and input that the model writes, the index of the engine's output with its new value.
    """

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[int, ...]
    written: Mapping[Node, int]

    @property
    def input_names(self) -> dict[Node, str]:
        """The name that each input has by default: the model's, and another for a buffer with an argument's name."""
        names: dict[Node, str] = {}
        for node in self.inputs:
            name = str(node.target)
            names[node] = f"buffer_{name}" if name in names.values() else name
        return names

    @property
    def output_names(self) -> dict[int, str]:
        """The name that each output of the engine has by default, by its index; those of the model come first."""
        names = {output: f"output_{index}" for index, output in enumerate(self.outputs)}
        own = self.input_names
        for node, output in self.written.items():
            names.setdefault(output, f"new_{own.get(node, node.target)}")
        return names


def whole_engine(graph_module: GraphModule) -> WholeEngine | None:
    """Returns the engine that computes all of a partitioned model; ``None`` where ``obstacles`` has a reason."""
    if any(True for _ in obstacles(graph_module)):
        return None
    (call,) = graph_module.graph.find_nodes(op="call_module")
    outputs = tuple(int(result.args[1]) for result in _results(graph_module))
    return WholeEngine(str(call.target), tuple(call.args), outputs, _written(graph_module))


def _written(graph_module: GraphModule) -> dict[Node, int]:
    """Returns the buffers and inputs whose new value is an output of an engine, with the index of that output."""
    written = {}
    for copy in graph_module.graph.find_nodes(
        op="call_function", target=torch.ops.aten.copy_.default
    ):
        destination, value, *_ = copy.args
        is_output = value.target is operator.getitem and value.args[0].op == "call_module"
        if destination.op in ("get_attr", "placeholder") and is_output:
            written[destination] = int(value.args[1])
    return written


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
    written = _written(graph_module)
    for output, count in Counter(written.values()).items():
        if count > 1:
            names = " and ".join(str(node.target) for node in written if written[node] == output)
            yield f"It writes one value to {names}, and an output of a plan is the new value of one"
    for node in graph_module.graph.nodes:
        is_copy = is_dry and node.target is torch.ops.aten.clone.default
        is_write = node.target is torch.ops.aten.copy_.default and node.args[0] in written
        if node.op != "call_function" or node.target is operator.getitem or is_copy or is_write:
            continue
        partly = (
            '. If it writes a part of a buffer, disabled_passes=["aten_core.partial_writes"] lets the engine return '
            "all of it"
        )
        advice = partly if writes(node) else ""
        yield f"PyTorch runs {qualified_name(node.target)} (node {node.name}){advice}"
    for call in calls:
        for source in call.all_input_nodes:
            if source.op == "get_attr" and source not in written:
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
