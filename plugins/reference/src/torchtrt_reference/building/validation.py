"""The checks of computed shapes, caches and collectives, once a build has a graph."""

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


def check_cache_updates(graph: Graph) -> None:
    """Checks that each cache that is written to is an input, and becomes one output: they share memory.

    Raises:
        RefusedError: One is not. The texts are those of TensorRT for RTX 1.7.
    """
    inputs, outputs = ({port.slot for port in ports} for ports in (graph.inputs, graph.outputs))
    written: set[int] = set()
    for node in graph.nodes:
        if node.operation != "kv_cache_update":
            continue
        if node.inputs[0] not in inputs:
            message = f"{node.name}: The cache tensor must be a network input."
            raise RefusedError(message)
        if node.outputs[0] not in outputs:
            message = f"{node.name}: The output tensor must be a network output."
            raise RefusedError(message)
        if node.inputs[0] in written:
            message = f"{node.name}: Input index already mapped to an output_index"
            raise RefusedError(message)
        written.add(node.inputs[0])


def check_collectives(graph: Graph, has_preview: bool) -> None:
    """Checks that the preview feature is on that collectives of several ranks need on TensorRT 10.16.

    Raises:
        RefusedError: It is off; the text names the layer.
    """
    for node in graph.nodes:
        if not has_preview and node.attributes.get("num_ranks", 1) > 1:
            message = f"{node.name}: num_ranks above 1 needs the preview feature MULTIDEVICE_RUNTIME_10_16"
            raise RefusedError(message)


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
