"""Has PyTorch trace a program again: without writes, transforms and regions.

PyTorch relies on what schemas declare and on the strides that values have while it traces. Both may differ from the
program. Ops that share memory without a declaration are declared for as long as it traces. A value that is written may
get other strides than the tensor to which it is written: those of ``masked_fill`` are contiguous. Whether
``reshape`` is a view or a copy would then change, and with it what a later write changes. So written values get the
strides of their destination, and ``reshape`` stays the view, or the copy, that it is in the program.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from torchtrt.expressions.bounds import holds_for_all_sizes
from torchtrt.graphs.nodes import all_graphs, mutates
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.lowering.regions import autocast_restored
from torchtrt_compiler.lowering.strides import order_in_memory
from torchtrt_compiler.memory_of_calls import (
    UNDECLARED,
    copies_by_strides,
    evaluated,
    have_equal_geometry,
    may_share,
    returned_argument,
    shares_memory,
)
from torchtrt_compiler.torch_internals import (
    DispatchKey,
    FakeTensor,
    sizes_by_formulas,
    sizes_of_two_unknown,
    whole_composites_of,
)

aten = torch.ops.aten

_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A target, its arguments, and those by name."""
_SAYING_SO = {
    aten._unsafe_view.default: aten.view.default,
    aten.lift.default: aten.alias.default,
    aten.unsafe_chunk.default: aten.chunk.default,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
"""For ops that are undeclared views and no composites of declared ones: the views that they are."""

_OF_VIEWS = frozenset({
    aten.chunk.default, aten.contiguous.default, aten.expand_as.default, aten.flatten.using_ints, aten.mT.default,
    aten.reshape.default, aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.to.other, aten.unflatten.int,
})  # fmt: skip
"""Composite ops that call views and copies alone."""


def retrace(exported: ExportedProgram) -> ExportedProgram:
    """Returns a program as PyTorch traces it again.

    Raises:
        Exception: PyTorch may refuse a program in any way.
    """
    sizes = sizes_of_two_unknown(shape_env_of(exported.graph))
    with (
        sizes,
        _declared(exported),
        _unread_apart(exported),
        _constants_inside(exported),
        autocast_restored(),
        sizes_by_formulas(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # as when it was exported
        rewritten = _rewritten(exported)
        with whole_composites_of(exported, _OF_VIEWS):
            traced: ExportedProgram = exported.run_decompositions(rewritten)
    before, after = map(_result_dtypes, (exported, traced))
    if before != after:
        raise TypeError(f"its results are {after}, where the model's are {before}")
    return traced


def _result_dtypes(exported: ExportedProgram) -> list[torch.dtype]:
    """Returns the dtypes of the tensors that the user gets."""
    kinds = (spec.kind is OutputKind.USER_OUTPUT for spec in exported.graph_signature.output_specs)
    results: Any = exported.graph.output_node().args[0]
    nodes = itertools.compress(results, kinds)
    values = (node.meta.get("val") for node in nodes if isinstance(node, Node))
    return [value.dtype for value in values if isinstance(value, torch.Tensor)]


def _rewritten(exported: ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """Returns the ops that PyTorch is to compute by others: ``copy``, and what is an undeclared view here."""
    key = DispatchKey.CompositeImplicitAutograd
    return {aten.copy.default: _copied} | {
        node.target: functools.partial(node.target._op_dk, key)
        for graph_module in all_graphs(exported.graph_module)
        for node in graph_module.graph.nodes
        if node.target in UNDECLARED and may_share(node)
    }


def _copied(destination: torch.Tensor, source: torch.Tensor, _: bool = False) -> torch.Tensor:
    """Returns the value that ``copy_`` writes: cast, and expanded to all of a buffer, which PyTorch omits."""
    if is_like(source, destination):
        return _with_strides_of(destination, source.clone())
    return _with_strides_of(destination, source.to(destination).expand_as(destination))


def _with_strides_of(other: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Returns a value with its elements in memory in the order of those of another tensor, if that has no gaps."""
    if have_equal_geometry(other, value) or (order := order_in_memory(other)) is None:
        return value
    back = [order.index(dim) for dim in range(len(order))]
    return value.permute(order).contiguous().permute(back)


@contextlib.contextmanager
def _declared(exported: ExportedProgram) -> Iterator[None]:
    """Makes a program declare what shares memory, in a ``with`` block, because PyTorch relies on declarations.

    An op that returns its argument becomes ``alias``: PyTorch would lose a write through it. Where something is
    written, ops that share memory by strides keep to what they do in the program.
    """
    modules = all_graphs(exported.graph_module)
    writes = any(mutates(node) for module in modules for node in module.graph.nodes)
    with contextlib.ExitStack() as undo:
        for module in modules:
            calls = {node: _independent_call(node, writes) for node in module.graph.nodes}
            changed = {node: call for node, call in calls.items() if call is not None}
            # PyTorch runs the nodes of the program, and the code of the graphs inside it.
            runs_code = bool(changed) and module is not exported.graph_module
            if runs_code:
                undo.callback(module.recompile)
            for node, call in changed.items():
                undo.callback(_call, node, node.target, node.args, node.kwargs)
                _call(node, *call)
            if runs_code:
                module.recompile()
        yield


@contextlib.contextmanager
def _unread_apart(exported: ExportedProgram) -> Iterator[None]:
    """Gives inputs that nothing reads memory of their own, in a ``with`` block.

    A buffer under two names is read under one, and PyTorch would refuse both together.
    """
    signature = exported.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    with contextlib.ExitStack() as undo:
        for node in exported.graph.find_nodes(op="placeholder"):
            value = node.meta.get("val")
            if node.users or not isinstance(value, FakeTensor):
                continue
            undo.callback(node.meta.__setitem__, "val", value)
            with value.fake_mode:
                node.meta["val"] = torch.empty_like(value)
            if node.name in weights:
                name = weights[node.name]
                holder = exported.state_dict if name in exported.state_dict else exported.constants
                undo.callback(holder.__setitem__, name, holder[name])
                holder[name] = _stand_in(holder[name])
        yield


@contextlib.contextmanager
def _constants_inside(exported: ExportedProgram) -> Iterator[None]:
    """Makes the constants of branches and loops plain attributes, in a ``with`` block.

    PyTorch takes their buffers for inputs of the program. It would find its own wrappers of them when it traces the
    branch again, and refuse them.
    """
    with contextlib.ExitStack() as undo:
        for module in all_graphs(exported.graph_module)[1:]:
            for name, constant in [*module.named_buffers(recurse=False)]:
                delattr(module, name)
                setattr(module, name, constant)
                undo.callback(module.register_buffer, name, constant)
                undo.callback(delattr, module, name)
        yield


def _independent_call(node: Node, writes: bool) -> _Call | None:
    """Returns the call in place of a node that declares what it shares, whatever the strides, or None.

    Args:
        node: A node of the program.
        writes: Whether the program writes to anything.
    """
    if node.target in UNDECLARED:
        if source := returned_argument(node):
            return aten.alias.default, (source,), {}
        return _SAYING_SO.get(node.target, node.target), node.args, node.kwargs
    if node.target is aten.fill_diagonal_.default:
        return _fill_diagonal, node.args, node.kwargs
    if writes and has_adjacent_windows(node):
        return _adjacent_windows, node.args, node.kwargs
    if writes and copies_by_strides(node) and isinstance(node.meta.get("val"), torch.Tensor):
        is_view = shares_memory(node)
        function = _view_by if is_view else _copy_by
        return None if is_view is None else (function, (node.target, *node.args), node.kwargs)
    if (functional := functional_op(node.target)) and _changes_strides(node, functional):
        return _write_by, (functional, *node.args), node.kwargs
    return None


def _changes_strides(node: Node, functional: Any) -> bool:
    """Returns whether a functional op may return other strides than those of what an op in place writes to."""
    results, before = evaluated(node, functional), node.args[0].meta["val"]  # type: ignore[union-attr]
    if not results or not is_like(results[0], before):
        return False
    return not have_equal_geometry(results[0], before)


def _view_by(
    op: Callable[..., torch.Tensor], tensor: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Returns the result of an op as a view; PyTorch raises an error where the strides allow none."""
    return tensor.view(op(tensor, *args, **kwargs).shape)


def _copy_by(op: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Returns the result of an op in memory of its own."""
    return op(*args, **kwargs).clone()


def _write_by(
    op: Callable[..., torch.Tensor], tensor: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Writes what an op returns, so that it gets the strides of the tensor."""
    return tensor.copy_(op(tensor, *args, **kwargs))


def has_adjacent_windows(node: Node) -> bool:
    """Returns whether a node is ``unfold`` with each window next to the one before."""
    if node.target is not aten.unfold.default:
        return False
    tensor, _, size, step = node.args
    return bool(size == step and tensor.meta["val"].dim())  # type: ignore[union-attr]


def _adjacent_windows(tensor: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
    """Returns the view that ``unfold`` is. PyTorch would lose what is behind the last window, and fix the size."""
    del step
    dim %= tensor.dim()
    count = tensor.shape[dim] // size
    whole = aten.slice.Tensor(tensor, dim, 0, count * size)
    windows: torch.Tensor = whole.unflatten(dim, (count, size)).movedim(dim + 1, -1)
    return windows


def _fill_diagonal(tensor: torch.Tensor, value: Any, wrap: bool = False) -> torch.Tensor:
    """Does what ``fill_diagonal_`` does, by the places of elements: PyTorch writes to memory by strides."""
    indices = [
        torch.arange(size, device=tensor.device).reshape(-1, *[1] * (tensor.dim() - 1 - dim))
        for dim, size in enumerate(tensor.shape)
    ]
    if wrap and len(indices) == 2:
        indices[0] = indices[0] % (tensor.shape[1] + 1)
    equal = [first == second for first, second in itertools.pairwise(indices)]
    is_filled = functools.reduce(torch.logical_and, equal)
    return tensor.copy_(torch.where(is_filled, torch.full_like(tensor, value), tensor))


def _stand_in(weight: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same kind and shape that takes no memory."""
    tensor = torch.empty((), dtype=weight.dtype, device=weight.device).expand(weight.shape)
    if isinstance(weight, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, weight.requires_grad)
    return tensor


def _call(node: Node, target: Any, args: Any, kwargs: Any) -> None:
    node.target, node.args, node.kwargs = target, args, kwargs


def functional_op(target: Any) -> Any:
    """Returns the op that returns what an op in place writes to its first argument, or None."""
    if not isinstance(target, OpOverload):
        return None
    written = [argument.is_write for argument in target._schema.arguments]
    packet, _, overload = str(target).rpartition(".")
    name = packet.rpartition(".")[2]
    if written != [True] + [False] * (len(written) - 1) or not name.endswith("_"):
        return None
    return getattr(getattr(aten, name.removesuffix("_"), None), overload, None)


def is_like(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors are known to have one dtype and shape."""
    sizes = zip(value.shape, other.shape)  # noqa: B905
    is_alike = (value.dtype, value.dim()) == (other.dtype, other.dim())
    return is_alike and all(holds_for_all_sizes(mine == theirs) for mine, theirs in sizes)
