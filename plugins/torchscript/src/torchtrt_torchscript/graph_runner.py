"""Runs a TorchScript graph with PyTorch, one node after the other.

Under ``torch.export``, this turns a TorchScript graph into an exported program. Values that are known when the model is
compiled (numbers, lists, branches and trip counts that do not depend on data) are evaluated and leave no trace.
Operators on tensors are called and so recorded. Control flow that depends on data becomes ``cond`` and ``while_loop``.
Every recorded op carries the ``Site`` that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    statically_known_false,
    statically_known_true,
)
from torch.fx.traceback import annotate

from torchtrt.errors import ExportError, TorchTRTError
from torchtrt.torch_internals import pytree
from torchtrt_torchscript.branches_and_loops import run_branch, run_loop
from torchtrt_torchscript.graphs import (
    Environment,
    every_node,
    makes_tensors,
    schema_of,
    written_inputs,
)
from torchtrt_torchscript.memory import Memory, StandIn, tensors_in
from torchtrt_torchscript.node_evaluators import (
    ABOUT_TENSORS,
    EVALUATORS,
    FUNCTIONS,
    NODE_EVALUATORS,
    Instance,
)
from torchtrt_torchscript.number_evaluators import sym_float
from torchtrt_torchscript.numbers import (
    DependsOnDataError,
    as_known,
    is_symbolic,
    is_undecided,
)
from torchtrt_torchscript.operators import (
    VIEWS_BY_LAYOUT,
    element_of,
    find_interpreted,
    find_operator,
)
from torchtrt_torchscript.source_location import SITE, Site, source_line
from torchtrt_torchscript.torch_internals import ScriptGraph, ScriptNode


class GraphRunner:
    """Runs one graph.

    Args:
        graph: An inlined graph.
        constants: What gives the constants of the graph that are registered elsewhere, by the number of the value.
    """

    def __init__(
        self, graph: ScriptGraph, constants: Mapping[int, Callable[[], Any]] | None = None
    ) -> None:
        self.graph = graph
        self.memory = Memory()
        self.assuming: list[ScriptNode] = []
        self._guards = 0
        self._stored: dict[tuple[int, str], tuple[Tensor, Any]] = {}
        self._constants = constants or {}

    def run(self, inputs: Sequence[Any], caller: GraphRunner | None = None) -> Any:
        """Returns what the graph returns: one value, or a tuple of several.

        Args:
            inputs: What the graph is given.
            caller: Runs the graph that calls this one, if one does.
        """
        env: Environment = {}
        self.assign(env, self.graph.inputs(), inputs)
        if caller is None:
            self.memory, self.assuming, self._stored, self._guards = Memory(), [], {}, 0
            self.memory.outlives(list(inputs))
            results = self.run_block(self.graph, env)
            self.memory.reads(results, self.graph.return_node())
            results = self._store(results)
        else:
            self.memory, self.assuming, self._stored = (
                caller.memory,
                caller.assuming,
                caller._stored,
            )
            results = self.run_block(self.graph, env)
        return results[0] if len(results) == 1 else tuple(results)

    def _store(self, results: list[Any]) -> list[Any]:
        """Writes what the model has stored to its buffers, at the end: until then old and new are two tensors.

        Returns:
            The results, with copies of those that the old buffers hold.
        """
        self.memory.reads([value for _, value in self._stored.values()], self.graph.return_node())
        buffers = [buffer for buffer, _ in self._stored.values()]
        values = [value.clone() for _, value in self._stored.values()]

        def apart(leaf: Any) -> Any:
            is_old = isinstance(leaf, Tensor) and any(
                self.memory.may_share(leaf, buffer) for buffer in buffers
            )
            return leaf.clone() if is_old else leaf

        results = [pytree.tree_map(apart, result, is_leaf=is_undecided) for result in results]
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value)
        return results

    def assign(self, env: Environment, values: Iterable[Any], results: Sequence[Any]) -> None:
        """Gives values of the graph their results."""
        for value, result in zip(values, results, strict=True):
            env[value.unique()] = result

    def run_block(self, block: Any, env: Environment) -> list[Any]:
        """Runs the nodes of a block, or of the graph; returns its outputs."""
        for node in block.nodes():
            self.run_node(node, env)
        return [env[value.unique()] for value in block.outputs()]

    def run_node(self, node: ScriptNode, env: Environment) -> None:
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
                if kind not in ABOUT_TENSORS:
                    self.memory.reads(args if find_operator(node) else tensors_among(args), node)
                result = call(node, args)
                if kind in VIEWS_BY_LAYOUT and self.memory.is_laid_out_anew(args[0]):
                    result = result.clone()
                    self.memory.stand_in(StandIn(result, [args[0]], node))
                self._note_memory(node, args, result)
        except TorchTRTError:
            raise
        except _NoEvaluatorError:
            raise ExportError(self._everything_without_evaluator()) from None
        except Exception as error:
            message = f"{_what_failed(node, args, error)}\n{source_line(node)}"
            raise ExportError(
                message
            ) from None  # the rest of PyTorch's error is about its own code
        self._note_assumptions(node, args)
        outputs = list(node.outputs())
        if outputs:
            self.assign(env, outputs, (result,) if len(outputs) == 1 else result)

    def _everything_without_evaluator(self) -> str:
        uses: dict[str, list[str]] = {}
        for node in filter(has_no_evaluator, every_node(self.graph)):
            uses.setdefault(schema_of(node), []).append(source_line(node))
        lines = [
            line
            for schema, source_lines in uses.items()
            for line in (schema, *dict.fromkeys(source_lines))
        ]
        return "\n".join(("torchtrt has no evaluator for what the model uses:", *lines))

    def _note_assumptions(self, node: ScriptNode, args: Sequence[Any]) -> None:
        """Records which nodes assume something about dynamic sizes: PyTorch reports only that something did."""
        for leaf in pytree.tree_leaves(args, is_leaf=is_undecided):
            for size in leaf.shape if isinstance(leaf, Tensor) else (leaf,):
                if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                    count = len(size.node.shape_env.guards)
                    if count > self._guards:
                        self.assuming.append(node)
                    self._guards = count
                    return

    def _note_memory(self, node: ScriptNode, args: Sequence[Any], result: Any) -> None:
        """Records what a node's result stands in for, and what the node has written to."""
        if element := element_of(node.kind(), args):
            tensor, source = result, args[0]
            self.memory.stand_in(
                StandIn(
                    tensor,
                    [source],
                    node,
                    lambda: element.read(source),
                    lambda: element.write(source, tensor),
                )
            )
        if find_operator(node) is None:
            return
        written = {value.unique() for value in written_inputs(node)}
        for value, arg in zip(node.inputs(), args, strict=True):
            if value.unique() in written:
                for tensor in tensors_in(arg):
                    self.memory.writes(tensor, node)

    # Structure

    def _constant(self, node: ScriptNode, env: Environment) -> None:
        name = node.output().unique()
        registered = self._constants.get(name)
        env[name] = registered() if registered is not None else node.output().toIValue()
        if isinstance(env[name], Tensor):
            self.memory.outlives(env[name])

    def _get_attribute(self, node: ScriptNode, env: Environment) -> None:
        owner = env[node.input().unique()]
        if (id(owner), node.s("name")) in self._stored:
            _, env[node.output().unique()] = self._stored[id(owner), node.s("name")]
            return
        value = env[node.output().unique()] = owner.get(node.s("name"))
        if isinstance(value, Tensor) and not isinstance(owner, Instance):
            self.memory.outlives(value)

    def _set_attribute(self, node: ScriptNode, env: Environment) -> None:
        owner, value = (env[input_.unique()] for input_ in node.inputs())
        name = node.s("name")
        if isinstance(owner, Instance):
            owner.set(name, value)
        else:
            self._stored[id(owner), name] = owner.buffer_for(name, value), value

    def _call_method(self, node: ScriptNode, env: Environment) -> None:
        owner, *args = (env[value.unique()] for value in node.inputs())
        graph = owner.graph_of(node.s("name"))
        env[node.output().unique()] = GraphRunner(graph).run((owner, *args), self)

    def _fork(self, node: ScriptNode, env: Environment) -> None:
        """Runs what is forked at once: nothing that it computes depends on when."""
        args = [env[value.unique()] for value in node.inputs()]
        env[node.output().unique()] = GraphRunner(node.g("Subgraph")).run(args, self)

    def _choose(self, node: ScriptNode, env: Environment) -> None:
        """Runs ``prim::If``: the branch that is chosen where the condition is known, and otherwise both, as one op."""
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

    def _repeat(self, node: ScriptNode, env: Environment) -> None:
        """Runs ``prim::Loop``: unrolled as long as its condition is known, and from there on as one op."""
        limit, condition, *carried = (env[value.unique()] for value in node.inputs())
        (body,) = node.blocks()
        trip = 0
        while True:
            if isinstance(condition, torch.SymBool):
                condition = _decided(condition)
            if not (isinstance(condition, bool) and isinstance(limit, int)):
                break
            if trip >= limit or not condition:
                self.assign(env, node.outputs(), carried)
                return
            self.assign(env, body.inputs(), (trip, *carried))
            condition, *carried = self.run_block(body, env)
            trip += 1
        carried = run_loop(self, node, trip, limit, condition, carried, env)
        self.assign(env, node.outputs(), carried)


