"""The scale of attention under a mask, in the weights of the projection that makes the query.

TensorRT 8.6 computes such attention in one kernel only where the product of query and key is scaled, and neither of the
two. Half precision holds that product only if one of them was scaled down before. Weights that are smaller by a power
of two do both, and lose no digit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchtrt.conversion import arguments_of, constant_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks.attention import WHOLE
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

_MOVES = (
    aten.transpose.int,
    aten.permute.default,
    aten.view.default,
    aten.reshape.default,
    aten.unflatten.int,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.clone.default,
    aten.contiguous.default,
)
"""Ops that only put elements elsewhere."""
_PARTS = (
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.chunk.default,
)


@pack.lowering_pass()
def attention_scales(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Scales queries by a power of two where they are projected, and attention by what is left."""
    if supports(Capability.FREE_FORM_ATTENTION):
        return
    for node in graph_module.graph.find_nodes(op="call_function", target=WHOLE):
        op = arguments_of(node)
        value = op.query.meta["val"]
        if torch.float16 not in (value.dtype, settings.autocast):
            continue
        if op.query in (op.key, op.value) or not (op.is_causal or op.attn_mask is not None):
            continue
        scale = _scale_of(op, value.shape[-1])
        if scale is None:
            continue
        factor = 2.0 ** (math.ceil(math.log2(scale)) - 1)  # what is left is more than 1
        if factor < 1 and _scale_projection(op.query, factor):
            node.args, node.kwargs = (), {**vars(op), "scale": scale / factor}


def _scale_of(op: Any, width: Any) -> float | None:
    """Returns the scale of attention, if it is known and positive."""
    if op.scale is None and isinstance(width, int):
        return 1 / math.sqrt(width)
    return op.scale if isinstance(op.scale, (int, float)) and op.scale > 0 else None


def _scale_projection(query: Node, factor: float) -> bool:
    """Scales what a query is projected by, if the projection makes nothing else of it; returns whether it did."""
    from torchtrt_compiler.lowering.constant_folding import GROWTH_LIMIT  # slow to import

    node, columns = _projection(query)
    if node is None:
        return False
    op = arguments_of(node)
    is_linear = node.target is aten.linear.default
    if not is_linear and (op.beta, op.alpha) != (1, 1):
        return False
    dims = {"weight": 0, "bias": -1} if is_linear else {"mat2": 1, "self": -1}
    weights = {name: getattr(op, name) for name in dims if getattr(op, name) is not None}
    width = node.meta["val"].shape[-1]
    if not isinstance(width, int) or width > GROWTH_LIMIT:
        return False
    for name, weight in weights.items():
        if constant_of(weight) is None or weight.meta["val"].shape[dims[name]] != width:
            return False
    scaled = {
        name: _scaled(node, weight, dims[name], columns or (0, width), factor)
        for name, weight in weights.items()
    }
    node.args, node.kwargs = (), {**vars(op), **scaled}
    return True


def _projection(query: Node) -> tuple[Node | None, tuple[int, int] | None]:
    """Returns the projection that a query comes from, and which of its columns become nothing but the query."""
    node, is_only = query, len(query.users) == 1
    columns: tuple[int, int] | None = None
    while is_only and node.op == "call_function":
        if node.target in (aten.linear.default, aten.addmm.default):
            return node, columns
        if node.target in _MOVES and (columns is None or _keeps_columns(node)):
            moved: Any = node.args[0]
            node, is_only = moved, len(moved.users) == 1
        elif columns is None and (part := _part(node)) is not None:
            node, columns = part
        else:
            break
    return None, None


def _keeps_columns(node: Node) -> bool:
    """Returns whether an op that moves elements leaves the last dimension alone."""
    op = arguments_of(node)
    before, after = op.self.meta["val"].shape, node.meta["val"].shape
    if node.target is aten.transpose.int:
        return len(before) - 1 not in (op.dim0 % len(before), op.dim1 % len(before))
    return node.target in (aten.view.default, aten.reshape.default) and before[-1] == after[-1]


def _part(node: Node) -> tuple[Node, tuple[int, int]] | None:
    """Returns what a node is some columns of, and which, where nothing else reads these columns."""
    taken = _columns(node)
    if taken is None:
        return None
    source, (low, high) = taken
    readers = list(source.users)
    if node not in readers:  # but what splits it
        readers = list(readers[0].users) if len(readers) == 1 else []
    others = [_columns(reader) for reader in readers if reader is not node]
    if node not in readers or None in others:
        return None
    is_apart = all(end <= low or high <= start for _, (start, end) in filter(None, others))
    return taken if is_apart else None


def _columns(node: Node) -> tuple[Node, tuple[int, int]] | None:
    """Returns what a node is some columns of, and which; ``None`` if it is no such part."""
    part = 0
    if node.target is operator.getitem:
        picked: Any = node.args
        node, part = picked
    op = arguments_of(node) if node.target in _PARTS else None
    if op is None or op.dim % (rank := op.self.meta["val"].dim()) != rank - 1:
        return None
    if node.target is not aten.slice.Tensor:
        widths = [piece.shape[-1] for piece in node.meta["val"]]
        start = sum(widths[:part])
    else:
        widths, start = [node.meta["val"].shape[-1]], op.start or 0
        if op.step != 1 or start < 0:
            return None
    is_static = all(isinstance(size, int) for size in (*widths, start))
    return (op.self, (start, start + widths[part])) if is_static else None


def _scaled(node: Node, weight: Node, dim: int, columns: tuple[int, int], factor: float) -> Node:
    """Returns a weight whose part for some columns of the result is multiplied by a factor."""
    value, (low, high) = weight.meta["val"], columns
    with node.graph.inserting_before(node), value.fake_mode:
        if high - low == value.shape[dim]:
            return _call(node.graph, aten.mul.Tensor, weight, factor)
        # A vector, and not parts that are put together: only what is no larger than its inputs is computed beforehand.
        like = {"dtype": value.dtype, "device": value.device}
        counts = ((low, 1.0), (high - low, factor), (value.shape[dim] - high, 1.0))
        parts = [_call(node.graph, aten.full.default, [n], by, **like) for n, by in counts if n]
        factors = _call(node.graph, aten.cat.default, parts)
        if dim == 0 and value.dim() == 2:
            factors = _call(node.graph, aten.unsqueeze.default, factors, 1)
        return _call(node.graph, aten.mul.Tensor, weight, factors)


def _call(graph: Graph, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = target(
        *torch.fx.map_arg(args, lambda argument: argument.meta["val"]), **kwargs
    )
    return node
