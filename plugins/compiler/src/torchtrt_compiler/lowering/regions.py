"""Makes regions under a context manager, such as ``torch.autocast``, a part of the graph around them.

``torch.export`` gives a graph of its own to the ops inside ``with torch.autocast(...)`` or ``with torch.no_grad()``,
and one call in their place. Where casts depend on the region, two nodes mark its beginning and its end, and
``functionalize`` lets PyTorch write the casts.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import model_line
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt_compiler.lowering.aliasing import evaluated
from torchtrt_compiler.torch_internals import (
    enter_autocast,
    exit_autocast,
    replace_graph,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)

_CONTEXT_ARGUMENTS: Mapping[Any, int] = {wrap_with_autocast: 4, wrap_with_set_grad_enabled: 1}
"""For each op that calls a region: how many arguments its context manager takes. The graph and its inputs follow."""


def without_regions(exported: ExportedProgram) -> ExportedProgram:
    """Returns a program whose regions are part of the graph around them. The program given is not changed."""
    if not any(map(_calls_region, _all_nodes(exported.graph_module))):
        return exported
    flat = _Flattening(exported.graph_module).run()
    signature = copy.deepcopy(exported.graph_signature)
    results: Any = flat.graph.output_node().args[0]
    for spec, result in zip(signature.output_specs, results, strict=True):
        if isinstance(result, Node):
            spec.arg.name = result.name
    return replace_graph(exported, flat, signature)


def marks_autocast(graph_module: GraphModule) -> bool:
    """Returns whether a graph, or a graph inside it, has a region in which PyTorch casts."""
    return any(node.target is enter_autocast for node in _all_nodes(graph_module))


@contextlib.contextmanager
def autocast_restored() -> Iterator[None]:
    """Restores the autocast of this thread after a ``with`` block that may fail inside a region."""
    devices = ("cpu", "cuda")
    before = [(torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in devices]
    depth = _depth()
    try:
        yield
    finally:
        for device, (is_enabled, dtype) in zip(devices, before, strict=True):
            torch.set_autocast_enabled(device, is_enabled)
            torch.set_autocast_dtype(device, dtype)
        for _ in range(_depth() - depth):
            torch.autocast_decrement_nesting()
        if not depth:
            torch.clear_autocast_cache()


def check_casts(graph: Graph) -> None:
    """Checks that each op returns the dtype that PyTorch computes of its operands.

    What was exported inside autocast does not: its casts happen only where it runs inside autocast, too.

    Raises:
        UnsupportedProgramError: An op returns another dtype.
    """
    for node in graph.nodes:
        value = node.meta.get("val") if node.op == "call_function" else None
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        operands = [source.meta.get("val") for source in node.all_input_nodes]
        dtypes = {each.dtype for each in operands if isinstance(each, torch.Tensor)}
        if not any(dtype.is_floating_point for dtype in dtypes) or value.dtype in dtypes:
            continue
        result = next(iter(evaluated(node) or ()), None)
        if result is not None and result.dtype is not value.dtype:
            raise UnsupportedProgramError(
                f"The program was exported inside autocast: {node.name} ({node.target}, {model_line(node)}) returns "
                f"{dtype_name(value.dtype)} there, and {dtype_name(result.dtype)} outside of it. Compile it inside the "
                "same autocast, or export it outside, with torch.autocast inside of the model's forward."
            )


def _depth() -> int:
    """Returns how many regions of autocast the thread is in."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _all_nodes(graph_module: GraphModule) -> Iterator[Node]:
    for module in graph_module.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def _calls_region(node: Node) -> bool:
    return node.target in _CONTEXT_ARGUMENTS


class _Flattening:
    """Copies a graph, with the nodes of each region in place of its call.

    Args:
        module: The graph, with what it reads.
    """

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        self.enclosing: list[str] = []  # device types for which autocast is on

    def run(self) -> GraphModule:
        """Returns the copy."""
        results = self.copy(self.module, None)
        output = self.graph.output(results)
        output.meta = dict(self.module.graph.output_node().meta)
        return GraphModule(self.attributes, self.graph)

    def copy(self, module: GraphModule, inputs: Sequence[Any] | None) -> Any:
        """Adds the nodes of a graph, and returns its results.

        Args:
            module: The graph.
            inputs: What goes into it; ``None`` where its inputs are the copy's.
        """
        env: dict[Node, Any] = {}
        placeholders = module.graph.find_nodes(op="placeholder")
        if inputs is not None:
            env.update(zip(placeholders, inputs, strict=True))
        for node in module.graph.nodes:
            if node.op == "output":
                return torch.fx.map_arg(node.args[0], env.__getitem__)
            if node.op == "get_attr":
                env[node] = self.attribute(module, node)
            elif _calls_region(node):
                env[node] = self.region(module, node, env)
            elif node.target is operator.getitem and _calls_region(node.args[0]):
                env[node] = env[node.args[0]][node.args[1]]
            elif node not in env:
                env[node] = self.graph.node_copy(node, env.__getitem__)
        raise AssertionError("a graph without an output")

    def attribute(self, module: GraphModule, node: Node) -> Node | None:
        """Returns a node that reads what a node reads; None for the graph of a region."""
        value = attrgetter(str(node.target))(module)
        if isinstance(value, GraphModule):
            if all(map(_calls_region, node.users)):
                return None
            value = _Flattening(value).run()
        name = str(node.target).replace(".", "_")
        while self.attributes.get(name, value) is not value:
            name += "_"
        self.attributes[name] = value
        copied = self.graph.create_node("get_attr", name, name=node.name)
        copied.meta = dict(node.meta)
        return copied

    def region(self, module: GraphModule, node: Node, env: dict[Node, Any]) -> Any:
        """Adds the nodes of a region, between marks where casts depend on it, and returns its results."""
        count = _CONTEXT_ARGUMENTS[node.target]
        context, read = node.args[:count], node.args[count]
        assert isinstance(read, Node)
        inner = attrgetter(str(read.target))(module)
        inputs = torch.fx.map_arg(node.args[count + 1 :], env.__getitem__)
        if not self.has_effect(node.target, context):
            return self.copy(inner, inputs)
        outer, self.enclosing = self.enclosing, [*self.enclosing, str(context[0])]
        begin = self.graph.call_function(enter_autocast, context)
        results = self.copy(inner, inputs)
        self.graph.call_function(exit_autocast, (begin,))
        self.enclosing = outer
        return results

    def has_effect(self, op: Any, context: Sequence[Any]) -> bool:
        """Returns whether PyTorch may cast otherwise inside a region than around it."""
        if op is not wrap_with_autocast:
            return False
        device, _, is_enabled, _ = context
        return bool(is_enabled) or device in self.enclosing or torch.is_autocast_enabled(device)
