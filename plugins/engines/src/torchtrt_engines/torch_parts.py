"""What stays in PyTorch, compiled by Inductor, the compiler of ``torch.compile``.

PyTorch runs op by op what is in no engine. Inductor makes a few kernels of all that lies between two engines. The graph
of a compiled model stays what it is, which is what is saved, given other weights and profiled: it is run differently.

A stretch is the ops that a graph calls one after the other, but for those that need nothing of it, which run before it.
It ends before a call that is not compiled and takes one of its results, or writes.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from torchtrt.lowering.aliasing import declares_alias, writes

_LEAST = 2
"""Fewer ops than this that compute something: PyTorch's own kernels are what Inductor would call."""
_SHAPES = 1024
"""The most combinations of shapes that are remembered as compiled."""
_UNFIT = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
}
"""Tags of ops that Inductor does not compile, or computes otherwise: sizes that depend on data, random numbers."""


class TorchParts:
    """Runs the graph of a compiled model, with each stretch of ops that stay in PyTorch compiled by Inductor.

    A stretch is compiled when it is first called, and again for other dtypes and sizes, as ``torch.compile`` does it.
    What Inductor cannot compile runs op by op, and a warning says why.

    Args:
        mode: The mode of ``torch.compile``.
    """

    def __init__(self, mode: str | None = None) -> None:
        self._mode = mode
        self._compiled: tuple[Any, str, Callable[..., Any]] = (None, "", GraphModule.forward)
        self._known: set[Any] = set()

    def __deepcopy__(self, memo: Any) -> TorchParts:
        return TorchParts(self._mode)

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchParts, (self._mode,)

    def __call__(self, graph_module: GraphModule, leaves: Sequence[Any]) -> Sequence[Any]:
        """Returns what the graph returns for these inputs."""
        key = (
            torch.is_inference_mode_enabled(),
            *(leaf.shape if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves),
        )
        compiled_of, _, run = self._compiled
        if compiled_of is type(graph_module).forward and key in self._known:
            return run(graph_module, *leaves)  # type: ignore[no-any-return]
        # Not one of ours: what compiles holds it as well, and modules made meanwhile would never be compiled.
        from torch._dynamo.convert_frame import compile_lock  # takes a second to import

        with compile_lock:
            run = self._updated(graph_module)
            outputs = run(graph_module, *leaves)
            if len(self._known) >= _SHAPES:
                self._known = set()
            self._known.add(key)
        return outputs  # type: ignore[no-any-return]

    def _updated(self, graph_module: GraphModule) -> Callable[..., Any]:
        compiled_of, code, run = self._compiled
        forward = type(graph_module).forward  # another one where its graph was edited
        if compiled_of is not forward:
            # With other weights it is another module that does the same, whose weights are read in each call.
            if code != graph_module.code:
                run = _with_stretches(graph_module, self._mode)
                self._known = set()
            self._compiled = forward, graph_module.code, run
        return run


def _with_stretches(graph_module: GraphModule, mode: str | None) -> Callable[..., Any]:
    """Returns a graph's ``forward``, of the module and its inputs, that calls each stretch of ops as one.

    Engines and weights are those that the module has when it is called.
    """
    graph, env = Graph(), dict[Node, Node]()
    stretch: list[Node] = []

    def end_stretch() -> None:
        env.update(_add_stretch(graph, stretch, env, mode))
        stretch.clear()

    for node in graph_module.graph.nodes:
        if _is_fit(node, stretch):
            stretch.append(node)
            continue
        if not set(stretch).isdisjoint(node.all_input_nodes) or writes(node):
            end_stretch()
        env[node] = graph.node_copy(node, env.__getitem__)
    return type(GraphModule(graph_module, graph)).forward


def _is_fit(node: Node, stretch: Sequence[Node]) -> bool:
    """Returns whether a node may be part of a stretch that Inductor compiles."""
    if node.op != "call_function":
        return False
    if node.target is getitem:
        return node.args[0] in stretch
    if not isinstance(node.target, OpOverload) or writes(node):
        return False
    # A copy of a model does not know the values of its nodes; schemas stay.
    returns = {str(each.type) for each in node.target._schema.returns}
    are_tensors = bool(returns) and returns <= {"Tensor", "List[Tensor]"}
    return are_tensors and _UNFIT.isdisjoint(node.target.tags)


def _add_stretch(
    graph: Graph, nodes: Sequence[Node], env: dict[Node, Node], mode: str | None
) -> dict[Node, Node]:
    """Adds a call of what some nodes compute together, or the nodes if they compute little."""
    inside = set(nodes)
    if sum(map(_computes, nodes)) < _LEAST:
        own = dict(env)
        for node in nodes:
            own[node] = graph.node_copy(node, own.__getitem__)
        return own
    part, inner = Graph(), dict[Node, Node]()
    inputs = dict.fromkeys(
        source for node in nodes for source in node.all_input_nodes if source not in inside
    )
    for source in inputs:
        inner[source] = part.placeholder(source.name)
    for node in nodes:
        inner[node] = part.node_copy(node, inner.__getitem__)
    outputs = [node for node in nodes if not inside.issuperset(node.users)]
    part.output(tuple(inner[node] for node in outputs))
    call = graph.call_function(
        _compiled(GraphModule({}, part, class_name="TorchPart"), mode),
        tuple(env[source] for source in inputs),
    )
    return {node: graph.call_function(getitem, (call, at)) for at, node in enumerate(outputs)}


def _computes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and not declares_alias(node.target)


def _compiled(part: GraphModule, mode: str | None) -> Callable[..., Any]:
    """Returns a function that runs a part as Inductor compiles it or, where it cannot, op by op."""
    from torch._dynamo.exc import TorchDynamoException  # takes a second to import

    call: Callable[..., Any] = torch.compile(part, mode=mode)
    count = sum(map(_computes, part.graph.nodes))

    def torch_part(*inputs: Any) -> Any:
        nonlocal call
        try:
            return call(*inputs)
        except TorchDynamoException as error:
            if call is not part:
                call = part
                cause = getattr(error, "inner_exception", error)
                warnings.warn(
                    f"inductor: {count} ops that stay in PyTorch run one by one, because it cannot compile them: "
                    f"{type(cause).__name__}: {textwrap.shorten(str(cause), 300)}",
                    stacklevel=2,
                )
        except RuntimeError:
            pass  # refused while FX traces, in whatever thread; what cannot be computed, PyTorch's ops say as ever
        return part(*inputs)

    return torch_part
