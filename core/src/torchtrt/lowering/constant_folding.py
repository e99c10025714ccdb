"""Computes, once, what depends on no input."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection

import torch
from torch._subclasses.fake_impls import _like_tensor_constructors
from torch.fx import GraphModule, Node

from torchtrt.contract import constant_of
from torchtrt.lowering.aliasing import is_contiguous, writes
from torchtrt.registry import DYNAMO_CONVERTERS

GROWTH_LIMIT = 1 << 16
"""A folded value may have this many elements, or as many as its largest input, whichever is more: folding must not
turn a small weight and an ``expand`` into a large weight."""
_FILLING = frozenset(op for op in _like_tensor_constructors if "empty" not in str(op))
"""Ops that read the dtype and the device of their first argument, and perhaps its sizes, but none of its numbers."""


def fold_constants(graph_module: GraphModule, mutated: Collection[str] = ()) -> None:
    """Replaces nodes that depend on weights and literals only by their values: ``x.new_zeros(2)`` is one.

    So are tensors that are known to have no elements, whatever they depend on: nothing is to be
    computed. Random nodes, nodes with symbolic sizes, what packs keep and attributes in ``mutated`` are left alone.
    A view of a weight stays a view: it takes no memory of its own.
    """
    graph = graph_module.graph
    values: dict[Node, torch.Tensor] = {}
    folded: list[Node] = []
    for node in graph.nodes:
        if _is_empty(node):
            fake = node.meta["val"]
            values[node] = torch.empty(fake.shape, dtype=fake.dtype, device=fake.device)
            folded.append(node)
            continue
        if node.target not in mutated and (value := constant_of(node)) is not None:
            values[node] = value
        elif node.op == "call_function" and _is_foldable(node, values):
            given = functools.partial(_given, values=values, node=node)
            with torch.no_grad():
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), given)
                value = node.target(*args, **kwargs)
            if isinstance(value, torch.Tensor):
                values[node] = value
                folded.append(node)
    first_call = next(node for node in graph.nodes if node.op != "placeholder")
    names = map("_folded_{}".format, itertools.count())
    for node in folded:
        if all(user in values for user in node.users):
            continue  # only other folded nodes read it
        name = next(name for name in names if not hasattr(graph_module, name))
        setattr(graph_module, name, values[node])
        place = first_call if node.op == "placeholder" else node
        with graph.inserting_before(place):
            constant = graph.create_node("get_attr", name, name=f"{node.name}_folded")
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant, delete_user_cb=lambda user: not writes(user))
        if node.op == "call_function" and not node.users:
            graph.erase_node(node)  # even a random one
    graph.eliminate_dead_code()


def _is_empty(node: Node) -> bool:
    """Returns whether a node makes a tensor that is known to have no elements."""
    fake = node.meta.get("val")
    return (
        node.op in ("placeholder", "call_function")
        and isinstance(fake, torch.Tensor)
        and fake.layout is torch.strided
        and all(isinstance(size, int) for size in fake.shape)
        and fake.numel() == 0
        and not writes(node)
    )


def _is_foldable(node: Node, values: dict[Node, torch.Tensor]) -> bool:
    target, result = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(result, torch.Tensor):
        return False
    if writes(node) or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    if DYNAMO_CONVERTERS.is_kept(target):
        return False
    if not all(isinstance(size, int) for size in result.shape):
        return False
    unknown = [source for source in node.all_input_nodes if source not in values]
    only_fills = target in _FILLING and unknown == [node.args[0]] and is_contiguous(result)
    if unknown and not only_fills:
        return False
    inputs = (values[source].numel() for source in node.all_input_nodes if source in values)
    return result.numel() <= max(GROWTH_LIMIT, *inputs, 0)


def _given(source: Node, values: dict[Node, torch.Tensor], node: Node) -> torch.Tensor:
    """Returns an argument's value; of a tensor that is only filled like, one without memory for its numbers."""
    if source in values:
        return values[source]
    fake = source.meta["val"]
    return torch.empty((), dtype=fake.dtype, device=fake.device).expand(node.meta["val"].shape)
