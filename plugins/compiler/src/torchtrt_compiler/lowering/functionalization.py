"""Makes a program free of writes.

PyTorch's own functionalization retraces the whole program, which takes longer than exporting it did. Most writes are
of one simple kind, such as ``relu_`` on a fresh result. Those are rewritten in place: ``y = op_(x)`` becomes
``y = op(x)``, and later readers of ``x`` read ``y``. All other writes go through PyTorch.
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
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import declares_alias, model_line, mutates
from torchtrt.graphs.symbols import no_new_assumptions, shape_env_of
from torchtrt_compiler.lowering.aliasing import (
    UNDECLARED,
    may_share,
    returned_argument,
    self_overlapping_nodes,
)
from torchtrt_compiler.lowering.regions import (
    autocast_restored,
    marks_autocast,
)
from torchtrt_compiler.lowering.strides import wraps_by_strides
from torchtrt_compiler.torch_internals import (
    DispatchKey,
    FakeTensor,
    GraphModuleOfLateCode,
    is_any_autocast_enabled,
    is_traceable_wrapper_subclass,
    sizes_of_two_unknown,
    whole_composites_of,
)

aten = torch.ops.aten

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
_PARTS_OF_SUBCLASSES = ("export::access_subclass_inner_tensor",)


def _updates_statistics(node: Node) -> bool:
    """Returns whether a normalization updates its running statistics, which its schema does not declare."""
    normalizations = (aten.batch_norm.default, aten.instance_norm.default)
    return node.target in normalizations and bool(node.args[5])


def _keeps_subclasses(exported: ExportedProgram) -> bool:
    """Returns whether an op reads a tensor subclass, such as torchao's weights, as a whole.

    ``torch.export`` records ops before they are dispatched to subclasses. Most subclasses replace the ops of linear
    layers earlier; PyTorch replaces the others, such as those of embeddings, while it retraces the program.
    """
    signature = exported.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return any(
        is_traceable_wrapper_subclass(exported.state_dict.get(named[node.name]))
        and any(
            getattr(user.target, "name", str)() not in _PARTS_OF_SUBCLASSES for user in node.users
        )
        for node in exported.graph.nodes
        if node.op == "placeholder" and node.name in named
    )


def functionalize(exported: ExportedProgram) -> tuple[ExportedProgram, GraphModule]:
    """Returns the program and its graph without writes.

    Writes to buffers and inputs have become outputs that the program's signature lists. The
    program given is not changed.
    """
    nodes = exported.graph.nodes
    has_casts = is_any_autocast_enabled() or marks_autocast(exported.graph_module)
    must_retrace = has_casts or any(map(_updates_statistics, nodes)) or _keeps_subclasses(exported)
    if not must_retrace:
        rewritten = _with_writes_rewritten(exported.graph_module)
        if rewritten is not None:
            return exported, rewritten
    _check_destinations(exported.graph)
    try:
        exported = retrace(exported)
    except Exception as error:
        raise UnsupportedProgramError(
            f"PyTorch could not rewrite the program without writes: {error}\n"
            "Tensors that the model writes to must be buffers (register_buffer), parameters or inputs, none of them a "
            "view of another: write to a clone(), or keep one buffer and take views of it in forward. Where the code "
            "reaches a buffer through an object that is no module, such as a cache, only strict exporting sees that it "
            "is one: compile torch.export.export(model, args, strict=True)."
        ) from error
    return exported, exported.graph_module


def _with_writes_rewritten(module: GraphModule) -> GraphModule | None:
    """Returns a graph, with its branches and loops, after the rewriting of every write on a fresh result.

    A module without writes is returned as it is. The result is None where there is another kind of write.
    """
    inner = {
        name: _with_writes_rewritten(child)
        for name, child in module.named_children()
        if isinstance(child, GraphModule)
    }
    if None in inner.values():
        return None
    changed = {name: child for name, child in inner.items() if child is not getattr(module, name)}
    if not changed and not any(map(mutates, module.graph.nodes)):
        return module
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    if not rewrite_writes(graph):
        return None
    rewritten = GraphModuleOfLateCode(module, graph)
    for name, child in changed.items():
        setattr(rewritten, name, child)
    return rewritten


def retrace(exported: ExportedProgram) -> ExportedProgram:
    """Returns a program as PyTorch traces it again: without writes, transforms and regions.

    Raises:
        Exception: PyTorch may refuse a program in any way.
    """
    sizes = sizes_of_two_unknown(shape_env_of(exported.graph))
    with sizes, _declared(exported), autocast_restored(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as when it was exported
        rewritten = _rewritten(exported.graph)
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


def _check_destinations(graph: Graph) -> None:
    """Checks that PyTorch can rewrite each write.

    Raises:
        UnsupportedProgramError: One makes a tensor larger, resizes to another memory format, or fills a diagonal across
            rows with gaps. Or several elements of a written tensor are at one place in memory.
    """
    repeating = self_overlapping_nodes(graph)
    for node in filter(mutates, graph.nodes):
        destination = node.args[0]
        if node.target is aten.resize_.default and _is_larger(node, destination):
            raise UnsupportedProgramError(
                f"The model makes {destination.name} larger with resize_ ({model_line(node)}), and the new elements "
                "have no values. Make a tensor of the wanted size, such as new_zeros, and copy into it."
            )
        if node.target is aten.resize_.default and _is_turned(node.kwargs.get("memory_format")):
            raise UnsupportedProgramError(
                f"The model resizes {destination.name} in another memory format ({model_line(node)}), which PyTorch's "
                "functionalization omits. Leave memory_format out, and permute the result."
            )
        if wraps_by_strides(node) and not _is_of_whole_rows(destination.meta["val"]):
            raise UnsupportedProgramError(
                f"The model writes ({node.target}) with wrap to {destination.name}, whose rows are not next to "
                f"each other in memory ({model_line(node)}). PyTorch would write by strides, also between the rows. "
                "Write to a copy by contiguous()."
            )
        if destination in repeating and not _elements_are_apart(destination.meta.get("val")):
            raise UnsupportedProgramError(
                f"The model writes ({node.target}) to {destination.name}. Several of its elements are one "
                "place in memory, as after expand. Write to a clone() of it."
            )


def _is_turned(memory_format: Any) -> bool:
    return memory_format not in (None, torch.contiguous_format)


def _is_larger(node: Node, destination: Node) -> bool:
    """Returns whether a resized tensor is known to have more elements than before."""
    before, after = destination.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return statically_known_true(after.numel() > before.numel())


def _is_of_whole_rows(value: torch.Tensor) -> bool:
    """Returns whether the strides of a matrix lead from the end of each row to the next one."""
    return statically_known_true(value.stride(0) == value.size(1) * value.stride(1))


def _elements_are_apart(value: Any) -> bool:
    """Returns whether a tensor is known to have each element in a place of its own."""
    if not isinstance(value, torch.Tensor) or not all(
        type(size) is int for size in (*value.shape, *value.stride())
    ):
        return False
    end = 0
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and stride <= end:
            return False
        end += stride * (size - 1)
    return True


def _rewritten(graph: Graph) -> dict[Any, Callable[..., Any]]:
    """Returns the ops that PyTorch is to compute by others: ``copy``, and what is an undeclared view here."""
    key = DispatchKey.CompositeImplicitAutograd
    return {aten.copy.default: _copied} | {
        node.target: functools.partial(node.target._op_dk, key)
        for node in graph.nodes
        if node.target in UNDECLARED and may_share(node)
    }


def _copied(destination: torch.Tensor, source: torch.Tensor, _: bool = False) -> torch.Tensor:
    """Returns the value that ``copy_`` writes: cast, and expanded to all of a buffer, which PyTorch omits."""
    if _is_like(source, destination):
        return source.clone()
    return source.to(destination).expand_as(destination)


@contextlib.contextmanager
def _declared(exported: ExportedProgram) -> Iterator[None]:
    """Makes a program declare what shares memory, in a ``with`` block, because PyTorch relies on declarations.

    An op that returns its argument becomes ``alias``: PyTorch would lose a write through it.
    Inputs that nothing reads get memory of their own: a buffer under two names is read under one, and PyTorch would
    refuse both together.
    """
    undo: list[Callable[[], None]] = []
    signature = exported.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and not node.users and isinstance(value, FakeTensor):
            undo.append(functools.partial(node.meta.__setitem__, "val", value))
            with value.fake_mode:
                node.meta["val"] = torch.empty_like(value)
            if node.name in weights:
                name = weights[node.name]
                holder = exported.state_dict if name in exported.state_dict else exported.constants
                undo.append(functools.partial(holder.__setitem__, name, holder[name]))
                holder[name] = _stand_in(holder[name])
        elif node.target in UNDECLARED:
            undo.append(functools.partial(_call, node, node.target, node.args, node.kwargs))
            if source := returned_argument(node):
                _call(node, aten.alias.default, (source,), {})
            node.target = _SAYING_SO.get(node.target, node.target)
        elif node.target is aten.fill_diagonal_.default:
            undo.append(functools.partial(_call, node, node.target, node.args, node.kwargs))
            node.target = _fill_diagonal
    try:
        yield
    finally:
        for step in undo:
            step()


def _fill_diagonal(tensor: torch.Tensor, value: Any, wrap: bool = False) -> torch.Tensor:
    """Does what ``fill_diagonal_`` does, by the places of elements: PyTorch writes to memory by strides."""
    places = [
        torch.arange(size, device=tensor.device).reshape(-1, *[1] * (tensor.dim() - 1 - dim))
        for dim, size in enumerate(tensor.shape)
    ]
    if wrap and len(places) == 2:
        places[0] = places[0] % (tensor.shape[1] + 1)
    equal = [first == second for first, second in itertools.pairwise(places)]
    is_filled = functools.reduce(torch.logical_and, equal)
    return tensor.copy_(torch.where(is_filled, torch.full_like(tensor, value), tensor))


def _stand_in(weight: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same kind and shape that takes no memory."""
    tensor = torch.empty((), dtype=weight.dtype, device=weight.device).expand(weight.shape)
    if isinstance(weight, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, weight.requires_grad)
    return tensor


