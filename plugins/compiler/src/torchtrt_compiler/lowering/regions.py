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
from torchtrt.graphs.nodes import all_nodes, declares_alias, model_line
from torchtrt.graphs.symbols import no_new_assumptions
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_compiler.memory_of_calls import evaluated
from torchtrt_compiler.torch_internals import (
    FakeTensor,
    enter_autocast,
    exit_autocast,
    has_autocast_kernel,
    has_kernel,
    is_any_autocast_enabled,
    replace_graph,
    trace_function,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)

_CONTEXT_ARGUMENTS: Mapping[Any, int] = {wrap_with_autocast: 4, wrap_with_set_grad_enabled: 1}
"""For each op that calls a region: how many arguments its context manager takes. The graph and its inputs follow."""


_DEVICES = ("cpu", "cuda")


def without_regions(exported: ExportedProgram) -> ExportedProgram:
    """Returns a program whose regions are part of the graph around them. The program given is not changed."""
    has_regions = any(map(_calls_region, all_nodes(exported.graph_module)))
    has_marks = marks_autocast(
        exported.graph_module
    )  # PyTorch leaves them where a model has branches
    if not (has_regions or has_marks or is_any_autocast_enabled()):
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
    return any(node.target is enter_autocast for node in all_nodes(graph_module))


@contextlib.contextmanager
def autocast_restored() -> Iterator[None]:
    """Restores the autocast of this thread after a ``with`` block that may fail inside a region."""
    before = [
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _DEVICES
    ]
    depth = _depth()
    try:
        yield
    finally:
        for device, (is_enabled, dtype) in zip(_DEVICES, before, strict=True):
            torch.set_autocast_enabled(device, is_enabled)
            torch.set_autocast_dtype(device, dtype)
        for _ in range(_depth() - depth):
            torch.autocast_decrement_nesting()
        if not depth:
            torch.clear_autocast_cache()


def check_casts(graph: Graph) -> None:
    """Checks that each op returns the dtype that PyTorch computes of its operands.

    A program that was exported inside autocast does not: its casts happen only where it runs inside autocast, too.

    Raises:
        UnsupportedProgramError: An op returns another dtype.
    """
    for node in graph.nodes:
        value = node.meta.get("val") if node.op == "call_function" else None
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        operands = [source.meta.get("val") for source in node.all_input_nodes]
        dtypes = {operand.dtype for operand in operands if isinstance(operand, torch.Tensor)}
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


def _calls_region(node: Node) -> bool:
    return node.target in _CONTEXT_ARGUMENTS


class _Flattening:
    """Copies a graph, with the nodes of each region in place of its call.

    PyTorch keeps composites whole when it traces a program again, and writes casts only for those that autocast itself
    handles. It would lose the casts in front of the product inside an ``einsum``. Composites that cast inside are
    therefore replaced by their parts.

    Args:
        module: The graph, with what it reads.
        enclosing: The arguments of the regions of autocast around it.
    """

    def __init__(self, module: GraphModule, enclosing: Sequence[Any] = ()) -> None:
        self.module = module
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        self.enclosing = tuple(enclosing)

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
            if node not in env:
                env[node] = self.copied(module, node, env)
        return env[module.graph.output_node()]

    def copied(self, module: GraphModule, node: Node, env: dict[Node, Any]) -> Any:
        """Adds what a node becomes, and returns its value."""
        if node.op == "output":
            return torch.fx.map_arg(node.args[0], env.__getitem__)
        if node.op == "get_attr":
            return self.attribute(module, node)
        if _calls_region(node):
            return self.region(module, node, env)
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and isinstance(env[source], (list, tuple)):
            return env[source][node.args[1]]
        if node.target is enter_autocast:
            self.enclosing = (*self.enclosing, node.args)
        elif node.target is exit_autocast:
            self.enclosing = self.enclosing[:-1]
        elif (parts := self.casting_parts(node)) is not None:
            return self.copy(parts, [env[source] for source in node.all_input_nodes])
        return self.graph.node_copy(node, env.__getitem__)

    def attribute(self, module: GraphModule, node: Node) -> Node | None:
        """Returns a node that reads what a node reads; None for the graph of a region."""
        value = attrgetter(str(node.target))(module)
        if isinstance(value, GraphModule):
            if all(map(_calls_region, node.users)):
                return None
            value = _Flattening(value, self.enclosing_at_use(node)).run()
        name = str(node.target).replace(".", "_")
        while self.attributes.get(name, value) is not value:
            name += "_"
        self.attributes[name] = value
        copied = self.graph.create_node("get_attr", name, name=node.name)
        copied.meta = dict(node.meta)
        return copied

    def enclosing_at_use(self, node: Node) -> Sequence[Any]:
        """Returns the regions around the call that takes the graph that a node reads."""
        enclosing = self.enclosing
        first = min(node.users)
        while (node := node.next) is not first:
            if node.target is enter_autocast:
                enclosing = (*enclosing, node.args)
            elif node.target is exit_autocast:
                enclosing = enclosing[:-1]
        return enclosing

    def region(self, module: GraphModule, node: Node, env: dict[Node, Any]) -> Any:
        """Adds the nodes of a region, between marks where casts depend on it, and returns its results."""
        count = _CONTEXT_ARGUMENTS[node.target]
        context, read = node.args[:count], node.args[count]
        assert isinstance(read, Node)
        inner = attrgetter(str(read.target))(module)
        inputs = torch.fx.map_arg(node.args[count + 1 :], env.__getitem__)
        if not self.has_effect(node.target, context):
            return self.copy(inner, inputs)
        outer, self.enclosing = self.enclosing, (*self.enclosing, context)
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
        is_inside = any(device == outer for outer, *_ in self.enclosing)
        return bool(is_enabled) or is_inside or torch.is_autocast_enabled(device)

    def casting_parts(self, node: Node) -> GraphModule | None:
        """Returns the parts of a composite that autocast casts inside of it, with the casts; None for other nodes."""
        target = node.target
        if not isinstance(target, OpOverload) or declares_alias(target):
            return None
        with contextlib.ExitStack() as regions:
            for context in self.enclosing:
                regions.enter_context(torch.autocast(*context))
            devices = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
            keys = (f"Autocast{device.upper()}" for device in devices)
            name: str = str(target.name())
            if not devices or not has_kernel(name):
                return None
            if any(has_autocast_kernel(name, key) for key in keys):
                return None
            parts = _parts(node) if target._can_decompose() else None
        with contextlib.ExitStack() as off:
            for device in devices:
                off.enter_context(torch.autocast(device, enabled=False))
            plain = None if parts is None else _parts(node)
        return None if parts is None or (plain and _ops(plain) == _ops(parts)) else parts


def _parts(node: Node) -> GraphModule | None:
    """Returns what a composite computes by other ops, or None where that cannot be traced."""
    sources = node.all_input_nodes
    values = [source.meta.get("val") for source in sources]
    fakes = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, FakeTensor)]

    def function(*values: Any) -> Any:
        value_by_source = dict(zip(sources, values, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_by_source.__getitem__)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    if not fakes:
        return None
    try:
        with torch.no_grad(), no_new_assumptions(node.graph), fakes[0].fake_mode:
            parts = trace_function(function, values)
    except Exception:  # it may refuse its arguments in any way
        return None
    for part in parts.graph.nodes:
        for key in ("stack_trace", "nn_module_stack"):
            if key in node.meta:
                part.meta[key] = node.meta[key]
    return parts


def _ops(graph_module: GraphModule) -> list[Any]:
    return [node.target for node in graph_module.graph.nodes if node.op == "call_function"]
