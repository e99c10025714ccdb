"""Runs a TorchScript graph with PyTorch, one node after the other.

Under ``torch.export`` this is how a TorchScript graph becomes an exported program: what is known when the model is
compiled (numbers, lists, branches and trip counts that do not depend on data) is evaluated and leaves no
trace, operators on tensors are called and so recorded, and control flow that depends on data becomes ``cond`` and
``while_loop``. Every recorded operator carries the :class:`Site` that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_false, statically_known_true
from torch.fx.traceback import annotate

from torchtrt.errors import ExportError, TorchTRTError
from torchtrt_torchscript.branches_and_loops import run_branch, run_loop
from torchtrt_torchscript.graphs import (
    Environment,
    all_nodes,
    is_view,
    makes_tensors,
    schema_of,
    written_inputs,
)
from torchtrt_torchscript.node_evaluators import EVALUATORS, NODE_EVALUATORS
from torchtrt_torchscript.numbers import Undecided, as_known, is_symbolic
from torchtrt_torchscript.operators import (
    find_interpreted,
    find_operator,
    places_in,
)
from torchtrt_torchscript.site import SITE, Site, source_line


class GraphRunner:
    """Runs one graph.

    Args:
        graph: An inlined graph.
        constants: What gives the constants of the graph that are registered elsewhere, by the number of the value.
    """

    def __init__(
        self, graph: torch._C.Graph, constants: Mapping[int, Callable[[], Any]] | None = None
    ) -> None:
        self.graph = graph
        self._constants = constants or {}

    def run(self, inputs: Sequence[Any]) -> Any:
        """Returns what the graph returns: one value, or a tuple of several."""
        env: Environment = {}
        self.assign(env, self.graph.inputs(), inputs)
        results = self.run_block(self.graph, env)
        return results[0] if len(results) == 1 else tuple(results)

    def assign(self, env: Environment, values: Iterable[Any], results: Sequence[Any]) -> None:
        """Gives values of the graph their results."""
        for value, result in zip(values, results, strict=True):
            env[value.unique()] = result

    def run_block(self, block: Any, env: Environment) -> list[Any]:
        """Runs the nodes of a block, or of the graph; returns its outputs."""
        for node in block.nodes():
            self.run_node(node, env)
        return [env[value.unique()] for value in block.outputs()]

    def run_node(self, node: torch._C.Node, env: Environment) -> None:
        """Runs one node.

        Raises:
            ExportError: It fails, or nothing can run it.
        """
        kind = node.kind()
        if kind in STRUCTURE:
            STRUCTURE[kind](self, node, env)
            return
        args = [env[value.unique()] for value in node.inputs()]
        try:
            with annotate({SITE: Site(node, self.graph)}):
                result = call(node, args)
                _write_back(node, env)
        except TorchTRTError:
            raise
        except _NoEvaluatorError as error:
            raise ExportError(self._everything_without_evaluator()) from error
        except Exception as error:
            message = f"{kind} failed: {type(error).__name__}: {error}\n{source_line(node)}"
            raise ExportError(message) from error
        outputs = list(node.outputs())
        if outputs:
            self.assign(env, outputs, (result,) if len(outputs) == 1 else result)

    def _everything_without_evaluator(self) -> str:
        uses: dict[str, list[str]] = {}
        for node in filter(has_no_evaluator, all_nodes(self.graph)):
            uses.setdefault(schema_of(node), []).append(source_line(node))
        lines = [line for schema, found in uses.items() for line in (schema, *dict.fromkeys(found))]
        return "\n".join(("torchtrt has no evaluator for what the model uses:", *lines))

    # Structure

    def _constant(self, node: torch._C.Node, env: Environment) -> None:
        name = node.output().unique()
        registered = self._constants.get(name)
        env[name] = registered() if registered is not None else node.output().toIValue()

    def _get_attribute(self, node: torch._C.Node, env: Environment) -> None:
        owner = env[node.input().unique()]
        env[node.output().unique()] = owner.get(node.s("name"))

    def _set_attribute(self, node: torch._C.Node, env: Environment) -> None:
        owner, value = (env[each.unique()] for each in node.inputs())
        owner.set(node.s("name"), value)

    def _call_method(self, node: torch._C.Node, env: Environment) -> None:
        owner, *args = (env[value.unique()] for value in node.inputs())
        graph = owner.graph_of(node.s("name"))
        env[node.output().unique()] = GraphRunner(graph).run((owner, *args))

    def _choose(self, node: torch._C.Node, env: Environment) -> None:
        condition = env[node.input().unique()]
        then, otherwise = node.blocks()
        if isinstance(condition, torch.SymBool):
            condition = _decided(condition)
        if isinstance(condition, bool):
            results = self.run_block(then if condition else otherwise, env)
        elif _always_raises(then) or _always_raises(otherwise):
            # A check of the data: a compiled model takes it to hold.
            results = self.run_block(otherwise if _always_raises(then) else then, env)
        else:
            results = run_branch(self, node, condition, env)
        self.assign(env, node.outputs(), results)

    def _repeat(self, node: torch._C.Node, env: Environment) -> None:
        limit, condition, *carried = (env[value.unique()] for value in node.inputs())
        (body,) = node.blocks()
        trip = 0
        while isinstance(condition, bool) and isinstance(limit, int):
            if trip >= limit or not condition:
                self.assign(env, node.outputs(), carried)
                return
            self.assign(env, body.inputs(), (trip, *carried))
            condition, *carried = self.run_block(body, env)
            trip += 1
        carried = run_loop(self, node, trip, limit, condition, carried, env)
        self.assign(env, node.outputs(), carried)


def call(node: torch._C.Node, args: Sequence[Any]) -> Any:
    """Returns what a node computes.

    PyTorch's operator is called if it makes tensors, else an evaluator. What has neither is
    left to TorchScript's own interpreter if all arguments are known.
    """
    kind, operator = node.kind(), find_operator(node)
    evaluator = EVALUATORS.get(kind)
    if operator is not None and (evaluator is None or makes_tensors(node)):
        return as_known(kind, args, operator(*args))
    if evaluator is not None:
        result = evaluator(*args)
        is_integer = isinstance(result, int) and not isinstance(result, bool)
        return float(result) if is_integer and str(node.output().type()) == "float" else result
    if kind in NODE_EVALUATORS:
        return NODE_EVALUATORS[kind](node, *args)
    interpreted = find_interpreted(node)
    if interpreted is None:
        raise _NoEvaluatorError
    if is_symbolic(args):
        message = f"{kind} takes numbers that are known when the model is compiled, not data or sizes that vary."
        raise ExportError(f"{message}\n{source_line(node)}")
    return interpreted(*args)


def _write_back(node: torch._C.Node, env: Environment) -> None:
    """Writes to where an element came from whose place depends on data, after a node wrote to the element.

    It is a copy here, not the view that TorchScript takes.
    """
    for value in written_inputs(node):
        while is_view(value.node()):
            producer, source = value.node(), value.node().inputsAt(0)
            if producer.kind() == "aten::select":
                dim, index = (env[each.unique()] for each in list(producer.inputs())[1:])
                if isinstance(index, Undecided):
                    tensor, element = env[source.unique()], env[value.unique()]
                    places = places_in(tensor, dim, index.tensor, 1)
                    tensor.index_copy_(dim, places, element.unsqueeze(dim))
            value = source


def has_no_evaluator(node: torch._C.Node) -> bool:
    """Returns whether a node is neither structure, nor evaluated, nor an operator of PyTorch."""
    kind = node.kind()
    known = kind in STRUCTURE or kind in EVALUATORS or kind in NODE_EVALUATORS
    return not known and find_operator(node) is None and find_interpreted(node) is None


class _NoEvaluatorError(Exception):
    pass


def _decided(condition: torch.SymBool) -> bool | torch.SymBool:
    """Returns a condition on sizes as what it is for all of them, if it is the same for all."""
    if statically_known_true(condition):
        return True
    return False if statically_known_false(condition) else condition


def _always_raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


STRUCTURE: dict[str, Callable[[GraphRunner, torch._C.Node, Environment], None]] = {
    "prim::Constant": GraphRunner._constant,
    "prim::GetAttr": GraphRunner._get_attribute,
    "prim::SetAttr": GraphRunner._set_attribute,
    "prim::CallMethod": GraphRunner._call_method,
    "prim::If": GraphRunner._choose,
    "prim::Loop": GraphRunner._repeat,
}
"""What each kind of node does that is no call: constants, attributes, methods of an interface, branches and loops."""
