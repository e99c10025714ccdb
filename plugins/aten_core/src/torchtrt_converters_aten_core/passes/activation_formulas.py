"""GELU by its formula, which models write out: ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``.

As one op it becomes one layer where TensorRT has one, and what TensorRT 8.6 computes with the product before it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.settings import CompilationSettings
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.lowering_pass()
def activation_formulas(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Replaces the formula of GELU by tanh by the op."""
    graph = graph_module.graph
    if not graph.find_nodes(op="call_function", target=aten.tanh.default):
        return
    for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        source = _gelu_of(node)
        if source is not None:
            node.target, node.args = aten.gelu.default, (source,)
            node.kwargs = {"approximate": "tanh"}
    graph.eliminate_dead_code()


def _gelu_of(node: Node) -> Node | None:
    """Returns what a product is the GELU of."""
    constant, factors = _factors(node)
    if constant != 0.5 or len(factors) != 2:
        return None
    for source, raised in (factors, factors[::-1]):
        curve, one = _terms(raised)
        if one == 1.0 and _is_only(curve, aten.tanh.default) and _is_bent(curve.args[0], source):
            dtypes = {tensor_node.meta["val"].dtype for tensor_node in (source, node)}
            return source if len(dtypes) == 1 else None
    return None


def _is_bent(node: Any, source: Node) -> bool:
    """Returns whether a node is ``sqrt(2 / pi) * (source + 0.044715 * source**3)``."""
    scale, factors = _factors(node)
    terms = _terms(factors[0]) if len(factors) == 1 else ()
    if source not in terms or not math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=1e-4):
        return False
    constant, cube = _factors(terms[terms[0] is source])
    return cube == [source] * 3 and math.isclose(constant, 0.044715, rel_tol=1e-4)


def _factors(node: Any, depth: int = 3) -> tuple[float, list[Any]]:
    """Returns the numbers that a product of products is a multiple of, as one, and its other factors."""
    if isinstance(node, (int, float)):
        return float(node), []
    target = getattr(node, "target", None)  # a complex number has none
    if target is aten.pow.Tensor_Scalar and node.args[1] == 3:
        return 1.0, [node.args[0]] * 3
    if target is not aten.mul.Tensor or not depth:
        return 1.0, [node]
    (first, some), (second, others) = (_factors(part, depth - 1) for part in node.args)
    return first * second, some + others


def _terms(node: Any) -> tuple[Any, ...]:
    """Returns the two terms of a sum, or nothing."""
    is_sum = _is_only(node, aten.add.Tensor) and not node.kwargs
    return node.args if is_sum else (None, None)


def _is_only(node: Any, target: Any) -> bool:
    """Returns whether a node calls an op, and one node reads it."""
    return isinstance(node, Node) and node.target is target and len(node.users) == 1
