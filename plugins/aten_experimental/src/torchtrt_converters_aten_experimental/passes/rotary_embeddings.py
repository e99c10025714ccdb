"""Rotary position embeddings, written as products with cosines and sines.

Models write ``x * cos + rotated(x) * sin``, where ``rotated`` maps each pair of features ``(a, b)`` to ``(-b, a)``.
In transformers (``rotate_half``), the halves of the features are the pairs; in diffusers, neighbors are. The cosines
and sines hold each angle twice, once for either feature of its pair. TensorRT's layer reads each angle once.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from torchtrt.conversion import arguments_of, constant_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, supports
from torchtrt_blocks.sizes import have_same_sizes
from torchtrt_converters_aten_experimental import pack
from torchtrt_converters_aten_experimental.converters.rotary_embedding import rotary_embedding_op

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = (aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout, aten.to.device)
_MERGES = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
)
_PASSED = (
    *_CASTS, aten.clone.default, aten.contiguous.default, aten.alias.default, aten.detach.default,
    aten.cos.default, aten.sin.default, aten.neg.default,
)  # fmt: skip
"""Functions of one tensor that compute each element by itself, wherever it is."""
_BY_ELEMENT = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.add.Tensor, aten.sub.Tensor)
"""Functions of two operands: with a number, they compute each element by itself."""
_HEADS = (1, 2)
"""Where models have the dimension of heads: TensorRT's place, and diffusers'."""
_UNLIKE_HEADS = "cosines and sines differ between heads, or are not of the features' width"
_LEADING = (aten.unsqueeze.default, aten.expand.default)
"""Ops that keep the order of the last dimension."""


@dataclass(frozen=True)
class _Rotation:
    """A tensor of features whose pairs ``(a, b)`` have become ``(-b, a)``.

    Attributes:
        source: The features, ``(batch, heads, length, width)``.
        interleaved: Whether the features of a pair are neighbors; else they are half the width apart.
    """

    source: Node
    interleaved: bool


@pack.lowering_pass()
def rotary_embeddings(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Makes one op of a rotary embedding where TensorRT has a layer for it."""
    if (
        not supports(Capability.ROTARY_EMBEDDING)
        or rotary_embedding_op in settings.torch_executed_ops
    ):
        return
    graph = graph_module.graph
    angles = _Angles(graph)
    for node in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        if node.kwargs:
            continue
        for plain, turned in (node.args, node.args[::-1]):
            if _replace(angles, node, plain, turned):
                break
    graph.eliminate_dead_code()


def _unlike_features(value: Any) -> str:
    """Returns why features are not those of the layer; ``""`` if they are."""
    if not isinstance(value, torch.Tensor) or value.dtype not in _DTYPES:
        return "the features are not float32, float16 or bfloat16"
    if value.dim() != 4:
        return f"the features have {value.dim()} dimensions, and the layer takes 4"
    if not _is_even(value.shape[-1]):
        return "the number of features is odd or varies"
    return ""


def _is_even(size: Any) -> bool:
    return isinstance(size, int) and size % 2 == 0


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _replace(made: _Angles, node: Node, plain: Any, turned: Any) -> bool:
    """Replaces ``plain + turned`` by a rotary embedding, if it is one; returns whether it did."""
    for features, cos in _factors(plain):
        for rotated, sin in _factors(turned):
            rotation = _rotation(rotated)
            if rotation is None or _cast_source(features) is not _cast_source(rotation.source):
                continue
            reasons = [
                _unlike(node, features, (cos, sin), rotation.interleaved, heads) for heads in _HEADS
            ]
            if "" not in reasons:
                from torchtrt.graphs import miss_layer  # slow to import

                specific = (reason for reason in reasons if reason != _UNLIKE_HEADS)
                miss_layer(node, Capability.ROTARY_EMBEDDING, next(specific, _UNLIKE_HEADS))
                continue
            heads = _HEADS[reasons.index("")]
            with node.graph.inserting_before(node):
                result = made.rotated(features, (cos, sin), rotation.interleaved, heads)
            result.meta.update(node.meta)
            node.replace_all_uses_with(result)
            return True
    return False


