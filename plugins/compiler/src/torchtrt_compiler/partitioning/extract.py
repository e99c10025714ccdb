"""Rebuilds a partitioned graph with one submodule per block."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, GraphModule, Node

from torchtrt.graphs.nodes import writes
from torchtrt_compiler.partitioning.blocks import Partition, is_scalar, tensor_inputs
from torchtrt_compiler.torch_internals import GraphModuleOfLateCode


def extract_blocks(
    graph_module: GraphModule, partition: Partition, mutated: frozenset[str] = frozenset()
) -> tuple[GraphModule, dict[str, GraphModule]]:
    """Returns the graph with each block as a call of one submodule, and those submodules by name.

    The submodules run in PyTorch as they are; compilation replaces each by an engine of the same inputs and outputs.

    Args:
        graph_module: The lowered graph.
        partition: Its blocks.
        mutated: Attributes the graph writes to; blocks take them as inputs, not as constants.
    """
    return _Extraction(graph_module, partition, mutated).run()


@dataclass
class _Extraction:
    source: GraphModule
    partition: Partition
    mutated: frozenset[str]
    graph: Graph = field(default_factory=Graph)
    env: dict[Node, Node] = field(default_factory=dict)
    blocks: dict[str, GraphModule] = field(default_factory=dict)

    def run(self) -> tuple[GraphModule, dict[str, GraphModule]]:
        """Returns the graph that calls the blocks, and each block by its name."""
        nodes = self.source.graph.nodes
        in_blocks = {node for block in self.partition.blocks.values() for node in block}
        levels = self.partition.levels
        for node in nodes:
            if node.op == "placeholder":
                self.env[node] = self.graph.node_copy(node)
        last = [node for node in nodes if writes(node)]
        for level in range(-1, max(levels.values(), default=-1) + 1):
            if level in self.partition.blocks:
                self.add_block(f"block_{len(self.blocks)}", self.partition.blocks[level])
            for node in levels:
                if levels[node] == level and node not in in_blocks and not writes(node):
                    self.copy(node)
        output = self.source.graph.output_node()
        for node in (*output.all_input_nodes, *last):  # what is read, numbers too, is from before
            self.copy(node)
        self.graph.output(torch.fx.map_arg(output.args[0], self.copy)).meta = dict(output.meta)
        for name, block in self.blocks.items():
            self.source.add_submodule(name, block)
        return GraphModule(self.source, self.graph, class_name="CompiledGraph"), self.blocks

    def copy(self, node: Node) -> Node:
        return _copy(node, self.graph, self.env)

    def add_block(self, name: str, members: tuple[Node, ...]) -> None:
        """Makes a graph module of a block's nodes, and calls it in the new graph."""
        inside = set(members)
        graph = Graph()
        env: dict[Node, Node] = {}
        inputs = [
            source
            for source in dict.fromkeys(s for node in members for s in tensor_inputs(node))
            if source not in inside and not self.is_constant(source)
        ]
        # Engines have the inputs and outputs of the model in its order: tools that have no names go by it.
        inputs = _in_order_of(self.source.graph.find_nodes(op="placeholder"), inputs)
        for source in inputs:
            env[source] = graph.placeholder(source.name)
            env[source].meta = dict(source.meta)

        for node in members:
            _copy(node, graph, env)
        outputs = [
            node for node in members if any(self.leaves(node, user, inside) for user in node.users)
        ]
        outputs = _in_order_of(self.source.graph.output_node().all_input_nodes, outputs)
        graph.output(tuple(env[node] for node in outputs))
        self.blocks[name] = GraphModuleOfLateCode(self.source, graph, class_name="Block")
        call = self.graph.call_module(name, tuple(self.copy(source) for source in inputs))
        for index, node in enumerate(outputs):
            self.env[node] = self.graph.call_function(operator.getitem, (call, index))
            self.env[node].meta["val"] = node.meta.get("val")

    def is_constant(self, node: Node) -> bool:
        return node.op == "get_attr" and str(node.target) not in self.mutated

    def leaves(self, node: Node, user: Node, inside: set[Node]) -> bool:
        """Returns whether ``user`` reads the tensors of ``node`` outside its block."""
        if isinstance(node.meta.get("val"), (list, tuple)):
            return False  # its users pick single tensors, in the same block
        if is_scalar(user):
            return any(self.leaves(user, further, inside) for further in user.users)
        return user not in inside


def _in_order_of(first: Iterable[Node], nodes: Iterable[Node]) -> list[Node]:
    """Returns nodes in the order of others; those that are not among these come after them."""
    positions = {node: position for position, node in enumerate(first)}
    return sorted(nodes, key=lambda node: positions.get(node, len(positions)))


def _copy(node: Node, graph: Graph, env: dict[Node, Node]) -> Node:
    """Returns the node in the new graph, copying it and the numbers and weights it needs on first use."""
    if node not in env:
        for source in node.all_input_nodes:
            _copy(source, graph, env)
        env[node] = graph.node_copy(node, env.__getitem__)
    return env[node]
