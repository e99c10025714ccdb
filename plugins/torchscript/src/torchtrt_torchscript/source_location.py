"""Where in a TorchScript graph something comes from."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt_torchscript.torch_internals import ScriptGraph, ScriptNode

SITE = "torchtrt_torchscript_site"
"""The key in a graph node's custom metadata."""


class Site:
    """A node of a TorchScript graph.

    Attributes:
        node: The node.
        graph: Its graph, which must live as long as the node is looked at.
    """

    __slots__ = ("graph", "node")

    def __init__(self, node: ScriptNode, graph: ScriptGraph) -> None:
        self.node = node
        self.graph = graph

    def __deepcopy__(self, memo: Any) -> Site:
        return self

    def __repr__(self) -> str:
        return f"Site({node_info(self.node)})"


def source_line(node: ScriptNode) -> str:
    """Returns the line of the model's source that made a node, with its file, or an empty string.

    For a node without one, such as a list of constants, it is the line of what uses it.
    """
    lines = str(node.sourceRange()).splitlines()
    if not lines:
        users = (use.user for value in node.outputs() for use in value.uses())
        return next(filter(None, map(source_line, users)), "")
    marks = [index for index, line in enumerate(lines) if "<--- HERE" in line]
    source = lines[marks[0] - 1] if marks and marks[0] > 0 else ""
    return f"{lines[0]}\n{source}".rstrip()


def site_of(node: torch.fx.Node) -> Site | None:
    """Returns where a node of an exported program comes from; ``None`` if not from TorchScript."""
    site = (node.meta.get("custom") or {}).get(SITE)
    return site if isinstance(site, Site) else None


def node_info(node: ScriptNode) -> str:
    """Returns a node in one line, for the names of layers: its outputs, its kind, its inputs.

    ``%y.1 = aten::relu(%x.1)``
    """
    outputs = ", ".join(f"%{value.debugName()}" for value in node.outputs())
    inputs = ", ".join(f"%{value.debugName()}" for value in node.inputs())
    call = f"{node.kind()}({inputs})"
    return f"{outputs} = {call}" if outputs else call
