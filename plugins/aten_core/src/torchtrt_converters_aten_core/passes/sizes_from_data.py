"""Sizes that depend on data, with the maximum that they can be."""

from __future__ import annotations

from torch.fx import GraphModule

from torchtrt.settings import CompilationSettings
from torchtrt_blocks.sizes_from_data import limit_sizes_from_data
from torchtrt_converters_aten_core import pack


@pack.lowering_pass()
def sizes_from_data(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Limits the sizes that ops make of data."""
    limit_sizes_from_data(graph_module.graph)
