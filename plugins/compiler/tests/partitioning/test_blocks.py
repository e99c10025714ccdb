"""Partitioning: any graph, any choice of sides, same result."""

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule

from torchtrt.graphs.nodes import remember_resolution, resolution_of
from torchtrt.registry import Rejection, Resolution
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.partitioning import extract_blocks, partition_nodes

ADD = torch.ops.aten.add.Tensor
SPLIT = torch.ops.aten.split.Tensor
ACCEPTED = object()


def resolution(target, name, accepted):
    """Returns a resolution without a registry."""
    if accepted:
        return Resolution(target, name, ACCEPTED)
    return Resolution(target, name, None, (Rejection(None, "the test says so"),))


@st.composite
def graphs(draw):
    """Returns a random graph of additions and splits over two inputs, each node on a random side."""
    graph = Graph()
    example = torch.ones(4)
    values = [graph.placeholder(name) for name in ("x", "y")]
    for value in values:
        value.meta["val"] = example
    for _ in range(draw(st.integers(1, 12))):
        accepted = draw(st.booleans())
        left, right = (draw(st.sampled_from(values)) for _ in range(2))
        if draw(st.integers(0, 4)) == 0:
            node = graph.call_function(SPLIT, (left, 4))
            node.meta["val"] = [example]
            pick = graph.call_function(operator.getitem, (node, 0))
            pick.meta["val"] = example
            remember_resolution(pick, resolution(operator.getitem, pick.name, True))
            values.append(pick)
        else:
            node = graph.call_function(ADD, (left, right))
            node.meta["val"] = example
            values.append(node)
        remember_resolution(node, resolution(node.target, node.name, accepted))
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    graph.output(tuple(outputs))
    return GraphModule(torch.nn.Module(), graph)


@given(graphs(), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_a_partitioned_graph_computes_what_the_graph_did(graph_module, min_block_size):
    """Blocks never depend on themselves through PyTorch, and nothing is lost or reordered wrongly."""
    inputs = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([5.0, 6.0, 7.0, 8.0])
    expected = graph_module(*inputs)

    partition = partition_nodes(
        graph_module.graph, CompilationSettings(min_block_size=min_block_size)
    )
    result, blocks = extract_blocks(graph_module, partition)

    torch.testing.assert_close(result(*inputs), expected)
    assert len(blocks) == len(partition.blocks)


@given(graphs(), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_every_node_is_in_one_block_or_has_a_reason(graph_module, min_block_size):
    """A rejected node is in no block, what stays has a reason, and a block is too small only as the whole graph."""
    partition = partition_nodes(
        graph_module.graph, CompilationSettings(min_block_size=min_block_size)
    )

    in_blocks = [node for nodes in partition.blocks.values() for node in nodes]
    reasons = {entry.node: entry.reason for entry in partition.torch_nodes}
    calls = [node for node in graph_module.graph.nodes if node.target in (ADD, SPLIT)]
    assert len(in_blocks) == len(set(in_blocks))
    assert set(calls) == {node for node in in_blocks if node.target is not operator.getitem} | set(
        reasons
    )
    assert all(resolution_of(node) for node in in_blocks)
    assert not reasons or all(
        sum(node.target is not operator.getitem for node in nodes) >= min_block_size
        for nodes in partition.blocks.values()
    )
    assert reasons or 1 == len(partition.blocks)
    assert all(reasons.values())


def chain(*sides):
    """Returns a chain of additions, each on the given side."""
    graph = Graph()
    value = graph.placeholder("x")
    value.meta["val"] = torch.ones(2)
    for accepted in sides:
        value = graph.call_function(ADD, (value, value))
        value.meta["val"] = torch.ones(2)
        remember_resolution(value, resolution(ADD, value.name, accepted))
    graph.output((value,))
    return GraphModule(torch.nn.Module(), graph)


def test_a_node_in_pytorch_splits_a_chain_into_two_blocks():
    """The two halves cannot be one engine."""
    partition = partition_nodes(
        chain(True, False, True).graph, CompilationSettings(min_block_size=1)
    )

    assert [1, 1] == [len(nodes) for nodes in partition.blocks.values()]
    (stayed,) = partition.torch_nodes
    assert stayed.reason.endswith("the test says so")


def test_a_block_that_is_too_small_says_so():
    """The reason names the setting."""
    graph = chain(True, False, True).graph
    partition = partition_nodes(graph, CompilationSettings(min_block_size=3))

    assert not partition.blocks
    first, rejected, last = (entry.reason for entry in partition.torch_nodes)
    assert first == last
    assert first.endswith("its block has 1 op and min_block_size is 3.")
    assert rejected.endswith("the test says so")


def test_the_whole_graph_is_a_block_of_any_size():
    """The setting is for blocks beside PyTorch."""
    partition = partition_nodes(chain(True).graph, CompilationSettings(min_block_size=9))

    assert [1] == [len(nodes) for nodes in partition.blocks.values()]
    assert not partition.torch_nodes


@pytest.mark.parametrize("code", ["write", "view"])
def test_writes_and_views_leave_the_rest_the_whole_graph(code):
    """They stay in PyTorch in any case, and compute nothing."""
    graph = chain(True, False).graph
    write = list(graph.nodes)[-2]
    why = Rejection(None, "the test says so", code)
    remember_resolution(write, Resolution(ADD, write.name, None, (why,)))

    partition = partition_nodes(graph, CompilationSettings(min_block_size=9))

    assert [1] == [len(nodes) for nodes in partition.blocks.values()]
    assert [write] == [entry.node for entry in partition.torch_nodes]


def test_full_compilation_has_no_smallest_block():
    """Asking for everything in TensorRT outranks min_block_size."""
    settings = CompilationSettings(min_block_size=9, require_full_compilation=True)
    partition = partition_nodes(chain(True, False).graph, settings)

    assert [1] == [len(nodes) for nodes in partition.blocks.values()]


def test_independent_branches_share_a_block():
    """Two branches that both go to TensorRT become one engine, not two."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    branches = [graph.call_function(ADD, (value, value)) for value in (x, y)]
    for node in (x, y, *branches):
        node.meta["val"] = torch.ones(2)
        remember_resolution(node, resolution(ADD, node.name, True))
    graph.output(tuple(branches))

    partition = partition_nodes(graph, CompilationSettings(min_block_size=1))

    assert 1 == len(partition.blocks)
