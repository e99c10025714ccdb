"""Ops whose operands must have one dtype in PyTorch, and ops that export in another dtype than they compute.

Their kernels decide when they run, and exporting does not call them. TensorRT would compute something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of, value_of
from torchtrt.errors import UnsupportedProgramError
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt.tensorrt import dtype_name
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

_ALL: Sequence[str] = ()
_OPERANDS = {
    **dict.fromkeys((aten.linear, aten.matmul, aten.mm, aten.bmm, aten.mv, aten.dot), _ALL),
    **dict.fromkeys((aten.addmm, aten.addmv, aten.baddbmm, aten.linalg_cross, aten.cdist), _ALL),
    **dict.fromkeys((aten.conv1d, aten.conv2d, aten.conv3d, aten.convolution), _ALL),
    **dict.fromkeys((aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d), _ALL),
    **dict.fromkeys((aten.grid_sampler, aten.grid_sampler_2d, aten.grid_sampler_3d), _ALL),
    **dict.fromkeys((aten.index_add, aten.index_copy, aten.index_reduce), ("self", "source")),
    aten.index_put: ("self", "values"),
}
"""For each op the names of those operands; empty for all tensors among its arguments."""
_NORMALIZATIONS = (aten.layer_norm, aten.group_norm, aten.batch_norm, aten.instance_norm)
"""Ops whose parameters may be float32 beside an input of half precision too."""
_IN_FIRST_DTYPE = (aten.huber_loss, aten.soft_margin_loss, aten.normal)
"""Ops whose kernels return the first operand's dtype, where exporting promotes the operands."""


@pack.lowering_pass()
def operand_dtypes(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Refuses what PyTorch refuses when it runs, and what it exports in another dtype than it computes.

    Raises:
        UnsupportedProgramError: The operands of an op have several dtypes.
    """
    for node in graph_module.graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if packet in _IN_FIRST_DTYPE:
            _check_result(node)
        elif packet in _OPERANDS or packet in _NORMALIZATIONS:
            _check_operands(node, packet)


def _check_operands(node: Node, packet: Any) -> None:
    """Checks that the tensors that a node combines have one dtype.

    Raises:
        UnsupportedProgramError: Their dtypes differ, so that eager PyTorch would fail too.
    """
    op = vars(arguments_of(node))
    if packet is aten.index_put and _fills_a_mask(op):
        return
    values = [value_of(op[name]) for name in _OPERANDS.get(packet, ()) or op]
    dtypes = {value.dtype: None for value in values if isinstance(value, torch.Tensor)}
    if packet in _NORMALIZATIONS and values[0].dtype is not torch.float32:
        dtypes.pop(torch.float32, None)
    if len(dtypes) > 1:
        raise UnsupportedProgramError(
            f"PyTorch does not compute {qualified_name(node.target)} with {' and '.join(map(dtype_name, dtypes))}, "
            f"as the node {node.name} would ({_line(node)}). Cast one of its operands, or give the model inputs of its "
            "weights' dtype."
        )


def _fills_a_mask(op: dict[str, Any]) -> bool:
    """Returns whether PyTorch fills a mask with one element, which it casts."""
    indices = [value_of(index) for index in op["indices"] if index is not None]
    value, masks = value_of(op["values"]), (torch.bool, torch.uint8)
    is_one = all(isinstance(size, int) and size == 1 for size in value.shape)
    is_mask = len(indices) == 1 and indices[0].dtype in masks
    return is_one and is_mask and value.device.type == "cpu" and not op["accumulate"]


def _check_result(node: Node) -> None:
    first = value_of(next(iter(vars(arguments_of(node)).values())))
    exported = node.meta["val"].dtype
    if isinstance(first, torch.Tensor) and first.dtype is not exported:
        raise UnsupportedProgramError(
            f"PyTorch computes {qualified_name(node.target)} in {dtype_name(first.dtype)} and exports it as "
            f"{dtype_name(exported)}, as it does {node.name} ({_line(node)}). Cast one of its operands to the dtype "
            "of the other."
        )


def _line(node: Node) -> str:
    from torchtrt.graphs import model_line  # slow to import

    return model_line(node)
