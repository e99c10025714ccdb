"""Makes a program free of writes.

PyTorch's own functionalization retraces the whole program, which takes longer than exporting it did. Most writes are
of one simple kind, such as ``relu_`` on a fresh result. Those are rewritten in place: ``y = op_(x)`` becomes
``y = op(x)``, and later readers of ``x`` read ``y``. All other writes go through PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.expressions.bounds import holds_for_all_sizes
from torchtrt.graphs.nodes import all_graphs, declares_alias, model_line, mutates
from torchtrt.graphs.symbols import no_new_assumptions, sizes_from_data
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.lowering.aliasing import self_overlapping_nodes, writes_by_strides
from torchtrt_compiler.lowering.regions import marks_autocast
from torchtrt_compiler.lowering.retracing import (
    functional_op,
    has_adjacent_windows,
    is_like,
    retrace,
)
from torchtrt_compiler.lowering.strides import wraps_by_strides
from torchtrt_compiler.memory_of_calls import (
    evaluated,
    have_equal_geometry,
    may_share,
    returned_argument,
    shares_memory,
)
from torchtrt_compiler.torch_internals import (
    GraphModuleOfLateCode,
    is_any_autocast_enabled,
    is_traceable_wrapper_subclass,
)

aten = torch.ops.aten

_PART_OF_SUBCLASS = "export::access_subclass_inner_tensor"
_CONTIGUOUS = (None, torch.contiguous_format)


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
        and any(getattr(user.target, "name", str)() != _PART_OF_SUBCLASS for user in node.users)
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
    for module in all_graphs(exported.graph_module):
        _check_views(module)
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


def _check_destinations(graph: Graph) -> None:
    """Checks that PyTorch can rewrite each write.

    Raises:
        UnsupportedProgramError: One makes a tensor larger, resizes to another memory format, fills a diagonal across
            rows with gaps, or writes to windows with gaps. Or it gives an input or a buffer another shape or other
            strides. Or several elements of a written tensor are at one place in memory.
    """
    repeating, windows = self_overlapping_nodes(graph), _windows_with_gaps(graph)
    for node in filter(mutates, graph.nodes):
        destination = node.args[0]
        written = _itself(destination)
        if written.op == "placeholder" and _changes_geometry(node, destination):
            raise UnsupportedProgramError(
                f"The model gives {written.name} itself other sizes or strides ({node.target}, "
                f"{model_line(node)}). A compiled model writes values only. Take a new view, such as x.t() in place of "
                "x.t_(), or change a clone()."
            )
        if node.target is aten.resize_.default and _is_larger(node, destination):
            raise UnsupportedProgramError(
                f"The model makes {destination.name} larger with resize_ ({model_line(node)}), and the new elements "
                "have no values. Make a tensor of the wanted size, such as new_zeros, and copy into it."
            )
        memory_format = node.kwargs.get("memory_format")
        if node.target is aten.resize_.default and memory_format not in _CONTIGUOUS:
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
        if destination in windows:
            raise UnsupportedProgramError(
                f"The model writes ({node.target}) to windows of unfold ({model_line(node)}), and PyTorch's "
                "functionalization loses what is between them. Let the step be the size of the windows, or write to "
                "slices, such as x[i::step]."
            )


def _check_views(graph_module: GraphModule) -> None:
    """Checks that no data determine whether a write reaches what the program reads afterwards.

    ``y[:, :n].reshape(-1)`` is a view of ``y`` where ``n`` is 1 or the whole length. PyTorch takes what it cannot
    decide for a copy, and would lose what is written to it.

    Raises:
        UnsupportedProgramError: An op may return a view for some data and a copy for other data.
    """
    for node in writes_by_strides(graph_module):
        values = [own.meta.get("val") for own in (*node.all_input_nodes, node)]
        if sizes_from_data(values) and not shares_memory(node):
            raise UnsupportedProgramError(
                f"The model writes to memory that {node.target} shares for some data only ({model_line(node)}). Its "
                "result is a view or a copy, by sizes that depend on data. Write to a view, such as x[:, :n] itself, "
                "or to a clone() that nothing else reads."
            )


def _windows_with_gaps(graph: Graph) -> set[Node]:
    """Returns the nodes whose results may be views of windows that are not next to each other."""
    windows: set[Node] = set()
    for node in graph.nodes:
        is_unfold = node.target is aten.unfold.default and not has_adjacent_windows(node)
        is_perhaps_view = not windows.isdisjoint(may_share(node))
        if is_unfold or (is_perhaps_view and shares_memory(node) is not False):
            windows.add(node)
    return windows


def _itself(node: Node) -> Node:
    """Returns the node whose result is the tensor itself that a node returns: a write returns what it writes to."""
    source = node.args[0] if mutates(node) else returned_argument(node)
    return _itself(source) if isinstance(source, Node) else node


def _changes_geometry(node: Node, destination: Node) -> bool:
    """Returns whether an op may change the sizes or strides of the tensor itself that it is given."""
    before, after = destination.meta["val"], node.meta["val"]
    is_view = torch.Tag.inplace_view in node.target.tags  # type: ignore[union-attr]
    return is_view and not have_equal_geometry(before, after)


def _is_larger(node: Node, destination: Node) -> bool:
    """Returns whether a resized tensor is known to have more elements than before."""
    before, after = destination.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return holds_for_all_sizes(after.numel() > before.numel())


def _is_of_whole_rows(value: torch.Tensor) -> bool:
    """Returns whether the strides of a matrix lead from the end of each row to the next one."""
    return holds_for_all_sizes(value.stride(0) == value.size(1) * value.stride(1))


def _elements_are_apart(value: Any) -> bool:
    """Returns whether a tensor, whose sizes may be symbols, is known to have each element in a place of its own."""
    if not isinstance(value, torch.Tensor):
        return False
    steps = [
        (stride, (size - 1) * stride)
        for stride, size in zip(value.stride(), value.shape, strict=True)
        if not holds_for_all_sizes(size <= 1)
    ]
    while steps:
        reach = sum(length for _, length in steps)
        # A step leads beyond all that the smaller ones reach.
        outer = next(
            (step for step in steps if holds_for_all_sizes(step[0] > reach - step[1])), None
        )
        if outer is None:
            return False
        steps.remove(outer)
    return True


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
    functional, source = functional_op(node.target), node.args[0]
    if functional is None or not isinstance(source, Node) or not _is_fresh(source):
        return None
    if any(source in may_share(user) for user in source.users if not mutates(user)):
        return None
    if not (results := evaluated(node, functional)):
        return None  # these arguments may be refused; PyTorch's functionalization then decides
    (result,), before = results, source.meta["val"]
    is_view = torch.Tag.inplace_view in node.target.tags and declares_alias(functional)  # type: ignore[union-attr]
    is_alike = result.dtype is before.dtype if is_view else is_like(result, before)
    return functional if is_alike else None


def _is_fresh(node: Node) -> bool:
    """Returns whether nothing else holds the memory of a call's result."""
    return (
        isinstance(node.target, OpOverload)
        and not may_share(node)
        and isinstance(node.meta.get("val"), torch.Tensor)
    )