def _call(node: Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    node.target, node.args, node.kwargs = target, args, kwargs


def rewrite_writes(graph: Graph) -> bool:
    """Rewrites every write on a fresh result. Returns whether there was no other kind of write."""
    with no_new_assumptions(graph):
        for node in list(graph.nodes):
            if not mutates(node):
                continue
            if (functional := _functional_form(node)) is None:
                return False
            source = node.args[0]
            later = {user for user in source.users if user > node}
            with graph.inserting_before(node):
                result = graph.call_function(functional, node.args, node.kwargs)
            result.meta = dict(node.meta)
            source.replace_all_uses_with(result, delete_user_cb=later.__contains__)
            node.replace_all_uses_with(result)
            graph.erase_node(node)
    return True


def _functional_form(node: Node) -> Any:
    """Returns the op that computes what ``node`` writes, or None where replacing it could change the program."""
    schema = node.target._schema  # type: ignore[union-attr]
    written = [argument.is_write for argument in schema.arguments]
    source = node.args[0]
    if written != [True] + [False] * (len(written) - 1) or not isinstance(source, Node):
        return None
    packet, _, overload = str(node.target).rpartition(".")
    name = packet.rpartition(".")[2]
    functional = getattr(getattr(torch.ops.aten, name.removesuffix("_"), None), overload, None)
    if not name.endswith("_") or functional is None or not _is_fresh(source):
        return None
    if any(source in may_share(user) for user in source.users if not mutates(user)):
        return None
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta.get("val"))
    try:
        with source.meta["val"].fake_mode:
            result = functional(*args, **kwargs)
    except Exception:
        return None  # it may refuse these arguments in any way; PyTorch's functionalization then decides
    before = source.meta["val"]
    is_view = torch.Tag.inplace_view in node.target.tags and declares_alias(functional)  # type: ignore[union-attr]
    is_like = result.dtype is before.dtype if is_view else _is_like(result, before)
    return functional if is_like else None


def _is_like(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors are known to have one dtype and shape."""
    sizes = zip(value.shape, other.shape)  # noqa: B905
    is_alike = (value.dtype, value.dim()) == (other.dtype, other.dim())
    return is_alike and all(statically_known_true(mine == theirs) for mine, theirs in sizes)


def _is_fresh(node: Node) -> bool:
    """Returns whether nothing else holds the memory of a call's result."""
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and not may_share(node)
        and isinstance(node.meta.get("val"), torch.Tensor)
    )
