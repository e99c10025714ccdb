"""Makes conditions of the checks of sizes that ops make in eager PyTorch, and neither their fake kernels nor TensorRT.

Exporting calls fake kernels, and an engine would compute something. So the checks become conditions of the program: a
call whose sizes break one is refused, as by PyTorch. Where sizes of inputs do not decide a check, PyTorch runs the op.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt.errors import NewAssumptionError
from torchtrt.settings import CompilationSettings
from torchtrt_blocks.sizes import is_never_negative, is_positive, same
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten
Size = int | torch.SymInt


class _Relation(enum.Enum):
    """How a size has to compare with another."""

    EQUAL = enum.auto()
    BROADCASTS = enum.auto()
    """It is equal, or 1."""
    DIFFERS = enum.auto()
    AT_LEAST = enum.auto()


class _Check(NamedTuple):
    """A comparison of two sizes.

    Attributes:
        left: A size.
        right: What it has to be.
        relation: How it has to compare with that.
    """

    left: Size
    right: Size
    relation: _Relation = _Relation.EQUAL


@pack.lowering_pass()
def checked_sizes(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Makes conditions of what ops check about sizes, or leaves an op to PyTorch."""
    del settings
    for module in graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            checks = _CHECKS.get(getattr(node.target, "overloadpacket", None))
            if checks is not None:
                _check(graph_module, node, checks(arguments_of(node), node))


def _check(graph_module: GraphModule, node: Node, checks: Iterable[_Check]) -> None:
    """Adds the conditions that a node checks to those of the program, unless they are known to hold."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    from torchtrt.graphs import facts_of, leave_in_torch, model_line  # slow to import

    settled = (_Check(_settled(left), _settled(right), how) for left, right, how in checks)
    open_checks = [check for check in settled if not _holds(check)]
    if not open_checks:
        return
    symbols = [size for check in open_checks for size in check[:2] if not isinstance(size, int)]
    if free_unbacked_symbols(symbols) and node.target in _OF_WRITES:
        return  # functionalization calls these with the sizes of the view
    is_decided = node.graph.owning_module is graph_module and not free_unbacked_symbols(symbols)
    if is_decided and all(_varies(check) for check in open_checks):
        line = model_line(node)
        facts_of(graph_module).conditions.update((_condition(check), line) for check in open_checks)
    else:
        leave_in_torch(node, "PyTorch checks sizes that may not fit.")


def _settled(size: Size) -> Size:
    """Returns a size as a number where its expression is one."""
    if isinstance(size, int) or not size.node.expr.is_Integer:
        return size
    return int(size.node.expr)


def _holds(check: _Check) -> bool:
    """Returns whether a check is known to pass."""
    left, right, relation = check
    if relation is _Relation.DIFFERS:
        return is_positive(left)
    if relation is _Relation.AT_LEAST:
        return is_never_negative(left - right)
    return same(left, right) or (relation is _Relation.BROADCASTS and same(left, 1))


def _varies(check: _Check) -> bool:
    return not all(isinstance(size, int) for size in check[:2])


def _condition(check: _Check) -> Any:
    """Returns a check as a condition of SymPy's, unevaluated: to SymPy no symbol is 0."""
    import sympy

    left, right = (
        sympy.Integer(size) if isinstance(size, int) else size.node.expr for size in check[:2]
    )
    if check.relation is _Relation.DIFFERS:
        return sympy.Ne(left, right, evaluate=False)
    if check.relation is _Relation.AT_LEAST:
        return sympy.Ge(left, right, evaluate=False)
    equal = sympy.Eq(left, right, evaluate=False)
    if check.relation is _Relation.BROADCASTS and not isinstance(check.left, int):
        return sympy.Or(sympy.Eq(left, 1, evaluate=False), equal, evaluate=False)
    return equal


def _all_equal(left: Sequence[Size], right: Sequence[Size]) -> Iterator[_Check]:
    yield _Check(len(left), len(right))
    yield from map(_Check, left, right)


def _not_empty(sizes: Iterable[Size]) -> Iterator[_Check]:
    return (_Check(size, 0, _Relation.DIFFERS) for size in sizes)


def _without(sizes: Sequence[Size], *dims: int) -> list[Size]:
    gone = {dim % len(sizes) for dim in dims}
    return [size for dim, size in enumerate(sizes) if dim not in gone]


def _sizes(tensor: Any) -> Sequence[Size]:
    return tuple(value_of(tensor).shape)


def _select_scatter(op: Any, _: Node) -> Iterator[_Check]:
    own, index = _sizes(op.self), value_of(op.index)
    yield from _all_equal(_sizes(op.src), _without(own, op.dim))
    if isinstance(index, int):
        yield _Check(own[op.dim], index + 1 if index >= 0 else -index, _Relation.AT_LEAST)


