"""A decomposition, and lowering passes with and without options, as the upstream pages on lowering write them."""

# ruff: noqa

import logging
from typing import Sequence

import torch
from torch_tensorrt.dynamo._settings import CompilationSettings
from torch_tensorrt.dynamo.lowering._decomposition_groups import TORCH_TRT_DECOMPOSITIONS
from torch_tensorrt.dynamo.lowering._decompositions import register_torch_trt_decomposition
from torch_tensorrt.dynamo.lowering.passes._aten_lowering_pass import _aten_lowering_pass
from torch_tensorrt.dynamo.lowering.passes.pass_utils import clean_up_graph_after_modifications

logger = logging.getLogger(__name__)
SEEN = []


@register_torch_trt_decomposition(
    torch.ops.published.blend.default, registry=TORCH_TRT_DECOMPOSITIONS
)
def blend(x: torch.Tensor, y: torch.Tensor, share: float) -> torch.Tensor:
    return torch.add(torch.mul(x, share), torch.mul(y, 1 - share))


@_aten_lowering_pass
def exp_of_log(gm: torch.fx.GraphModule, settings: CompilationSettings) -> torch.fx.GraphModule:
    """Removes ``exp(log(x))``."""
    SEEN.append("exp_of_log")
    for node in list(gm.graph.nodes):
        source = node.args[0] if node.args else None
        if (
            node.target is torch.ops.aten.exp.default
            and getattr(source, "target", None) is torch.ops.aten.log.default
        ):
            node.replace_all_uses_with(source.args[0])
            logger.debug("Removed %s", node)
    return clean_up_graph_after_modifications(gm)


@_aten_lowering_pass(index=0)
def first(gm: torch.fx.GraphModule, sample_inputs: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    SEEN.append("first")
    return gm
