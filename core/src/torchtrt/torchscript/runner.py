"""Runs a TorchScript graph with PyTorch, one node after the other.

Under ``torch.export`` this is how a TorchScript graph becomes an exported program: what is known when the model is
compiled (numbers, lists, branches and trip counts that do not depend on data) is evaluated and leaves no
trace, operators on tensors are called and so recorded, and control flow that depends on data becomes ``cond`` and
``while_loop``. Every recorded operator carries the :class:`Site` that it comes from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_false, statically_known_true
from torch.fx.traceback import annotate
from torch.utils import _pytree as pytree

from torchtrt.errors import ExportError
from torchtrt.torchscript.evaluators import EVALUATORS, NODE_EVALUATORS, RaisedError, Undecided
from torchtrt.torchscript.operators import find_operator, makes_tensors
from torchtrt.torchscript.site import SITE, Site, model_line

_NO_LIMIT = 2**31 - 1
"""TorchScript writes the greatest integer where a loop's trips are not counted."""
Environment = dict[int, Any]
"""The value of each graph value, by its number."""


class GraphRunner:
    """Runs one graph.

    Args:
        graph: An inlined graph.
    """

    def __init__(self, graph: torch._C.Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[Any]) -> Any:
        """Returns what the graph returns: one value, or a tuple of several."""
        env: Environment = {}
        _assign(env, self.graph.inputs(), inputs)
        results = self._run_block(self.graph, env)
        return results[0] if len(results) == 1 else tuple(results)

    def _run_block(self, block: Any, env: Environment) -> list[Any]:
        for node in block.nodes():
            self._run_node(node, env)
        return [env[value.unique()] for value in _outputs(block)]

    def _run_node(self, node: torch._C.Node, env: Environment) -> None:
        kind = node.kind()
        if kind in STRUCTURE:
            STRUCTURE[kind](self, node, env)
            return
        args = [env[value.unique()] for value in node.inputs()]
        try:
            with annotate({SITE: Site(node, self.graph)}):
                result = call(node, args)
        except (ExportError, RaisedError):
            raise
        except _NoEvaluatorError as error:
            raise ExportError(self._everything_without_evaluator()) from error
        except Exception as error:
            message = f"{kind} failed: {type(error).__name__}: {error}\n{model_line(node)}"
            raise ExportError(message) from error
        outputs = list(node.outputs())
        if outputs:
            _assign(env, outputs, (result,) if len(outputs) == 1 else result)

    def _everything_without_evaluator(self) -> str:
        uses: dict[str, list[str]] = {}
        for node in filter(has_no_evaluator, all_nodes(self.graph)):
            uses.setdefault(schema_of(node), []).append(model_line(node))
        lines = [line for schema, found in uses.items() for line in (schema, *dict.fromkeys(found))]
        return "\n".join(("torchtrt has no evaluator for what the model uses:", *lines))

    # Structure

    def _constant(self, node: torch._C.Node, env: Environment) -> None:
        env[node.output().unique()] = node.output().toIValue()

    def _get_attribute(self, node: torch._C.Node, env: Environment) -> None:
        owner = env[node.input().unique()]
        env[node.output().unique()] = owner.get(node.s("name"))

    def _set_attribute(self, node: torch._C.Node, env: Environment) -> None:
        owner, value = (env[each.unique()] for each in node.inputs())
        owner.set(node.s("name"), value)

    def _choose(self, node: torch._C.Node, env: Environment) -> None:
        condition = env[node.input().unique()]
        then, otherwise = node.blocks()
        if isinstance(condition, torch.SymBool):
            condition = _decided(condition)
        if isinstance(condition, bool):
            results = self._run_block(then if condition else otherwise, env)
        elif _always_raises(then) or _always_raises(otherwise):
            # A check of the data: a compiled model takes it to hold.
            results = self._run_block(otherwise if _always_raises(then) else then, env)
        else:
            results = self._cond(node, condition, then, otherwise, env)
        _assign(env, node.outputs(), results)

    def _repeat(self, node: torch._C.Node, env: Environment) -> None:
        limit, condition, *carried = (env[value.unique()] for value in node.inputs())
        (body,) = node.blocks()
        trip = 0
        while isinstance(condition, bool) and isinstance(limit, int):
            if trip >= limit or not condition:
                _assign(env, node.outputs(), carried)
                return
            _assign(env, body.inputs(), (trip, *carried))
            condition, *carried = self._run_block(body, env)
            trip += 1
        carried = self._while_loop(node, body, trip, limit, condition, carried, env)
        _assign(env, node.outputs(), carried)

    # Control flow that depends on data

    def _cond(
        self, node: torch._C.Node, condition: Any, then: Any, otherwise: Any, env: Environment
    ) -> list[Any]:
        captured = _Captured(env, self._read_inside((then, otherwise), env))
        kinds = [str(value.type()) for value in node.outputs()]

        def branch(block: Any) -> Callable[..., tuple[Any, ...]]:
            def run(*operands: Any) -> tuple[Any, ...]:
                with captured.within(operands, node) as inner:
                    return _as_tensors(self._run_block(block, inner), operands, node)

            return run

        predicate = condition.tensor if isinstance(condition, Undecided) else condition
        with annotate({SITE: Site(node, self.graph)}):
            results = torch.ops.higher_order.cond(
                predicate, branch(then), branch(otherwise), tuple(captured.operands)
            )
        return _as_values(results, kinds)

    def _while_loop(
        self,
        node: torch._C.Node,
        body: Any,
        trip: int,
        limit: Any,
        condition: Any,
        carried: Sequence[Any],
        env: Environment,
    ) -> list[Any]:
        captured = _Captured(env, self._read_inside((body,), env))
        kinds = [str(value.type()) for value in node.outputs()]
        start = _as_tensors((trip, condition, *carried), (), node)
        is_limited = not isinstance(limit, int) or limit < _NO_LIMIT
        limits = _as_tensors((limit,) if is_limited else (), (), node)

        def test(*operands: Any) -> Tensor:
            index, going, *_ = operands
            return torch.logical_and(going, index < operands[-1]) if limits else going.clone()

        def step(*operands: Any) -> tuple[Any, ...]:
            inside, outside = operands[: len(start)], operands[len(start) :]
            with captured.within(outside[: len(captured.operands)], node) as inner:
                values = (Undecided(inside[0]), *_as_values(inside[2:], kinds))
                _assign(inner, body.inputs(), values)
                results = _as_tensors(self._run_block(body, inner), operands, node)
            return (inside[0] + 1, *results)

        results: list[Any]
        with annotate({SITE: Site(node, self.graph)}):
            _, _, *results = torch.ops.higher_order.while_loop(
                test, step, start, (*captured.operands, *limits)
            )
        return _as_values(results, kinds)

    def _read_inside(self, blocks: Sequence[Any], env: Environment) -> list[int]:
        """Returns what blocks read from outside, after reading attributes and constants early."""
        nodes = [node for block in blocks for node in all_nodes(block)]
        for node in nodes:
            known = all(value.unique() in env for value in node.inputs())
            if node.kind() in ("prim::GetAttr", "prim::Constant") and known:
                self._run_node(node, env)
        inner = [inner for node in nodes for inner in node.blocks()]
        read = [value for node in nodes for value in node.inputs()]
        read += [value for block in (*blocks, *inner) for value in _outputs(block)]
        return sorted({value.unique() for value in read} & env.keys())