def _unlike(
    node: Node, features: Node, angles: Sequence[Node], interleaved: bool, heads: int
) -> str:
    """Returns what is different between a rotation and the layer; ``""`` if nothing is.

    Args:
        node: The sum of the two products.
        features: The features, of four dimensions.
        angles: Cosines and sines.
        interleaved: Whether the features of a pair are neighbors.
        heads: The dimension of the heads, 1 or 2; the other one is that of the positions.
    """
    value, result = features.meta["val"], node.meta["val"]
    if reason := _unlike_features(value):
        return reason
    if value.dtype is not result.dtype or not have_same_sizes(value.shape, result.shape):
        return "the sum has another dtype, or other sizes, than the features"
    differences = (_unlike_angles(value, angle, interleaved, heads) for angle in angles)
    return next(filter(None, differences), "")


def _factors(node: Any) -> list[tuple[Node, Node]]:
    """Returns the factors of a product in both orders; nothing where a node is no product."""
    if not isinstance(node, Node) or node.target is not aten.mul.Tensor:
        return []
    first, second = node.args
    if not isinstance(first, Node) or not isinstance(second, Node):
        return []
    return [(first, second), (second, first)]


def _cast_source(node: Node) -> Node:
    """Returns what a node casts to a dtype that holds all of its values, or the node itself."""
    while node.target in _CASTS and isinstance(node.args[0], Node):
        before, after = (operand.meta["val"].dtype for operand in (node.args[0], node))
        if torch.promote_types(before, after) is not after:
            break
        node = node.args[0]
    return node


def _rotation(node: Node) -> _Rotation | None:
    """Returns which features a node has rotated by a right angle; None if it does something else."""
    node = _cast_source(node)
    if node.target is aten.cat.default:
        parts, dim = (*node.args, 0)[:2]
        if dim in (-1, 3) and isinstance(parts, (list, tuple)) and len(parts) == 2:
            return _rotated_halves(*parts)
    if node.target in _MERGES and isinstance(node.args[0], Node):
        return _rotated_neighbors(node, node.args[0])
    return None


