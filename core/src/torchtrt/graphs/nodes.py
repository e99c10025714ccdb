"""Facts about graph nodes: who converts one, the graphs inside it, whether it writes, and the model's line."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch.fx import GraphModule, Node

from torchtrt.capability import Capability
from torchtrt.contract import arguments_of
from torchtrt.registry.candidate import RejectionCode, Resolution
from torchtrt.torch_internals import HigherOrderOperator, OpOverload

_RESOLUTION = "torchtrt_resolution"
_LEFT = "torchtrt_left_in_torch"
_MISSED = "torchtrt_missed_layers"
_ENGINE_NAMES = "torchtrt_engine_names"
_GROUP = "torchtrt_group"
_NEVER_FOLDED = "torchtrt_never_folded"
_NUMBER = "torchtrt_number"
_CHANCES = ("dropout_p", "dropout", "train")
"""The arguments of attention and recurrent layers without which they draw no random numbers."""


def resolution_of(node: Node) -> Resolution | None:
    """Returns the resolution of ``node``, or ``None`` before the registry has looked it up."""
    return node.meta.get(_RESOLUTION)


def remember_resolution(node: Node, resolution: Resolution) -> None:
    """Keeps the registry's answer with ``node``, for partitioning and conversion."""
    node.meta[_RESOLUTION] = resolution


def leave_in_torch(node: Node, reason: str, code: RejectionCode = "no-converter") -> None:
    """Leaves a node to PyTorch, whatever converters there are. A lowering pass calls it.

    Args:
        node: The node.
        reason: Why, as a sentence for reports.
        code: The kind of reason. A node with the code ``"view"`` costs nothing, so that it may stay in PyTorch where
            ``require_full_compilation`` is set.
    """
    node.meta[_LEFT] = (reason, code)


def left_in_torch(node: Node) -> tuple[str, RejectionCode] | None:
    """Returns the reason and its code that ``leave_in_torch`` was given, or ``None``."""
    return node.meta.get(_LEFT)


def miss_layer(node: Node, capability: Capability, reason: str) -> None:
    """Notes for the report why a node does not become a layer that TensorRT has. A lowering pass calls it.

    Args:
        node: The last node of a pattern that is nearly the layer.
        capability: The layer.
        reason: What is different, without a period.
    """
    node.meta[_MISSED] = {**missed_layers(node), capability: reason}


def missed_layers(node: Node) -> dict[Capability, str]:
    """Returns the reasons that ``miss_layer`` was given."""
    missed: dict[Capability, str] = node.meta.get(_MISSED, {})
    return missed


def name_in_engine(node: Node, names: Sequence[str]) -> None:
    """Names tensors of the engine that a block becomes.

    Args:
        node: An input of the block, or its output node.
        names: The input's name, or the names of all outputs.
    """
    node.meta[_ENGINE_NAMES] = tuple(names)


def engine_names(node: Node) -> tuple[str, ...]:
    """Returns the names that ``name_in_engine`` was given; empty if there are none."""
    names: tuple[str, ...] = node.meta.get(_ENGINE_NAMES, ())
    return names


def put_into_group(node: Node, group: int | None) -> None:
    """Puts a node into a group, if one is given: no engine has nodes of two groups. A lowering pass calls it.

    Args:
        node: The node.
        group: The number of the group, in the order in which groups run.
    """
    if group is not None:
        node.meta[_GROUP] = group


def group_of(node: Node) -> int | None:
    """Returns the number of a node's group, or ``None``."""
    return node.meta.get(_GROUP)


def never_fold(node: Node) -> None:
    """Keeps a node in the graph although all that it reads is constant. A lowering pass calls it."""
    node.meta[_NEVER_FOLDED] = True


def is_never_folded(node: Node) -> bool:
    """Returns whether ``never_fold`` was called for a node."""
    return _NEVER_FOLDED in node.meta


def mark_number(node: Node) -> None:
    """Marks an input whose first size is a number that callers pass. It has no elements."""
    node.meta[_NUMBER] = True


def is_number(node: Node) -> bool:
    """Returns whether ``mark_number`` was called for an input."""
    return _NUMBER in node.meta


def inner_graphs(node: Node) -> list[GraphModule]:
    """Returns the graphs inside a node: the branches of ``cond``, the condition and the body of ``while_loop``."""
    owner = node.graph.owning_module
    if not isinstance(node.target, HigherOrderOperator) or owner is None:
        return []
    attributes = [source for source in node.all_input_nodes if source.op == "get_attr"]
    values = [attrgetter(str(source.target))(owner) for source in attributes]
    return [value for value in values if isinstance(value, GraphModule)]


def all_graphs(graph_module: GraphModule) -> list[GraphModule]:
    """Returns a graph, and those of its branches and loops at every depth."""
    return [module for module in graph_module.modules() if isinstance(module, GraphModule)]


def all_nodes(graph_module: GraphModule) -> list[Node]:
    """Returns the nodes of a graph, and those of its branches and loops at every depth."""
    return [node for graph in all_graphs(graph_module) for node in graph.graph.nodes]


def model_line(node: Node) -> str:
    """Returns the innermost line of the model's source that made ``node``, or an empty string."""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    frame_indices = [
        index for index, line in enumerate(lines) if line.lstrip().startswith('File "')
    ]
    files = [
        index for index in frame_indices if '"<eval_with_key>' not in lines[index]
    ]  # FX's own code
    return ": ".join(line.strip() for line in lines[files[-1] : files[-1] + 2]) if files else ""


def mutates(node: Node) -> bool:
    """Returns whether a call writes to one of its arguments."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def writes(node: Node) -> bool:
    """Returns whether a call writes to its first argument, or is a view of it that others only write to."""
    return mutates(node) or (
        isinstance(node.target, OpOverload)
        and declares_alias(node.target)
        and bool(node.users)
        and all(user.args[:1] == (node,) and writes(user) for user in node.users)
    )


def draws_random_numbers(node: Node) -> bool:
    """Returns whether a call of a function draws random numbers, which are to be PyTorch's own."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = vars(arguments_of(node))
    return all(arguments[name] for name in _CHANCES if name in arguments)


def declares_alias(target: OpOverload) -> bool:
    """Returns whether an op's schema declares that a result is an argument's memory."""
    return any(value.alias_info is not None for value in target._schema.returns)


def assign(root: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Sets an attribute by its path, making the modules that are missing on the way."""
    *path, leaf = name.split(".")
    for part in path:
        if not isinstance(getattr(root, part, None), torch.nn.Module):
            setattr(root, part, torch.nn.Module())
        root = getattr(root, part)
    setattr(root, leaf, tensor)