class _Captured:
    """What a branch or a loop's body reads from outside: its tensors and sizes become operands.

    Args:
        env: The values outside.
        names: Those that are read inside.

    Attributes:
        operands: The tensors and symbolic sizes among them, in order, also those inside lists and dictionaries.
    """

    def __init__(self, env: Environment, names: Iterable[int]) -> None:
        self._env = env
        self._trees: dict[int, tuple[list[Any], pytree.TreeSpec]] = {}
        self.operands: list[Any] = []
        for name in names:
            leaves, tree = pytree.tree_flatten(env[name], is_leaf=_is_undecided)
            if any(map(_is_operand, leaves)):
                self._trees[name] = leaves, tree
                self.operands += [_unwrapped(leaf) for leaf in leaves if _is_operand(leaf)]

    @contextlib.contextmanager
    def within(self, operands: Sequence[Any], node: torch._C.Node) -> Iterator[Environment]:
        """Yields the values for the inside.

        Raises:
            ExportError: The inside has changed a list or dictionary from outside.
        """
        given, inner = iter(operands), dict(self._env)
        for name, (leaves, tree) in self._trees.items():
            filled = [
                (Undecided(next(given)) if _is_undecided(leaf) else next(given))
                if _is_operand(leaf)
                else leaf
                for leaf in leaves
            ]
            inner[name] = pytree.tree_unflatten(filled, tree)
        yield inner
        for name, (_, tree) in self._trees.items():
            if pytree.tree_structure(inner[name], is_leaf=_is_undecided) != tree:
                message = (
                    f"{node.kind()} depends on data and changes a list or dictionary from outside. Build it from "
                    f"tensors that the branch or loop returns.\n{model_line(node)}"
                )
                raise ExportError(message)