def call(node: ScriptNode, args: Sequence[Any]) -> Any:
    """Returns what a node computes.

    PyTorch's op is called if it makes tensors, else an evaluator. A node with neither is
    left to TorchScript's own interpreter if all arguments are known.
    """
    kind, operator = node.kind(), find_operator(node)
    if kind in NODE_EVALUATORS:
        return NODE_EVALUATORS[kind](node, *args)
    evaluator = EVALUATORS.get(kind)
    if kind in FUNCTIONS and not makes_tensors(node) and is_symbolic(args):
        evaluator = FUNCTIONS[kind]
    if operator is not None and (evaluator is None or makes_tensors(node)):
        return as_known(kind, args, operator(*args))
    if evaluator is not None:
        result = evaluator(*args)
        types = [str(value.type()) for value in node.outputs()]
        return _as_fraction(result) if types == ["float"] else result
    interpreted = find_interpreted(node)
    if interpreted is None:
        raise _NoEvaluatorError
    if is_symbolic(args):
        raise DependsOnDataError
    return interpreted(*args)


def _as_fraction(result: Any) -> Any:
    """Returns what an evaluator made as the float that it is by TorchScript's types."""
    return sym_float(result) if type(result) in (int, torch.SymInt) else result


def _what_failed(node: ScriptNode, args: Sequence[Any], error: Exception) -> str:
    """Returns the sentence for an error that a node raised."""
    if isinstance(error, GuardOnDataDependentSymNode) and not is_symbolic(args):
        return (
            f"{node.kind()} asks for a size that is known when the model is compiled; here a size of a tensor that it "
            "takes depends on data, or on a computation with tensors."
        )
    if isinstance(error, (DependsOnDataError, GuardOnDataDependentSymNode)) or is_symbolic(args):
        return (
            f"{node.kind()} takes numbers that are known when the model is compiled; here one depends on data or on a "
            "dynamic size."
        )
    reason = str(error).strip().splitlines() or [""]
    return f"{node.kind()} failed: {type(error).__name__}: {reason[0]}"


