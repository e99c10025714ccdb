"""Fallback segments, compiled by Inductor, the compiler of ``torch.compile``.

PyTorch runs op by op what is in no engine. Inductor makes a few kernels of all that lies between two engines. The graph
of a compiled model stays what it is, which is what is saved, given other weights and profiled: it is run differently.

A segment is the ops that a graph calls one after the other, but for those that need nothing of it, which run before it.
It ends before a call that is not compiled and takes one of its results, or writes. It also ends before an exchange of
tensors begins or ends: the ops between run during the exchange.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torchtrt.callers import warn_caller
from torchtrt.graphs.nodes import declares_alias, draws_random_numbers, writes
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_runtime.modules.execution import Executor
from torchtrt_runtime.processes.groups import is_collective
from torchtrt_runtime.torch_internals import compile_lock, dynamo_exception

_LEAST = 2
"""Fewer ops than this that compute something: PyTorch's own kernels are what Inductor would call."""
_SHAPES = 1024
"""The maximum number of combinations of shapes that are remembered as compiled."""


class InductorFallback(Executor):
    """Runs the graph of a compiled model, with each segment of ops that stay in PyTorch compiled by Inductor.

    A segment is compiled when it is first called, and again for other dtypes and sizes, as ``torch.compile`` does it.
    Segments that Inductor cannot compile run op by op, and a warning gives the reason.

    Args:
        mode: The mode of ``torch.compile``.
        shapes: The maximum number of combinations of shapes that are remembered as compiled.
    """

    def __init__(self, mode: str | None = None, shapes: int = _SHAPES) -> None:
        self._mode, self._shapes = mode, shapes
        self._failures: list[str] = []
        self._compiled: tuple[Any, str, Callable[..., Any]] = (None, "", GraphModule.forward)
        self._called_keys: set[Any] = set()

    def __deepcopy__(self, memo: Any) -> InductorFallback:
        return InductorFallback(self._mode, self._shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        return InductorFallback, (self._mode, self._shapes)

    def __call__(self, graph_module: GraphModule, leaves: Sequence[Any], /) -> Sequence[Any]:
        """Returns what the graph returns for these inputs."""
        key = (
            torch.is_inference_mode_enabled(),
            *(leaf.shape if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves),
        )
        compiled_of, _, run = self._compiled
        if compiled_of is type(graph_module).forward and key in self._called_keys:
            return run(graph_module, *leaves)  # type: ignore[no-any-return]
        # Not one of ours: what compiles holds it as well, and modules made meanwhile would never be compiled.
        with compile_lock():
            run = self._updated(graph_module)
            outputs = run(graph_module, *leaves)
            if len(self._called_keys) >= self._shapes:
                self._called_keys = set()
            self._called_keys.add(key)
        return outputs  # type: ignore[no-any-return]

    @property
    def failures(self) -> Sequence[str]:
        """Why Inductor could not compile fallback segments, each reason once."""
        return self._failures

    def _updated(self, graph_module: GraphModule) -> Callable[..., Any]:
        compiled_of, code, run = self._compiled
        forward = type(graph_module).forward  # another one where its graph was edited
        if compiled_of is not forward:
            # With other weights it is another module that does the same, whose weights are read in each call.
            if code != graph_module.code:
                run = _with_stretches(graph_module, self._part)
                self._called_keys = set()
            self._compiled = forward, graph_module.code, run
        return run

    def _part(self, part: GraphModule) -> Callable[..., Any]:
        """Returns a function that runs a part as Inductor compiles it or, where it cannot, op by op."""
        failure = dynamo_exception()
        call: Callable[..., Any] = torch.compile(part, mode=self._mode)

        def torch_part(*inputs: Any) -> Any:
            """Runs the compiled part or, where Inductor fails, the part itself."""
            nonlocal call
            try:
                return call(*inputs)
            except failure as error:
                if call is not part:
                    call = part
                    self._note(getattr(error, "inner_exception", error))
            except RuntimeError:
                pass  # refused while FX traces, in any thread; PyTorch's ops raise as ever for what cannot be computed
            return part(*inputs)

        return torch_part

    def _note(self, error: Exception) -> None:
        first = str(error).strip().partition("\n")[0]
        failure = f"{type(error).__name__}: {textwrap.shorten(first, 300)}"
        if failure not in self._failures:  # without a compiler it is the same for each segment
            self._failures.append(failure)
            warn_caller(
                f"inductor: what it cannot compile of the ops that stay in PyTorch runs op by op: {failure}"
            )


def has_stretches(graph_module: GraphModule) -> bool:
    """Returns whether Inductor would compile anything of a compiled model's graph."""
    return not all(isinstance(piece, Node) for piece in segments_of(graph_module))


def _with_stretches(
    graph_module: GraphModule, compiled: Callable[[GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """Returns a graph's ``forward``, of the module and its inputs, that calls each segment of ops as one.

    Engines and weights are those that the module has when it is called.
    """
    graph, env = Graph(), dict[Node, Node]()
    for piece in segments_of(graph_module):
        if isinstance(piece, Node):
            env[piece] = graph.node_copy(piece, env.__getitem__)
        else:
            env.update(_add_stretch(graph, piece, env, compiled))
    return type(GraphModule(graph_module, graph)).forward


def segments_of(graph_module: GraphModule) -> Iterator[Node | Sequence[Node]]:
    """Yields the nodes of a compiled model's graph in an order in which they can run, those of a segment together."""
    segment: list[Node] = []
    for node in graph_module.graph.nodes:
        if _is_fit(node, segment):
            segment.append(node)
            continue
        is_end = writes(node) or is_collective(node.target)
        if is_end or not set(segment).isdisjoint(node.all_input_nodes):
            yield from [segment] if sum(map(_computes, segment)) >= _LEAST else segment
            segment = []
        yield node


def _is_fit(node: Node, segment: Sequence[Node]) -> bool:
    """Returns whether a node may be part of a segment that Inductor compiles."""
    if node.op != "call_function":
        return False
    if node.target is getitem:
        return node.args[0] in segment
    if not isinstance(node.target, OpOverload) or writes(node):
        return False
    if is_collective(node.target):
        return False  # a segment would begin it, or wait for it, at another time than the graph
    # In a copy of a model, nodes have no values; schemas stay.
    returns = {str(result.type) for result in node.target._schema.returns}
    are_tensors = bool(returns) and returns <= {"Tensor", "List[Tensor]"}
    return are_tensors and not draws_random_numbers(node) and not _has_unknown_sizes(node)


def _has_unknown_sizes(node: Node) -> bool:
    """Returns whether the sizes of what an op returns depend on data, or may as far as is known."""
    if torch.Tag.dynamic_output_shape not in node.target.tags:  # type: ignore[union-attr]
        return False
    values = pytree.tree_leaves(node.meta.get("val"))
    return not values or any(map(free_unbacked_symbols, values))


def _add_stretch(
    graph: Graph,
    nodes: Sequence[Node],
    env: dict[Node, Node],
    compiled: Callable[[GraphModule], Callable[..., Any]],
) -> dict[Node, Node]:
    """Adds a call of what some nodes compute together."""
    inside = set(nodes)
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
        compiled(GraphModule({}, part, class_name="TorchPart")),
        tuple(env[source] for source in inputs),
    )
    return {node: graph.call_function(getitem, (call, at)) for at, node in enumerate(outputs)}


def _computes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and not declares_alias(node.target)
