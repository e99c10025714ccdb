"""Masks of attention that are constants and hide nothing, or all that is to come: a flag replaces them.

Exporters write masks out: a model of ``transformers`` without padding carries tensors of true, a decoder a triangle.
TensorRT computes attention in one kernel only where no mask is read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion import arguments_of, constant_of
from torchtrt.settings import CompilationSettings
from torchtrt_blocks.attention import WHOLE
from torchtrt_converters_aten_core import pack


@pack.lowering_pass()
def attention_masks(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Replaces constant masks of attention that hide nothing by none, and triangles by ``is_causal``."""
    if not settings.immutable_weights:  # a mask of new weights may hide more
        return
    graph = graph_module.graph
    attentions = graph.find_nodes(op="call_function", target=WHOLE)
    if not attentions:
        return
    from torchtrt.graphs import (
        storage_of,
        writes,  # slow to import
    )

    masks = {
        node: value
        for node in graph.find_nodes(op="get_attr")
        if (value := constant_of(node)) is not None
    }
    written = {
        storage_of(masks[source])
        for node in filter(writes, graph.nodes)
        for source in node.all_input_nodes
        if source in masks
    }
    for node in attentions:
        op = arguments_of(node)
        mask = _broadcast(op.attn_mask, masks)
        if mask is None or storage_of(mask) in written:
            continue
        is_causal = op.is_causal
        if not _hides_nothing(mask):
            sizes = op.query.meta["val"].shape[-2], op.key.meta["val"].shape[-2]
            is_fixed = all(isinstance(size, int) for size in sizes)
            if not is_fixed or tuple(mask.shape[-2:]) != sizes or not _is_triangle(mask):
                continue
            is_causal = True
        arguments = {**vars(op), "attn_mask": None, "is_causal": is_causal}
        node.args, node.kwargs = (), arguments
    graph.eliminate_dead_code()


def _broadcast(mask: Any, masks: dict[Node, torch.Tensor]) -> torch.Tensor | None:
    """Returns a constant mask, also where it is expanded to a batch too large to be kept as a constant."""
    if isinstance(mask, Node) and mask.target is torch.ops.aten.expand.default:
        source = _broadcast(mask.args[0], masks)
        if source is None:
            return None
        sizes = mask.meta["val"].shape
        # A dynamic size can only be that of a dimension that has one place to be repeated.
        return source.expand([size if isinstance(size, int) else 1 for size in sizes])
    return masks.get(mask)


def _hides_nothing(mask: torch.Tensor) -> bool:
    return bool(mask.all()) if mask.dtype is torch.bool else not bool(mask.count_nonzero())


def _is_triangle(mask: torch.Tensor) -> bool:
    """Returns whether each query sees the keys up to its own place, whatever the batch."""
    seen = mask if mask.dtype is torch.bool else mask == 0
    if mask.dtype is not torch.bool:
        hidden = (mask == -torch.inf) | (mask == torch.finfo(mask.dtype).min)
        if not bool((seen | hidden).all()):
            return False
    return torch.equal(seen, torch.ones_like(seen).tril())
