"""Makes ops that read memory by strides independent of the strides that a value has when the program runs.

``as_strided`` numbers places in memory. An engine returns contiguous results, and lowering removes copies and turns
``view`` into ``reshape``: a value keeps its elements and not its strides. So such an op gets a contiguous copy whose
places in memory are those that the op saw when the program was exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from torchtrt.errors import UnsupportedProgramError
from torchtrt.expressions.bounds import holds_for_all_sizes
from torchtrt.graphs.nodes import all_graphs, all_nodes, is_number, model_line
from torchtrt_compiler.lowering.aliasing import writes_by_strides
from torchtrt_compiler.memory_of_calls import certain_source
from torchtrt_compiler.python_reads import python_reads
from torchtrt_runtime.checks.tensors import InputMemory

aten = torch.ops.aten

_READS = frozenset({aten.as_strided.default, aten.as_strided_copy.default})
_RESIZES = frozenset({aten.resize.default, aten.resize_as.default})
_BY_STRIDES = _READS | _RESIZES | {aten.as_strided_scatter.default}
_IN_PLACE = frozenset({
    aten.as_strided_.default, aten.resize_.default, aten.resize_as_.default,
})  # fmt: skip
_COPY = {"memory_format": torch.contiguous_format}


def is_read_by_strides(node: Node) -> bool:
    """Returns whether an op reads the memory of a node's result by strides."""
    return any(user.target in _BY_STRIDES and user.args[0] is node for user in node.users)


def wraps_by_strides(node: Node) -> bool:
    """Returns whether an op may fill diagonals below the second one, which it finds by the strides of its argument."""
    if node.target is not aten.fill_diagonal_.default:
        return False
    wrap = node.args[2] if len(node.args) > 2 else node.kwargs.get("wrap", False)
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    if not wrap or value.dim() != 2:
        return False
    rows, columns = value.shape
    return not holds_for_all_sizes(rows <= 2 * columns + 2)


def input_memory(exported: ExportedProgram, placeholders: Sequence[Node]) -> dict[str, InputMemory]:
    """Returns the required memory of each input, by name; nothing if neither the program nor the model reads strides.

    Elementwise ops give their results the strides of their operands. A program that reads memory by strides
    therefore computes other values for inputs with other strides. So does a model whose Python code reads them, and one
    that writes through a view which is a copy for other strides.

    Args:
        exported: The program.
        placeholders: Its user inputs.

    Raises:
        UnsupportedProgramError: An input of a program that reads strides was exported with gaps in memory.
    """
    modules = all_graphs(exported.graph_module)
    nodes = all_nodes(exported.graph_module)
    reading = [node for node in nodes if node.target in _BY_STRIDES | _IN_PLACE]
    in_python = python_reads(exported)
    is_read = bool(reading or in_python.lines) or any(map(wraps_by_strides, nodes))
    if not (is_read or in_python.writes or any(map(writes_by_strides, modules))):
        return {}
    read_itself = {_base(node).name for node in reading}
    required = {}
    for node in placeholders:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or is_number(node):
            continue
        order = order_in_memory(value)
        if any(type(size) is int and size == 0 for size in value.shape):
            order = list(range(value.dim()))  # without elements, there are no gaps between them
        if order is None:
            where = f" ({in_python.lines[0]})" if in_python.lines else ""
            raise UnsupportedProgramError(
                f"The model reads memory by strides{where}, and the input {node.target!r} was exported with gaps "
                "between its elements in memory. Compile or export the model with contiguous inputs."
            )
        reads_offset = node.name in read_itself or in_python.reads_offset
        offset = int(value.storage_offset()) if reads_offset else None
        required[str(node.target)] = InputMemory(tuple(order), offset)
    return required


def _base(node: Node) -> Node:
    """Returns the input or call whose memory an op reads by strides."""
    source: Any = node.args[0]
    while (before := certain_source(source)) is not None:
        source = before
    base: Node = source
    return base


def copy_memory_read_by_strides(graph: Graph) -> None:
    """Gives each op that reads memory by strides a contiguous copy of that memory.

    Raises:
        UnsupportedProgramError: The memory has gaps between the elements of the program's tensor.
    """
    for node in list(graph.nodes):
        if node.target in _BY_STRIDES and not _is_settled(node):
            _read_from_copy(node)


