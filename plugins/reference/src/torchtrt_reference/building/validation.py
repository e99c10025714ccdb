"""The checks of computed shapes, once a build has a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchtrt_reference.graphs.graph import Graph
from torchtrt_reference.operations import OPERATIONS
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts


def check_shape_tensors(graph: Graph) -> None:
    """Checks that no shape is computed through a scatter, whose output is never a shape tensor.

    Raises:
        RefusedError: One is; the text names the scatter.
    """
    needed: set[int] = set()
    for node in reversed(graph.nodes):
        values = OPERATIONS[node.operation].values_needed(node.attributes)
        if any(slot in needed for slot in node.outputs) and node.operation != "shape":
            if node.operation == "scatter":
                message = f"{node.name}: the output of a scatter cannot be a shape tensor"
                raise RefusedError(message)
            needed.update(node.inputs)
        needed.update(node.inputs[index] for index in values if index < len(node.inputs))


def check_shapes_of_results(graph: Graph, profiled: Sequence[Mapping[int, TensorFacts]]) -> None:
    """Checks that no shape is taken of a tensor whose dimensions depend on data.

    Raises:
        RefusedError: One is; the text names the layer.
    """
    for node in graph.nodes:
        if node.operation == "shape" and any(
            not facts[node.inputs[0]].is_static for facts in profiled
        ):
            message = f"{node.name}: the shape of a tensor whose dimensions depend on data cannot be computed"
            raise RefusedError(message)
