"""Additions to a graph, and what its nodes are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from torchtrt.conversion import constant_of
from torchtrt.registry import RejectionCode
from torchtrt_converters_quantization.torch_internals import OpOverload

aten = torch.ops.aten

CASTS = (
    aten.to.dtype,
    aten._to_copy.default,
    aten.to.dtype_layout,
    torch.ops.prims.convert_element_type.default,
)
RESHAPES = (
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.dim,
    aten.unsqueeze.default,
)
TRANSPOSES = (aten.t.default, aten.transpose.int, aten.permute.default)


class Editor:
    """Adds nodes to a graph, with constants as attributes.

    Args:
        graph_module: The graph.
    """

    def __init__(self, graph_module: GraphModule) -> None:
        self.graph_module = graph_module
        self.graph = graph_module.graph
        self._names = (f"_quantized_{number}" for number in itertools.count())
        self._varying: set[Node] = set()

    def constant(self, value: Tensor, like: Node) -> Node:
        """Returns a node that reads a tensor, before ``like``."""
        name = next(name for name in self._names if not hasattr(self.graph_module, name))
        setattr(self.graph_module, name, value)
        with self.graph.inserting_before(like):
            node = self.graph.create_node("get_attr", name)
        node.meta["val"] = _fake(value, like)
        return node

    def call(
        self,
        op: Any,
        args: tuple[Any, ...],
        like: Node,
        kwargs: dict[str, Any] | None = None,
    ) -> Node:
        """Returns a new call before ``like``, with its place in the model."""
        with self.graph.inserting_before(like):
            node = self.graph.call_function(op, args, kwargs)
        for key in ("stack_trace", "nn_module_stack"):
            if key in like.meta:
                node.meta[key] = like.meta[key]
        values = torch.fx.map_arg(args, lambda argument: argument.meta["val"])
        with _mode_of(like):
            node.meta["val"] = op(*values, **(kwargs or {}))
        return node

    def replace(self, node: Node, by: Node) -> None:
        """Lets the users of a node read another, and removes it."""
        node.replace_all_uses_with(by)
        self.graph.erase_node(node)

    def computed_constant(self, node: Any) -> Tensor | None:
        """Returns the value of an argument that depends on constants only: where it is large, it was not folded."""
        if not isinstance(node, Node):
            return constant_of(node)
        values: dict[Node, Tensor] = {}
        path = [node]
        while path:
            last = path[-1]
            sources = last.all_input_nodes
            value = constant_of(last)
            unread = next((source for source in sources if source not in values), None)
            if value is None and last not in self._varying and _computes(last):
                if unread is not None:
                    path.append(unread)
                    continue
                value = _value_of(last, values)
            if value is None:
                self._varying.update(path)
                return None
            values[path.pop()] = value
        return values[node]


def _computes(node: Node) -> bool:
    """Returns whether a node computes the same tensor of the same values each time."""
    target = node.target
    return (
        isinstance(target, OpOverload)
        and target.namespace == "aten"
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
        and bool(node.all_input_nodes)
        and isinstance(node.meta.get("val"), Tensor)
    )


def _value_of(node: Node, values: Mapping[Node, Tensor]) -> Tensor | None:
    """Returns what a node computes of the values of its arguments."""
    target: Any = node.target
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
    with torch.no_grad():
        result = target(*args, **kwargs)
    return result if isinstance(result, Tensor) else None


def _mode_of(node: Node) -> Any:
    return node.meta["val"].fake_mode


def _fake(value: Tensor, like: Node) -> Tensor:
    with _mode_of(like):
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )


def cast(editor: Editor, node: Any, dtype: torch.dtype, before: Node) -> Node:
    """Returns a node in a dtype."""
    if node.meta["val"].dtype is dtype:
        same: Node = node
        return same
    return editor.call(aten._to_copy.default, (node,), before, {"dtype": dtype})


def leave(node: Node, reason: str, code: RejectionCode = "declined") -> None:
    """Leaves a node to PyTorch."""
    from torchtrt.graphs import leave_in_torch  # slow to import

    leave_in_torch(node, reason, code)


def only_user(node: Node) -> Node | None:
    """Returns the node that reads another, if it is one, and one time."""
    users = list(node.users)
    if len(users) != 1 or users[0].all_input_nodes.count(node) != 1:
        return None
    return users[0] if users[0].op == "call_function" else None


def other_constant(product: Node, factor: Node) -> Tensor | None:
    """Returns the constant that a node multiplies by."""
    others = [argument for argument in product.args[:2] if argument is not factor]
    if len(others) != 1:
        return None
    if isinstance(others[0], (int, float)):
        return torch.tensor(float(others[0]))
    return constant_of(others[0])


def computed_on(steps: list[Node], source: Node, value: Tensor) -> Tensor:
    """Returns what a chain of nodes makes of another value of its first argument."""
    values = {source: value}
    for step in steps:
        args, kwargs = torch.fx.map_arg((step.args, step.kwargs), values.__getitem__)
        function: Any = step.target
        values = {step: function(*args, **kwargs)}
    return next(iter(values.values()))
