"""Fixtures for this pack's tests."""

import pytest
import torch

import torchtrt
from tests.support.shards import leave_cases
from torchtrt.conversion.interpreter import TRTInterpreter


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leaves most modes of ops that compute each in the same way to ``make test-all``."""
    leave_cases(items, {"aten.grid_sampler_3d": 4, "aten.scatter_reduce.two": 3})


@pytest.fixture
def layers(monkeypatch):
    """The layers of all networks that are made meanwhile."""
    seen = []
    run = TRTInterpreter.run

    def noting(interpreter):
        result = run(interpreter)
        seen.extend(map(result.network.get_layer, range(result.network.num_layers)))
        return result

    monkeypatch.setattr(TRTInterpreter, "run", noting)
    return seen


def lowered_calls(model, inputs, **settings):
    """Returns the nodes of ops that a model is lowered to, of engines and of PyTorch."""
    dry = torchtrt.compile(model, inputs, dryrun=True, **settings)
    return [
        node
        for part in dry.graph_module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    ]