def tensors_among(args: Sequence[Any]) -> list[Tensor]:
    """Returns the arguments that are tensors; what is in lists is not read by what only moves lists about."""
    return [arg for arg in args if isinstance(arg, Tensor)]


def has_no_evaluator(node: ScriptNode) -> bool:
    """Returns whether a node is neither structure, nor evaluated, nor an op of PyTorch."""
    kind = node.kind()
    is_evaluated = kind in STRUCTURE or kind in EVALUATORS or kind in NODE_EVALUATORS
    return not is_evaluated and find_operator(node) is None and find_interpreted(node) is None


class _NoEvaluatorError(Exception):
    pass


def _decided(condition: torch.SymBool) -> bool | torch.SymBool:
    """Returns a condition on sizes as what it is for all of them, if it is the same for all."""
    if statically_known_true(condition):
        return True
    return False if statically_known_false(condition) else condition


def _always_raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


STRUCTURE: dict[str, Callable[[GraphRunner, ScriptNode, Environment], None]] = {
    "prim::Constant": GraphRunner._constant,
    "prim::GetAttr": GraphRunner._get_attribute,
    "prim::SetAttr": GraphRunner._set_attribute,
    "prim::CallMethod": GraphRunner._call_method,
    "prim::fork": GraphRunner._fork,
    "prim::If": GraphRunner._choose,
    "prim::Loop": GraphRunner._repeat,
}
"""The handlers of nodes that are no calls: constants, attributes, methods of an interface, branches and loops."""
