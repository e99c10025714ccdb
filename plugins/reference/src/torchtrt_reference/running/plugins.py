"""The plugins of a loaded plan."""

from __future__ import annotations

from typing import Any

import torch

from torchtrt_reference.graphs.graph import Graph
from torchtrt_reference.network.plan_kernels import PlanKernel
from torchtrt_reference.network.plugins import PluginKernel
from torchtrt_reference.semantics.plugins import Kernel, PluginRecord
from torchtrt_reference.semantics.tensor_facts import RefusedError


def create_plugins(trt: Any, graph: Graph, device: torch.device) -> None:
    """Creates the plugins of a graph and of the graphs inside it.

    Args:
        trt: The namespace of the version.
        graph: The graph.
        device: Where the engine runs.

    Raises:
        RefusedError: The registry lacks a plugin.
    """
    for node in graph.nodes:
        for value in node.attributes.values():
            if isinstance(value, PluginRecord):
                value.kernel = _kernel(trt, value, device)
            elif isinstance(value, Graph):
                create_plugins(trt, value, device)


def _kernel(trt: Any, record: PluginRecord, device: torch.device) -> Kernel:
    """Returns what runs a plugin.

    Raises:
        RefusedError: The registry lacks it.
    """
    if record.launch is None:
        return PluginKernel(trt, record, device)
    try:
        host = None if record.host is None else PluginKernel(trt, record.host, device)
    except RefusedError:
        host = None  # the engine loads without it, as on a GPU
    return PlanKernel(record, device, host)