def _rotated_halves(first: Node, second: Node) -> _Rotation | None:
    """Returns the features of ``cat([-x[..., half:], x[..., :half]], -1)``."""
    if first.target is not aten.neg.default or not isinstance(first.args[0], Node):
        return None
    upper, lower = _part(first.args[0]), _part(second)
    if upper is None or lower is None or upper[0] is not lower[0]:
        return None
    width = upper[0].meta["val"].shape[-1]
    if width % 2 or upper[1:] != (width // 2, width) or lower[1:] != (0, width // 2):
        return None
    return _Rotation(upper[0], interleaved=False)


def _part(node: Node) -> tuple[Node, int, int] | None:
    """Returns the tensor that a node is a part of in the last dimension, and the part's start and end."""
    if node.target is operator.getitem:
        pieces, index = node.args
        if not isinstance(pieces, Node) or pieces.target not in (
            aten.split.Tensor, aten.chunk.default, aten.split_with_sizes.default,
        ):  # fmt: skip
            return None
        op = arguments_of(pieces)
        rank = op.self.meta["val"].dim()
        if op.dim not in (-1, rank - 1):
            return None
        widths = [piece.shape[-1] for piece in pieces.meta["val"]]
        start = sum(widths[:index])
        return op.self, start, start + widths[index]
    if node.target is not aten.slice.Tensor:
        return None
    op = arguments_of(node)
    rank, width = op.self.meta["val"].dim(), op.self.meta["val"].shape[-1]
    bounds = (op.start or 0, width if op.end is None else op.end)
    if op.dim not in (-1, rank - 1) or op.step != 1 or not isinstance(width, int):
        return None
    if not all(isinstance(bound, int) for bound in bounds):
        return None
    start, end, _ = slice(*bounds).indices(width)
    return op.self, start, end


def _rotated_neighbors(node: Node, stacked: Node) -> _Rotation | None:
    """Returns the features of ``stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)``."""
    if stacked.target is not aten.stack.default:
        return None
    parts, dim = (*stacked.args, 0)[:2]
    value, rank = node.meta["val"], stacked.meta["val"].dim()
    if dim not in (-1, rank - 1) or rank != value.dim() + 1 or len(parts) != 2:
        return None
    negated, second = parts
    if negated.target is not aten.neg.default:
        return None
    odd, even = _of_pairs(negated.args[0]), _of_pairs(second)
    if odd is None or even is None or odd[0] is not even[0] or (odd[1], even[1]) != (1, 0):
        return None
    if odd[0].meta["val"].shape[-1] != value.shape[-1]:
        return None
    return _Rotation(odd[0], interleaved=True)


def _of_pairs(node: Node) -> tuple[Node, int] | None:
    """Returns the tensor whose every other feature a node is, and the node's place in each pair: 0 or 1."""
    if node.target is operator.getitem:
        unbound, index = node.args
        if not isinstance(unbound, Node) or unbound.target is not aten.unbind.int:
            return None
        op = arguments_of(unbound)
        pairs = op.self
        rank = pairs.meta["val"].dim()
        if op.dim not in (-1, rank - 1):
            return None
    elif node.target is aten.select.int:
        pairs, dim, index = node.args
        if dim not in (-1, pairs.meta["val"].dim() - 1):
            return None
    elif node.target is aten.slice.Tensor:
        op = arguments_of(node)
        rank, width = op.self.meta["val"].dim(), op.self.meta["val"].shape[-1]
        ends = op.end is None or (
            isinstance(op.end, int) and isinstance(width, int) and op.end >= width
        )
        is_other = op.dim in (-1, rank - 1) and op.step == 2 and ends and (op.start or 0) in (0, 1)
        return (op.self, op.start or 0) if is_other else None
    else:
        return None
    value = pairs.meta["val"]
    if pairs.target not in _MERGES or value.shape[-1] != 2 or value.dim() != 5:
        return None
    return pairs.args[0], index


def _unlike_angles(value: torch.Tensor, angles: Node, interleaved: bool, heads: int) -> str:
    """Returns why cosines or sines are not those of positions, the same for all heads, each angle twice."""
    other = angles.meta["val"]
    if not isinstance(other, torch.Tensor) or other.dtype is not value.dtype:
        return "cosines and sines have another dtype than the features"
    shape = (1,) * (4 - other.dim()) + tuple(other.shape)
    if len(shape) != 4 or not _is_one(shape[heads]) or shape[3] != value.shape[-1]:
        return _UNLIKE_HEADS
    positions = 3 - heads
    if _is_one(shape[positions]) and not _is_one(value.shape[positions]):
        return "cosines and sines are the same for all positions"
    if not _holds_angles_twice(angles, interleaved):
        return "the two features of a pair are not known to have one angle"
    return ""


def _holds_angles_twice(node: Any, interleaved: bool) -> bool:
    """Returns whether both features of each pair are known to have one value, as the graph computes it."""
    if not isinstance(node, Node):
        return True
    constant = constant_of(node)
    if constant is not None:
        return _is_doubled(constant, interleaved)
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    if value.dim() == 0 or value.shape[-1] == 1:
        return True
    if node.target in _BY_ELEMENT:
        return all(_holds_angles_twice(operand, interleaved) for operand in node.args[:2])
    if node.target in _PASSED or node.target in _LEADING:
        return _keeps_features(node) and _holds_angles_twice(node.args[0], interleaved)
    return (_repeats_neighbors if interleaved else _repeats_halves)(node)


def _keeps_features(node: Node) -> bool:
    """Returns whether the last dimension of a call's result is that of its argument."""
    value, source = node.meta["val"], node.args[0]
    if node.target is aten.unsqueeze.default and node.args[1] in (-1, value.dim() - 1):
        return False
    before = source.meta["val"]
    return before.dim() > 0 and before.shape[-1] == value.shape[-1]


def _repeats_halves(node: Node) -> bool:
    """Returns whether a node is ``cat([x, x], -1)``."""
    if node.target is not aten.cat.default:
        return False
    parts, dim = (*node.args, 0)[:2]
    return dim in (-1, node.meta["val"].dim() - 1) and len(parts) == 2 and parts[0] is parts[1]


def _repeats_neighbors(node: Node) -> bool:
    """Returns whether a node is ``x.repeat_interleave(2, -1)``, ``stack([x, x], -1).flatten(-2)``, or such in a row."""
    rank = node.meta["val"].dim()
    if node.target is aten.cat.default:  # of several axes, as FLUX has them
        parts, dim = (*node.args, 0)[:2]
        return dim in (-1, rank - 1) and all(
            _is_even(part.meta["val"].shape[-1]) and _holds_angles_twice(part, interleaved=True)
            for part in parts
        )
    if node.target is aten.repeat_interleave.self_int:
        op = arguments_of(node)
        return op.repeats == 2 and op.dim in (-1, rank - 1)
    if node.target not in _MERGES or node.args[0].target is not aten.stack.default:
        return False
    stacked = node.args[0]
    parts, dim = (*stacked.args, 0)[:2]
    is_last = dim in (-1, rank) and stacked.meta["val"].dim() == rank + 1
    return is_last and len(parts) == 2 and parts[0] is parts[1]


def _is_doubled(angles: torch.Tensor, interleaved: bool) -> bool:
    """Returns whether a constant has one value for both features of each pair."""
    if angles.dim() == 0 or angles.shape[-1] == 1:
        return True
    if angles.shape[-1] % 2:
        return False
    pairs = angles.unflatten(-1, (-1, 2)).mT if interleaved else angles.unflatten(-1, (2, -1))
    return torch.equal(pairs[..., 0, :], pairs[..., 1, :])


class _Angles:
    """The cosines and sines that the layers of a graph read, each made once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[Node, bool, str, int], Node] = {}

    def rotated(
        self, features: Node, angles: Sequence[Node], interleaved: bool, heads: int
    ) -> Node:
        """Returns a node that rotates features.

        Args:
            features: The features, of four dimensions. They come before the node where nodes are added.
            angles: Cosines and sines, each angle twice.
            interleaved: Whether the features of a pair are neighbors.
            heads: The dimension of the heads, 1 or 2.
        """
        once = [self.once(angle, features, interleaved, heads) for angle in angles]
        if heads == _HEADS[0]:
            return self._call(rotary_embedding_op, features, *once, interleaved)
        turned = self._call(aten.transpose.int, features, 1, 2)
        result = self._call(rotary_embedding_op, turned, *once, interleaved)
        return self._call(aten.transpose.int, result, 1, 2)

    def once(self, doubled: Node, features: Node, interleaved: bool, heads: int) -> Node:
        """Returns a node that holds each angle once for each sequence: ``(batch, length, width / 2)``."""
        batch = features.meta["val"].shape[0]
        key = doubled, interleaved, str(batch), heads
        if key not in self._made:
            self._made[key] = self._halved(doubled, features, interleaved, heads)
        return self._made[key]

    def _halved(self, doubled: Node, features: Node, interleaved: bool, heads: int) -> Node:
        """Returns the angles once each, ``(batch, length, width / 2)``, with the batch of the features.

        Args:
            doubled: The angles, each twice. Their batch may be 1, and dimensions before the length may be missing.
            features: The tensor that they rotate, of four dimensions.
            interleaved: Whether the two places of an angle are neighbors, not half the width apart.
            heads: The dimension of the heads in the features.
        """
        batch, _, _, width = features.meta["val"].shape
        step = (0, width, 2) if interleaved else (0, width // 2)
        once = self._call(aten.slice.Tensor, doubled, -1, *step)
        if (heads_dim := heads - 4 + once.meta["val"].dim()) > 0:  # without the dimension of heads
            once = self._call(aten.squeeze.dim, once, heads_dim)
        while once.meta["val"].dim() < 3:
            once = self._call(aten.unsqueeze.default, once, 0)
        if _is_one(once.meta["val"].shape[0]) and not _is_one(batch):
            if not isinstance(batch, int):
                batch = self._call(aten.sym_size.int, features, 0)
            once = self._call(aten.expand.default, once, [batch, -1, -1])
        return once

    def _call(self, target: Any, *args: Any) -> Node:
        node = self._graph.call_function(target, args)
        node.meta["val"] = target(*map_arg(args, lambda argument: argument.meta["val"]))
        return node