def _is_undecided(value: Any) -> bool:
    return isinstance(value, Undecided)


def _is_operand(leaf: Any) -> bool:
    return isinstance(leaf, (Undecided, Tensor, torch.SymInt))


def _unwrapped(leaf: Any) -> Any:
    return leaf.tensor if isinstance(leaf, Undecided) else leaf


def _decided(condition: torch.SymBool) -> bool | torch.SymBool:
    """Returns a condition on sizes as what it is for all of them, if it is the same for all."""
    if statically_known_true(condition):
        return True
    return False if statically_known_false(condition) else condition


def _as_tensors(
    results: Sequence[Any], inputs: Sequence[Any], node: torch._C.Node
) -> tuple[Tensor, ...]:
    """Returns what a branch or a loop's body makes as tensors, none of which is one of its inputs.

    Raises:
        ExportError: It makes something other than tensors and numbers.
    """
    tensors = []
    for result in results:
        value = _unwrapped(result)
        if isinstance(value, (bool, int, float, torch.SymInt)):
            value = _number(value)
        if not isinstance(value, Tensor):
            message = (
                f"{node.kind()} depends on data and makes a {type(value).__name__}. What a compiled branch or loop "
                f"makes must be tensors and numbers.\n{model_line(node)}"
            )
            raise ExportError(message)
        tensors.append(value.clone() if any(value is each for each in inputs) else value)
    return tuple(tensors)


def _as_values(tensors: Sequence[Tensor], kinds: Sequence[str]) -> list[Any]:
    """Returns what a branch or loop made by its types in the graph: numbers are undecided."""
    return [
        Undecided(tensor) if kind in ("int", "float", "bool") else tensor
        for tensor, kind in zip(tensors, kinds, strict=True)
    ]


def call(node: torch._C.Node, args: Sequence[Any]) -> Any:
    """Returns what a node computes, by PyTorch's operator if it makes tensors, else by an evaluator."""
    operator, evaluator = find_operator(node), EVALUATORS.get(node.kind())
    if operator is not None and (evaluator is None or makes_tensors(node)):
        return operator(*args)
    if evaluator is not None:
        result = evaluator(*args)
        is_whole = isinstance(result, int) and not isinstance(result, bool)
        return float(result) if is_whole and str(node.output().type()) == "float" else result
    if node.kind() in NODE_EVALUATORS:
        return NODE_EVALUATORS[node.kind()](node, *args)
    raise _NoEvaluatorError


def schema_of(node: torch._C.Node) -> str:
    """Returns the schema of what a node calls, or its kind where it has none."""
    schema = node.schema()
    return node.kind() if schema == "(no schema)" else schema


def has_no_evaluator(node: torch._C.Node) -> bool:
    """Returns whether a node is neither structure, nor evaluated, nor an operator of PyTorch."""
    kind = node.kind()
    known = kind in STRUCTURE or kind in EVALUATORS or kind in NODE_EVALUATORS
    return not known and find_operator(node) is None


class _NoEvaluatorError(Exception):
    pass


def _assign(env: Environment, values: Iterable[Any], results: Sequence[Any]) -> None:
    for value, result in zip(values, results, strict=True):
        env[value.unique()] = result


def _outputs(block: Any) -> list[torch._C.Value]:
    return list(block.outputs())


def all_nodes(block: Any) -> Iterator[Any]:
    """Yields the nodes of a block or graph, and those of the blocks inside it."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from all_nodes(inner)


def _always_raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _number(value: Any) -> Tensor:
    kind = torch.float64 if isinstance(value, float) else torch.int64
    return torch.full((), value, dtype=torch.bool if isinstance(value, bool) else kind)


STRUCTURE: dict[str, Callable[[GraphRunner, torch._C.Node, Environment], None]] = {
    "prim::Constant": GraphRunner._constant,
    "prim::GetAttr": GraphRunner._get_attribute,
    "prim::SetAttr": GraphRunner._set_attribute,
    "prim::If": GraphRunner._choose,
    "prim::Loop": GraphRunner._repeat,
}
"""What each kind of node does that is no call: constants, attributes, branches and loops."""