def _is_settled(node: Node) -> bool:
    source = node.args[0]
    is_copy = isinstance(source, Node) and source.target is aten.clone.default
    return is_copy and source.kwargs == _COPY  # type: ignore[union-attr]


def _read_from_copy(node: Node) -> None:
    """Puts a contiguous copy before one op.

    Raises:
        UnsupportedProgramError: There is no such copy.
    """
    is_resize = node.target in _RESIZES
    is_scatter = node.target is aten.as_strided_scatter.default
    offset_position = 4 if is_scatter else 3
    offset: Any = node.kwargs.get("storage_offset")
    if len(node.args) > offset_position:
        offset = node.args[offset_position]
    layout = _memory(node, offset, follows_views=node.target in _READS)
    if layout is None:
        where = model_line(node)
        raise UnsupportedProgramError(
            f"{node.target} reads the memory of {node.args[0]} by strides, and that memory has elements which the "
            f"program does not know{f' ({where})' if where else ''}. Take a clone() first, and index it."
        )
    memory, order, offset = layout
    is_turned = order != sorted(order)
    graph = node.graph
    with graph.inserting_before(node):
        turned = _call(graph, aten.permute.default, (memory, order)) if is_turned else memory
        copy = _call(graph, aten.clone.default, (turned,), _COPY)
    if is_resize:
        node.args = (copy, *node.args[1:])
        return
    node.args, node.kwargs = (copy, *node.args[1:offset_position], offset), {}
    if is_scatter and is_turned:
        back = [order.index(dim) for dim in range(len(order))]
        value = node.meta["val"]
        with graph.inserting_after(node):
            result = graph.call_function(aten.permute.default, (node, back))
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
        result.meta = dict(node.meta)
        node.meta = {**node.meta, "val": value.permute(order)}


def _memory(node: Node, offset: Any, follows_views: bool) -> tuple[Node, list[int], Any] | None:
    """Returns the node with all of the memory, the order of its dimensions in memory, and the offset into it.

    Args:
        node: The op that reads by strides.
        offset: The place in memory that the op names; None for that of its argument's first element.
        follows_views: Whether the argument of a view may take the place of the view.
    """
    source: Any = node.args[0]
    own, encoding = source.meta["val"].storage_offset(), _encoding(source.meta["val"])
    candidates = [source]
    while follows_views and (source := certain_source(source)) is not None:
        candidates.insert(0, source)
    for candidate in candidates:
        value = candidate.meta.get("val")
        if not isinstance(value, torch.Tensor) or _encoding(value) != encoding:
            continue
        if (order := order_in_memory(value)) is None:
            continue
        start = value.storage_offset()
        wanted = own if offset is None else offset
        if wanted is start or (isinstance(wanted, int) and wanted == start):
            return candidate, order, 0
        if isinstance(wanted, int) and isinstance(start, int) and wanted > start:
            return candidate, order, wanted - start
        if isinstance(wanted, Node) and isinstance(start, int) and start == 0:
            return candidate, order, wanted
        if isinstance(wanted, torch.SymInt) and holds_for_all_sizes(wanted == start):
            return candidate, order, 0
    return None


def _encoding(value: torch.Tensor) -> tuple[object, ...]:
    """Returns how places in memory are read: ``view(dtype)``, ``conj`` and ``imag`` read the same ones otherwise."""
    return value.dtype, value.is_conj(), value.is_neg()


def order_in_memory(value: torch.Tensor) -> list[int] | None:
    """Returns the dimensions from the outermost to the innermost one in memory, or None for memory with gaps."""
    if value.layout is not torch.strided:
        return None
    left = list(range(value.dim()))
    order: list[int] = []
    expected: Any = 1
    while left:
        fitting = [
            dim
            for dim in reversed(left)
            if holds_for_all_sizes(value.size(dim) == 1)
            or holds_for_all_sizes(value.stride(dim) == expected)
        ]
        if not fitting:
            return None
        order.insert(0, fitting[0])
        left.remove(fitting[0])
        expected = expected * value.size(fitting[0])
    return order


def _call(graph: Graph, target: Any, args: Any, kwargs: Any = None) -> Node:
    """Returns a new node with its value."""
    kwargs = kwargs or {}
    made: Node = graph.call_function(target, args, kwargs)
    value = args[0].meta["val"]
    with getattr(value, "fake_mode", None) or torch.no_grad():
        made.meta["val"] = target(value, *args[1:], **kwargs)
    return made