def _slice_scatter(op: Any, _: Node) -> Iterator[_Check]:
    """Yields that a source has the size of the slice that it is written to."""
    own, source, dim = _sizes(op.self), _sizes(op.src), getattr(op, "dim", 0)
    yield from _all_equal(_without(source, dim), _without(own, dim))
    size = own[dim]
    start, end = (
        None if bound is None else value_of(bound)
        for bound in (getattr(op, "start", None), getattr(op, "end", None))
    )
    first = 0 if start is None else _clamped(start, size)
    last = size if end is None else _clamped(end, size)
    step = value_of(getattr(op, "step", 1))
    if first is not None and last is not None and step is not None:
        yield _Check(source[dim], torch.sym_max(last - first + step - 1, 0) // step)


def _clamped(bound: Size, size: Size) -> Size | None:
    """Returns the index that a bound of a slice stands for; None if it may count from the end."""
    index: Size
    if not isinstance(bound, int):
        if not is_never_negative(bound):
            return None
        index = torch.sym_min(bound, size)
    elif bound == sys.maxsize:
        index = size
    elif bound >= 0:
        index = torch.sym_min(bound, size)
    else:
        index = torch.sym_max(bound + size, 0)
    return index


def _diagonal_scatter(op: Any, _: Node) -> Iterator[_Check]:
    own, source = _sizes(op.self), _sizes(op.src)
    dims = getattr(op, "dim1", 0), getattr(op, "dim2", 1)
    offset = getattr(op, "offset", 0)
    rows, columns = (own[dim] for dim in dims)
    rows, columns = (rows, columns - offset) if offset >= 0 else (rows + offset, columns)
    length = torch.sym_max(torch.sym_min(rows, columns), 0)
    yield from _all_equal(source, [*_without(own, *dims), length])


def _along_index(op: Any, _: Node) -> Iterator[_Check]:
    own, source, index = _sizes(op.self), _sizes(op.source), _sizes(op.index)
    count = math.prod(index)
    if not source:
        yield _Check(count, 1)
        return
    yield _Check(source[op.dim], count)
    if own:
        yield from _all_equal(_without(source, op.dim), _without(own, op.dim))


def _put(op: Any, _: Node) -> Iterator[_Check]:
    yield _Check(math.prod(_sizes(op.source)), math.prod(_sizes(op.index)))


def _index_put(op: Any, node: Node) -> Iterator[_Check]:
    """Yields that masks have the sizes of what they choose from, and that values broadcast to what is chosen."""
    own, values = value_of(op.self), _sizes(op.values)
    indices = [None if index is None else value_of(index) for index in op.indices]
    dim, has_mask = 0, False
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            dim += 1
            continue
        has_mask = True
        yield from map(_Check, index.shape, own.shape[dim:])
        dim += index.dim()
    if has_mask or not hasattr(own, "fake_mode"):
        return
    from torchtrt.graphs import no_new_assumptions  # slow to import

    try:
        with no_new_assumptions(node.graph), own.fake_mode:
            chosen = tuple(aten.index.Tensor(own, indices).shape)
    except NewAssumptionError:
        return
    yield _Check(max(len(values), len(chosen)), len(chosen))
    pairs = zip(reversed(values), reversed(chosen), strict=False)
    yield from (_Check(*pair, _Relation.BROADCASTS) for pair in pairs)


def _resized(op: Any, node: Node) -> Iterator[_Check]:
    tensor = op.self if hasattr(op, "self") else op.input
    return _not_empty((*_sizes(tensor)[1:], *node.meta["val"].shape[2:]))


def _trained(op: Any, _: Node) -> Iterator[_Check]:
    return _not_empty(_sizes(op.input) if op.training else ())


def _drawn(op: Any, _: Node) -> Iterator[_Check]:
    if not getattr(op, "replacement", False):
        yield _Check(_sizes(op.self)[-1], value_of(op.num_samples), _Relation.AT_LEAST)


def _image(op: Any, _: Node) -> Iterator[_Check]:
    return _not_empty(_sizes(op.input)[2:])


def _parts(op: Any, _: Node) -> Iterator[_Check]:
    return _not_empty(_sizes(op.self)[1:])


def _reduced(op: Any, _: Node) -> Iterator[_Check]:
    sizes, dim = _sizes(op.self), getattr(op, "dim", None)
    if isinstance(dim, int):
        sizes = sizes[dim : dim + 1 or None] if sizes else ()
    return _not_empty(sizes if not hasattr(op, "other") else ())


_OF_WRITES = frozenset(
    {aten.select_scatter.default, aten.slice_scatter.default, aten.diagonal_scatter.default}
)
"""Ops that functionalization makes of a write to a view."""
_CHECKS: dict[Any, Callable[[Any, Node], Iterator[_Check]]] = {
    aten.select_scatter: _select_scatter,
    aten.slice_scatter: _slice_scatter,
    aten.diagonal_scatter: _diagonal_scatter,
    **dict.fromkeys((aten.index_add, aten.index_copy, aten.index_reduce), _along_index),
    aten.put: _put,
    **dict.fromkeys((aten.index_put, aten._unsafe_index_put), _index_put),
    **dict.fromkeys((aten.upsample_linear1d, aten.upsample_bilinear2d), _resized),
    **dict.fromkeys((aten.upsample_bicubic2d, aten.upsample_trilinear3d), _resized),
    **dict.fromkeys((aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa), _resized),
    **dict.fromkeys((aten.native_batch_norm, aten._native_batch_norm_legit), _trained),
    aten._native_batch_norm_legit_functional: _trained,
    **dict.fromkeys((aten.grid_sampler, aten.grid_sampler_2d, aten.grid_sampler_3d), _image),
    **dict.fromkeys((aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d), _parts),
    **dict.fromkeys((aten.adaptive_avg_pool3d, aten._adaptive_avg_pool2d), _parts),
    **dict.fromkeys((aten.max, aten.min), _reduced),
    aten.multinomial: _drawn,
}
"""Ops, and the checks that their kernels make."""
