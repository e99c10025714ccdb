"""Exported programs in int8 without a library for quantization, as torchao's ``convert_pt2e`` writes them.

A machine for measurements may have PyTorch alone. ``tests/test_int8_programs.py`` compares them with torchao's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines the ops
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node

from torchtrt_converters_quantization.placement import PRODUCTS, quantized_inputs

ops = torch.ops.quantized_decomposed
_LEAST, _MOST = -128, 127
_LEAST_SCALE = 2.0**-16


class _Maxima(Interpreter):
    """Runs a graph, and keeps the largest magnitude of some of its values."""

    def __init__(self, module: GraphModule, nodes: set[Node]) -> None:
        super().__init__(module)
        self.nodes = nodes
        self.maxima: dict[Node, float] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n in self.nodes:
            self.maxima[n] = float(result.abs().max())
        return result


def quantize(program: ExportedProgram, inputs: tuple[Tensor, ...]) -> ExportedProgram:
    """Returns a program whose products compute in int8, with scales that it finds for some inputs.

    Args:
        program: A program of convolutions with their batch normalizations folded, and of linear layers.
        inputs: What it is calibrated with and exported with again.
    """
    module: Any = program.module()
    graph = module.graph
    for node in graph.find_nodes(op="call_module"):  # conditions on inputs, in newer PyTorch
        graph.erase_node(node)
    wanted = [(node, quantized_inputs(node, matrix_products=False)) for node in graph.nodes]
    weights = {
        node.args[1] for node, sources_of in wanted if sources_of and node.target in PRODUCTS
    }
    sources = {source for _, sources_of in wanted for source in sources_of} - weights
    observer = _Maxima(module, sources)
    with torch.no_grad():
        observer.run(*inputs)
    quantized: dict[Node, tuple[Node, float]] = {}
    for node, sources_of in wanted:
        for source in sources_of:
            if source in weights:
                made = _weight(module, node, source)
            else:
                if source not in quantized:
                    quantized[source] = _quantized(module, source, observer.maxima[source])
                made = _dequantized(module, node, *quantized[source], source)
            node.replace_input_with(source, made)
    graph.eliminate_dead_code()
    module.recompile()
    with torch.no_grad():
        return torch.export.export(module, inputs, strict=False)


def _quantized(module: GraphModule, source: Node, maximum: float) -> tuple[Node, float]:
    scale = max(maximum / ((_MOST - _LEAST) / 2), _LEAST_SCALE)
    after = source
    while after.next.op == "placeholder":
        after = after.next
    with module.graph.inserting_after(after):
        args = (source, scale, 0, _LEAST, _MOST, torch.int8)
        return module.graph.call_function(ops.quantize_per_tensor.default, args), scale


def _dequantized(
    module: GraphModule, user: Node, quantized: Node, scale: float, source: Node
) -> Node:
    with module.graph.inserting_before(user):
        args = (quantized, scale, 0, _LEAST, _MOST, torch.int8)
        return module.graph.call_function(
            ops.dequantize_per_tensor.default, args, _out_dtype(source.meta["val"])
        )


def _out_dtype(value: Tensor) -> dict[str, torch.dtype]:
    return {} if value.dtype is torch.float32 else {"out_dtype": value.dtype}


def _weight(module: GraphModule, user: Node, source: Node) -> Node:
    """Returns a node that dequantizes a weight, which becomes int8, before ``user``."""
    value = _attribute(module, str(source.target)).detach()
    limit = value.float().abs().flatten(1).amax(1)
    scales = (limit / _MOST).clamp_min(_LEAST_SCALE)
    zeros = torch.zeros_like(scales, dtype=torch.int64)
    data = ops.quantize_per_channel(value.float(), scales, zeros, 0, -_MOST, _MOST, torch.int8)
    names = []
    for name, tensor in (("weight", data), ("scale", scales), ("zero", zeros)):
        unique = f"_int8_{user.name}_{name}"
        module.register_buffer(unique, tensor)
        names.append(unique)
    with module.graph.inserting_before(user):
        read = [module.graph.get_attr(name) for name in names]
        args = (*read, 0, -_MOST, _MOST, torch.int8)
        return module.graph.call_function(
            ops.dequantize_per_channel.default, args, _out_dtype(value)
        )


def _attribute(module: nn.Module, path: str) -> Tensor:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, Tensor)
    return value


def without_batch_norms(model: nn.Module) -> nn.Module:
    """Returns a model with its batch normalizations folded into the convolutions before them."""
    from torch.fx.experimental.optimization import fuse

    return fuse(model) if any(isinstance(m, nn.BatchNorm2d) for m in model.modules()) else model
