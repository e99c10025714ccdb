"""The backend of ``torch.compile(model, backend="torchtrt")``, registered through PyTorch's entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.compiler import compile as compile_model
from torchtrt.inputs import Input
from torchtrt.settings import CompilationSettings

Compiled = Callable[..., Sequence[torch.Tensor]]


def torchtrt(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compiles a graph that Dynamo captured. Weights are constants of the engines: compile again after changing them.

    A size that Dynamo treats as dynamic needs an upper bound for one engine to serve it:
    ``torch._dynamo.mark_dynamic(x, dim, min=, max=)``. Without one, an engine is built for each
    size when it is first met.

    Args:
        graph_module: The captured graph, over weights, sizes and tensors.
        example_inputs: Its inputs.
        options: Fields of :class:`torchtrt.CompilationSettings` (``torch.compile``'s ``options``).

    Returns:
        The compiled graph, called with what ``graph_module`` takes.
    """
    settings = dict(options or {})
    CompilationSettings.from_keywords(
        **settings
    )  # unknown options are an error now, not on the first call
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    kept = [
        index
        for index, value in enumerate(example_inputs)
        if isinstance(value, torch.Tensor) and not _is_weight(value)
    ]
    bounds = [_bounds(placeholders[index]) for index in kept]
    module = _over_tensors(graph_module, example_inputs, kept)
    cache: dict[Any, Compiled] = {}

    def run(*inputs: Any) -> Sequence[torch.Tensor]:
        tensors = [inputs[index] for index in kept]
        # One engine serves all sizes of the bounded dimensions, and only one size of the others.
        key = tuple(
            size
            for tensor, bound in zip(tensors, bounds, strict=True)
            for dim, size in enumerate(tensor.shape)
            if dim not in bound
        )
        if key not in cache:
            cache[key] = compile_model(
                module, [_input(*pair) for pair in zip(tensors, bounds, strict=True)], **settings
            )
        return cache[key](*tensors)

    return run


def _is_weight(value: torch.Tensor) -> bool:
    return (
        isinstance(value, torch.nn.Parameter)
        or getattr(value, "_dynamo_static_input_type", None) is not None
    )


def _bounds(placeholder: Node) -> dict[int, tuple[int, int]]:
    """Returns, for the dynamic dimensions of an input that have an upper bound, the minimum and maximum size."""
    value = placeholder.meta["example_value"]
    found = {}
    for dim, size in enumerate(value.shape):
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
            interval = size.node.shape_env.var_to_range[size.node.expr]
            if interval.upper.is_Integer and interval.upper < 2**31:
                found[dim] = (int(interval.lower), int(interval.upper))
    return found


def _input(tensor: torch.Tensor, bounds: Mapping[int, tuple[int, int]]) -> torch.Tensor | Input:
    if not bounds:
        return tensor
    shapes = [
        tuple(bounds[dim][end] if dim in bounds else size for dim, size in enumerate(tensor.shape))
        for end in (0, 1)
    ]
    return Input(
        min_shape=shapes[0],
        opt_shape=tuple(tensor.shape),
        max_shape=shapes[1],
        dtype=tensor.dtype,
        device=tensor.device,
    )


def _over_tensors(
    graph_module: GraphModule, example_inputs: Sequence[Any], kept: Sequence[int]
) -> GraphModule:
    """Returns the graph over its tensor inputs only: weights become attributes, sizes are read off the tensors."""
    module = GraphModule(graph_module, torch.fx.Graph())
    module.graph.output(module.graph.graph_copy(graph_module.graph, {}))
    placeholders = module.graph.find_nodes(op="placeholder")
    tensors = [placeholders[index] for index in kept]
    first_call = next(
        node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr")
    )
    for index, (node, value) in enumerate(zip(placeholders, example_inputs, strict=True)):
        if index in kept:
            continue
        with module.graph.inserting_before(first_call):
            if isinstance(value, torch.Tensor):
                name = f"weight_{index}"
                setattr(module, name, value)
                replacement = module.graph.get_attr(name)
            elif isinstance(value, torch.SymInt):
                replacement = _read_size(module.graph, node, tensors)
            else:
                message = f"torchtrt cannot compile a graph whose input {node.name} is a {type(value).__name__}."
                raise TypeError(message)
        node.replace_all_uses_with(replacement)
        module.graph.erase_node(node)
    module.recompile()
    return module.eval()


def _read_size(graph: torch.fx.Graph, placeholder: Node, tensors: Sequence[Node]) -> Node:
    symbol = placeholder.meta["example_value"].node.expr
    for tensor in tensors:
        for dim, size in enumerate(tensor.meta["example_value"].shape):
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                return graph.call_method("size", (tensor, dim))
    message = f"The size {symbol} of the captured graph is the size of none of its inputs."
    raise TypeError(message)
