"""Which ops compute each row of their result from the same row of their inputs, and where the rows then are.

A rule takes a node and the dimension that has the rows of each known input. It returns the dimension of the result that
has them. Other inputs may have the same rows: a part of the result then needs only that part of them. A rule returns
``None`` for everything that it is not sure of.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from torchtrt.contract import arguments_of, constant_of, value_of
from torchtrt.graphs import mutates
from torchtrt_converters_distributed.torch_internals import OpOverload

aten = torch.ops.aten
MATRIX_PRODUCTS: Mapping[Any, Sequence[str]] = {
    aten.mm.default: ("self", "mat2"),
    aten.bmm.default: ("self", "mat2"),
    aten.matmul.default: ("self", "other"),
    aten.linear.default: ("input", "weight", "bias"),
    aten.addmm.default: ("mat1", "mat2", "self"),
    aten.baddbmm.default: ("batch1", "batch2", "self"),
}
"""The matrix products, with the names of their left and right factor, and of what is added."""
c10d = torch.ops._c10d_functional

RowDims = Mapping[Node, int]
"""The dimension with the rows, for each node that is known to have them."""


@dataclass(frozen=True)
class Rows:
    """Where the rows of a result are.

    Attributes:
        dim: The dimension of the result.
        cut: The inputs that have the same rows, not among the known ones, each with the dimension. A part of the result
            needs only that part of them.
    """

    dim: int
    cut: Mapping[Node, int] = field(default_factory=dict)


Rule = Callable[[Node, RowDims], "Rows | None"]


def rows_of(node: Node, row_dims: RowDims, parts: int) -> Rows | None:
    """Returns where the rows of a node's result are, or ``None`` if they cannot be divided.

    Args:
        node: A call, which reads at least one known node.
        row_dims: The dimension with the rows of each known node.
        parts: Into how many parts of equal size the rows are to be divided.
    """
    target = node.target
    if node.op != "call_function" or not isinstance(
        node.meta.get("val"), (torch.Tensor, tuple, list)
    ):
        return None
    if target is operator.getitem:
        source = node.args[0]
        return Rows(row_dims[source]) if isinstance(source, Node) and source in row_dims else None
    rule = _rule_of(target)
    if rule is None or mutates(node):
        return None
    rows = rule(node, row_dims)
    size = None if rows is None else _size(node, rows.dim)
    return rows if size is not None and size > 1 and size % parts == 0 else None


def is_product(node: Node) -> bool:
    """Returns whether a call is a matrix product."""
    return node.target in MATRIX_PRODUCTS


def product_dims(node: Node) -> Sequence[tuple[Node, int]]:
    """Returns where the rows of a product may be: a factor that is no weight, with one of its dimensions."""
    left, right = (getattr(arguments_of(node), name) for name in MATRIX_PRODUCTS[node.target][:2])
    factor_dims = [(left, dim) for dim in range(_rank(left) - 1)]
    if node.target is not aten.linear.default and _rank(right) > 1:
        factor_dims.append((right, _rank(right) - 1))
    return [(factor, dim) for factor, dim in factor_dims if constant_of(factor) is None]


def sizes_of(value: Any) -> list[int | None]:
    """Returns the sizes of a tensor, ``None`` for each that is not known."""
    shape: Sequence[Any] = value.shape
    return [size if isinstance(size, int) else None for size in shape]


def _tensor(node: Any) -> torch.Tensor | None:
    """Returns PyTorch's value of a node that makes a tensor; of several tensors, the first."""
    value = value_of(node)
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, torch.Tensor) else None


def _rank(node: Any) -> int:
    tensor = _tensor(node)
    return -1 if tensor is None else tensor.dim()


def _size(node: Node, dim: int) -> int | None:
    tensor = _tensor(node)
    return None if tensor is None or not 0 <= dim < tensor.dim() else sizes_of(tensor)[dim]


def _rule_of(target: Any) -> Rule | None:
    if (rule := _RULES.get(target)) is not None:
        return rule
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return None
    return _by_element if torch.Tag.pointwise in target.tags else None


