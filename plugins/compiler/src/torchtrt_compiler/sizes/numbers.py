"""Makes inputs that are numbers sizes of empty tensors, so that engines take them, and calls are checked like sizes."""

from __future__ import annotations

import copy
import functools
import operator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.fx import Graph, GraphModule, Node

from torchtrt.graphs.nodes import is_number, mark_number
from torchtrt_compiler.torch_internals import FakeTensorMode, replace_graph
from torchtrt_runtime.serialization.exported_program import user_inputs


def numbers_as_sizes(exported: ExportedProgram) -> ExportedProgram:
    """Returns a program in which each integer that varies is the first size of an input of the shape ``(n, 0)``.

    The program given is not changed.
    """
    if not any(isinstance(node.meta.get("val"), torch.SymInt) for node in user_inputs(exported)):
        return exported
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(exported.graph, copies))
    graph.output_node().meta = dict(exported.graph.output_node().meta)
    source = exported.graph_module
    graph_module = GraphModule(source, graph)
    graph_module.meta = dict(source.meta)
    signature = copy.deepcopy(exported.graph_signature)
    values = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    for number in [copies[node] for node in user_inputs(exported)]:
        value = number.meta.get("val")
        if not isinstance(value, torch.SymInt):
            continue
        mode = FakeTensorMode(shape_env=value.node.shape_env)
        device = tensors[0].device if tensors else None
        with getattr(tensors[0], "fake_mode", mode) if tensors else mode:
            number.meta["val"] = torch.empty(value, 0, dtype=torch.float32, device=device)
        mark_number(number)
        specs[number.name].arg = TensorArgument(number.name)
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            size = graph.call_function(torch.ops.aten.sym_size.int, (number, 0))
        size.meta["val"] = value
        number.replace_all_uses_with(size, functools.partial(operator.is_not, size))
        for spec in signature.output_specs:
            if spec.arg.name == number.name:
                spec.arg.name = size.name
    graph_module.recompile()
    result = replace_graph(exported, graph_module, signature)
    # PyTorch would check the guards by them while it retraces the program, and guards call the input a number.
    result.example_inputs = None
    return result


def symbols_of_numbers(exported: ExportedProgram) -> frozenset[object]:
    """Returns the symbols of the numbers that ``numbers_as_sizes`` made sizes."""
    values = [node.meta["val"].shape[0] for node in user_inputs(exported) if is_number(node)]
    return frozenset(value.node.expr for value in values if isinstance(value, torch.SymInt))
