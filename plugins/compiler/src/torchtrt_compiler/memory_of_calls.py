"""Which arguments the result of a call may share memory with: facts about ops, for analyses of graphs.

``may_share`` returns the arguments whose memory a call's result may be. The op's schema annotates them, or
``UNDECLARED`` lists them. Without a schema (control flow, a block that PyTorch runs) they are all arguments.
An engine's outputs are always new memory. ``certain_source`` returns whose memory a result
surely is, whatever the strides: that of a view's base. ``reshape`` may share and is not certain.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.contract import arguments_of
from torchtrt.expressions.bounds import holds_for_all_sizes
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import declares_alias
from torchtrt.graphs.symbols import no_new_assumptions
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_compiler.torch_internals import FakeTensor

aten = torch.ops.aten

UNDECLARED = frozenset({
    aten._unsafe_view.default, aten.alpha_dropout.default, aten.atleast_1d.default,
    aten.atleast_1d.Sequence, aten.atleast_2d.default, aten.atleast_2d.Sequence,
    aten.atleast_3d.default, aten.atleast_3d.Sequence, aten.broadcast_tensors.default,
    aten.cartesian_prod.default, aten.conj_physical.default, aten.dropout.default,
    aten.einsum.default, aten.feature_alpha_dropout.default, aten.feature_dropout.default,
    aten.histogramdd.TensorList_bins, aten.lift.default, aten.meshgrid.default,
    aten.meshgrid.indexing, aten.sum_to_size.default, aten.type_as.default,
    aten.unsafe_chunk.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default,
})  # fmt: skip
"""Ops that may return an argument, or a view of one, although their schema does not declare it."""

ALWAYS_VIEWS = frozenset({
    aten.adjoint.default, aten.broadcast_to.default, aten.chunk.default, aten.conj.default,
    aten.dsplit.array, aten.dsplit.int, aten.expand_as.default, aten.hsplit.array,
    aten.hsplit.int, aten.imag.default, aten.linalg_diagonal.default, aten.mH.default,
    aten.mT.default, aten.matrix_H.default, aten.moveaxis.int, aten.moveaxis.intlist,
    aten.movedim.int, aten.movedim.intlist, aten.narrow.Tensor, aten.narrow.default,
    aten.numpy_T.default, aten.positive.default, aten.real.default, aten.split.sizes,
    aten.swapaxes.default, aten.swapdims.default, aten.tensor_split.indices,
    aten.tensor_split.sections, aten.tensor_split.tensor_indices_or_sections,
    aten.unflatten.int, aten.view_as.default, aten.vsplit.array, aten.vsplit.int,
})  # fmt: skip
"""Composites that return a view of their first argument, whatever its strides.

Ops that are no composites do if they declare it.
"""

_CONVERSIONS = frozenset({aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.to.other})
"""Ops that return their argument where there is nothing to convert, whatever its strides."""

REPEATING = frozenset({
    aten.as_strided.default, aten.broadcast_tensors.default, aten.broadcast_to.default,
    aten.expand.default, aten.expand_as.default, aten.meshgrid.default, aten.meshgrid.indexing,
    aten.unfold.default,
})  # fmt: skip
"""Views that may have several elements in one place."""

NUMBERS = (int, float, bool, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


def may_share(node: Node) -> Sequence[Node]:
    """Returns the nodes whose memory a node's result may be."""
    target, value = node.target, node.meta.get("val")
    if node.op in ("placeholder", "get_attr", "output") or isinstance(value, NUMBERS):
        return ()
    if node.op == "call_module":
        owner = node.graph.owning_module
        is_engine = owner and not isinstance(owner.get_submodule(str(target)), GraphModule)
        return () if is_engine else node.all_input_nodes
    if isinstance(target, OpOverload):
        if target in UNDECLARED:
            return () if shares_memory(node) is False else node.all_input_nodes
        if not declares_alias(target):
            return ()
        values = zip(target._schema.arguments, node.args, strict=False)
        shared = [value for argument, value in values if argument.alias_info is not None]
        return [source for source in shared if isinstance(source, Node)] or node.all_input_nodes
    return node.all_input_nodes


def shares_memory(node: Node) -> bool | None:
    """Returns whether a call returns memory of these arguments, or None where that cannot be known."""
    results = evaluated(node)
    if results is None:
        return None
    stored = {storage_of(fake) for fake in _fakes(node)}
    return not stored.isdisjoint(storage_of(result) for result in results)


def returned_argument(node: Node) -> Node | None:
    """Returns the argument that a conversion, or an op of ``UNDECLARED``, is known to return as it is."""
    if _fake(node) is None or not (node.target in UNDECLARED or node.target in _CONVERSIONS):
        return None  # also where it returns a list: an argument is only a part of it
    for result in evaluated(node) or ():
        for source in node.all_input_nodes:
            before = _fake(source)
            if before is not None and storage_of(before) == storage_of(result):
                return source if have_equal_geometry(before, result) else None
    return None


def have_equal_geometry(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors are known to have the same sizes and strides. A comparison would be a new guard."""
    pairs = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=False)
    return one.dim() == other.dim() and all(holds_for_all_sizes(a == b) for a, b in pairs)


def _fake(node: Node) -> FakeTensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, FakeTensor) else None


def _fakes(node: Node) -> list[FakeTensor]:
    return [fake for fake in map(_fake, node.all_input_nodes) if fake is not None]


def evaluated(node: Node, target: Any = None) -> list[torch.Tensor] | None:
    """Returns the results of a call, or of another op, for its fake arguments, or None where that cannot be known."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta.get("val"))
    if not (fakes := _fakes(node)):
        return None
    try:
        with no_new_assumptions(node.graph), fakes[0].fake_mode:
            return pytree.tree_leaves((target or node.target)(*args, **kwargs))  # type: ignore[operator]
    except Exception:  # it may refuse symbolic sizes in any way
        return None


def certain_source(node: Node) -> Node | None:
    """Returns the node whose memory a node's result surely is, or None."""
    target = node.target
    if target is operator.getitem:
        source = node.args[0]
        return certain_source(source) if isinstance(source, Node) else None
    if not isinstance(target, OpOverload) or not node.args:
        return None
    source = node.args[0]
    is_view = declares_alias(target) and (target in ALWAYS_VIEWS or not target._can_decompose())
    is_itself = not copies_by_strides(node) and returned_argument(node) is source
    return source if isinstance(source, Node) and (is_view or is_itself) else None


def copies_by_strides(node: Node) -> bool:
    """Returns whether an op returns a view of its argument for some strides and a copy for others, as ``reshape``."""
    target = node.target
    if not isinstance(target, OpOverload) or not declares_alias(target):
        return False
    if target in _CONVERSIONS:
        memory_format = getattr(arguments_of(node), "memory_format", None)
        return memory_format not in (None, torch.preserve_format) and _keeps_dtype(node)
    return target._can_decompose() and target not in ALWAYS_VIEWS


def _keeps_dtype(node: Node) -> bool:
    """Returns whether a conversion may return its argument; one to another dtype always copies."""
    source, value = node.args[0], node.meta.get("val")
    before = source.meta.get("val") if isinstance(source, Node) else None
    return getattr(before, "dtype", None) == getattr(value, "dtype", None)