def _by_element(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ops that compute each element from the elements at its place, with broadcasting."""
    return _broadcast(node, row_dims, node.all_input_nodes)


def _broadcast(node: Node, row_dims: RowDims, operands: Sequence[Any]) -> Rows | None:
    """Returns the rows of a result to whose rank the operands are broadcast."""
    rank = _rank(node)
    dims = {
        row_dims[operand] + rank - _rank(operand) for operand in operands if operand in row_dims
    }
    if len(dims) != 1:
        return None
    dim = dims.pop()
    cut = _cut(node, dim, [operand for operand in operands if operand not in row_dims])
    return None if cut is None else Rows(dim, cut)


def _cut(node: Node, dim: int, operands: Sequence[Any]) -> dict[Node, int] | None:
    """Returns the operands that have the rows of the result, each with their dimension; others are broadcast.

    ``None`` where an operand has another size, or one that is not known.
    """
    cut = {}
    for operand in operands:
        if not isinstance(operand, Node) or (rank := _rank(operand)) < 0:
            continue
        own = dim - (_rank(node) - rank)
        if own < 0 or (size := _size(operand, own)) == 1:
            continue
        if size is None or size != _size(node, dim):
            return None
        cut[operand] = own
    return cut


def _like(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ops that keep the shape of their first argument, and the place of each element."""
    source = node.args[0]
    return Rows(row_dims[source]) if isinstance(source, Node) and source in row_dims else None


def _reduced(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ops that compute along other dimensions than that of the rows."""
    op, source = arguments_of(node), node.args[0]
    dims = getattr(op, "dim", getattr(op, "dims", None))
    if not isinstance(source, Node) or source not in row_dims or dims is None or dims == []:
        return None
    if any(operand in row_dims for operand in node.all_input_nodes if operand is not source):
        return None
    rank, dim = _rank(source), row_dims[source]
    along = {axis % rank for axis in ([dims] if isinstance(dims, int) else dims)}
    if dim in along:
        return None
    is_kept = _rank(node) == rank
    return Rows(dim if is_kept else dim - sum(axis < dim for axis in along))


def _normalized(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of normalizations over the last dimensions."""
    op, source = arguments_of(node), node.args[0]
    if not isinstance(source, Node) or source not in row_dims:
        return None
    if any(operand in row_dims for operand in node.all_input_nodes if operand is not source):
        return None
    dim = row_dims[source]
    return Rows(dim) if dim < _rank(source) - len(op.normalized_shape) else None


def _reshaped(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ops that keep the order of elements in memory.

    The rows stay one dimension behind as many elements as before, or its outer part. Equal parts of either have the
    same elements.
    """
    source, before, after = node.args[0], _tensor(node.args[0]), _tensor(node)
    if not isinstance(source, Node) or source not in row_dims or before is None or after is None:
        return None
    sizes, wanted = sizes_of(before), sizes_of(after)
    if any(size is None or size == 0 for size in (*sizes, *wanted)):
        return None
    ahead, count = math.prod(filter(None, sizes[: row_dims[source]])), 1
    for index, size in enumerate(filter(None, wanted)):
        if count == ahead and size != 1:
            return Rows(index)
        count *= size
    return None


def _moved(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ops that change the order of dimensions."""
    op, source = arguments_of(node), node.args[0]
    if not isinstance(source, Node) or source not in row_dims:
        return None
    rank, dim = _rank(source), row_dims[source]
    order = list(range(rank))
    if node.target is aten.permute.default:
        order = [dim % rank for dim in op.dims]
    elif node.target is aten.t.default:
        order.reverse()
    else:
        first, second = op.dim0 % rank, op.dim1 % rank
        order[first], order[second] = order[second], order[first]
    return Rows(order.index(dim))


def _joined(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ``cat`` and ``stack`` along other dimensions than that of the rows."""
    op = arguments_of(node)
    tensors, dim = op.tensors, op.dim % _rank(node)
    is_stack = node.target is aten.stack.default
    if len({_rank(tensor) for tensor in tensors}) != 1:
        return None
    dims = {row_dims[tensor] for tensor in tensors if tensor in row_dims}
    if len(dims) != 1:
        return None
    (own,) = dims
    result_dim = own + (is_stack and dim <= own)
    if not is_stack and own == dim:
        return None
    outside = [tensor for tensor in tensors if tensor not in row_dims]
    if any(_size(tensor, own) != _size(node, result_dim) for tensor in outside):
        return None
    return Rows(result_dim, dict.fromkeys(outside, own))


def _expanded(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ``expand``, whose dimensions are those of its input behind new ones."""
    source = node.args[0]
    if not isinstance(source, Node) or source not in row_dims or None in sizes_of(node.meta["val"]):
        return None
    return Rows(row_dims[source] + _rank(node) - _rank(source))


def _embedded(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of ``embedding``: the rows are among the numbers of the tokens."""
    op = arguments_of(node)
    return (
        Rows(row_dims[op.indices]) if op.indices in row_dims and op.weight not in row_dims else None
    )


def _multiplied(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of products, whose rows are not what is summed over."""
    names = MATRIX_PRODUCTS[node.target]
    op = arguments_of(node)
    left, right = (getattr(op, name) for name in names[:2])
    added = [getattr(op, name) for name in names[2:] if getattr(op, name) is not None]
    rank, is_linear = _rank(node), node.target is aten.linear.default
    if min(_rank(left), _rank(right)) < 2 or left is right or (is_linear and right in row_dims):
        return None
    dims = {
        _result_dim(row_dims[factor], _rank(factor), rank, factor is right)
        for factor in (left, right)
        if factor in row_dims
    }
    if len(dims) != 1 or None in dims:
        return None
    dim = dims.pop()
    assert dim is not None
    outside = [] if is_linear else [factor for factor in (left, right) if factor not in row_dims]
    cut = _cut(node, dim, outside) if dim < rank - 2 else {}
    if cut is None:
        return None
    if any(
        addend in row_dims and row_dims[addend] + rank - _rank(addend) != dim for addend in added
    ):
        return None
    more = _cut(node, dim, [addend for addend in added if addend not in row_dims])
    if more is None or not set(more).isdisjoint((left, right)):
        return None
    return Rows(dim, {**cut, **more})


def _result_dim(dim: int, rank: int, result: int, is_right: bool) -> int | None:
    """Returns the dimension of a product that a dimension of a factor becomes; ``None`` for what is summed over."""
    summed = rank - 2 if is_right else rank - 1
    return None if dim == summed else dim + result - rank


def _attended(node: Node, row_dims: RowDims) -> Rows | None:
    """The rule of attention over other dimensions than that of the rows: those before the heads."""
    op = arguments_of(node)
    rank = _rank(node)
    tensors = (op.query, op.key, op.value)
    if op.dropout_p or op.attn_mask in row_dims or any(_rank(tensor) != rank for tensor in tensors):
        return None
    dims = {row_dims[tensor] for tensor in tensors if tensor in row_dims}
    if len(dims) != 1:
        return None
    (dim,) = dims
    outside = [tensor for tensor in (*tensors, op.attn_mask) if tensor not in row_dims]
    cut = _cut(node, dim, outside) if dim < rank - 3 else None
    return None if cut is None else Rows(dim, cut)


_FAMILIES: Sequence[tuple[Rule, Sequence[Any]]] = (
    (
        _like,
        (
            aten._to_copy.default, aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.alias.default,
            aten.detach.default, aten.contiguous.default, aten.hardswish.default, aten.zeros_like.default,
            aten.ones_like.default, aten.full_like.default, c10d.wait_tensor.default, c10d.all_reduce.default,
        ),
    ),
    (
        _reduced,
        (
            aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default, aten.any.dim, aten.all.dim,
            aten.argmax.default, aten.argmin.default, aten.prod.dim_int, aten.var.correction, aten.std.correction,
            aten.logsumexp.default, aten.linalg_vector_norm.default, aten.softmax.int, aten._softmax.default,
            aten.log_softmax.int, aten._log_softmax.default, aten.cumsum.default, aten.glu.default,
            aten.flip.default, aten.slice.Tensor, aten.select.int, aten.unbind.int, aten.split.Tensor,
            aten.split_with_sizes.default, aten.chunk.default,
        ),
    ),
    (
        _normalized,
        (
            aten.layer_norm.default, aten.native_layer_norm.default, aten.rms_norm.default,
        ),
    ),
    (
        _reshaped,
        (
            aten.reshape.default, aten.view.default, aten._unsafe_view.default, aten.flatten.using_ints,
            aten.unflatten.int, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
        ),
    ),
    (_moved, (aten.permute.default, aten.transpose.int, aten.t.default)),
    (_joined, (aten.cat.default, aten.stack.default)),
    (_expanded, (aten.expand.default,)),
    (_embedded, (aten.embedding.default,)),
    (_attended, (aten.scaled_dot_product_attention.default,)),
    (_multiplied, tuple(MATRIX_PRODUCTS)),
)  # fmt: skip
_RULES: Mapping[Any, Rule] = {op: rule for rule, ops in _FAMILIES for op in ops}
RESHAPES = frozenset(op for op, rule in _RULES.items() if rule is _reshaped)
"""The ops that keep the order of elements in memory."""
REARRANGEMENTS = RESHAPES | {op for op, rule in _RULES.items() if rule is _moved}
"""The ops whose result has the elements of their input."""
