"""Ops whose operands must have one dtype in PyTorch.

Their kernels say so when they run, and exporting does not ask them. TensorRT would compute something.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import GraphModule

from torchtrt.conversion import arguments_of, value_of
from torchtrt.errors import UnsupportedProgramError
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt_converters_aten_core._pack import pack

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


@pack.lowering_pass()
def operand_dtypes(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Refuses what PyTorch refuses when it runs.

    Raises:
        UnsupportedProgramError: The operands of an op have several dtypes.
    """
    if torch._C._is_any_autocast_enabled():
        return  # which casts them, and PyTorch up to 2.11 exports no casts of it
    for node in graph_module.graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _OPERANDS and packet not in _NORMALIZATIONS:
            continue
        op = vars(arguments_of(node))
        values = [value_of(op[name]) for name in _OPERANDS.get(packet, ()) or op]
        dtypes = {value.dtype: None for value in values if isinstance(value, torch.Tensor)}
        if packet in _NORMALIZATIONS and values[0].dtype is not torch.float32:
            dtypes.pop(torch.float32, None)
        if len(dtypes) > 1:
            from torchtrt.conversion.interpreter import model_line  # slow to import

            raise UnsupportedProgramError(
                f"PyTorch does not compute {qualified_name(node.target)} with {' and '.join(map(dtype_name, dtypes))}, "
                f"as {node.name} would ({model_line(node)}). Cast one of its operands, or give the model inputs of its "
                "weights' dtype."
            )
