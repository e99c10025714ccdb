"""Saved models, read again by torchtrt and by PyTorch, compute what was compiled."""

from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.saved_models import SVD, VARYING, Result, function, same, saved
from tests.support.shards import some

MANY = (torch.arange(30.0).reshape(5, 6), torch.rand(1, 6), torch.rand(16, 6))


def accumulate(model, x):
    """Returns the sum so far."""
    model.total.add_(x.sum(0))
    return model.total * 2, x @ model.total


def write_input(model, x, y):
    """Writes to its first input."""
    x.mul_(y)
    return x + y


MODELS = {
    "an engine": (lambda: function(lambda m, x: torch.relu(x * 2) + 1), [VARYING], MANY),
    "PyTorch between engines": (
        lambda: function(
            lambda m, x: (SVD(x.exp() + m.w) * m.w[:1, :5]).sin() + 1, w=torch.rand(5, 6)
        ),
        [torch.rand(5, 6)],
        (torch.rand(5, 6),),
    ),
    "PyTorch between engines, varying": (
        lambda: function(lambda m, x: SVD(x.exp() + 1).sin() + x.sum()),
        [VARYING],
        MANY,
    ),
    "PyTorch alone": (
        lambda: function(lambda m, x: SVD(x)),
        [torch.rand(3, 3)],
        (torch.rand(3, 3),),
    ),
    "sizes computed": (
        lambda: function(lambda m, x: x.reshape(-1).repeat(2)[: x.shape[0] * 3] + x.shape[0]),
        [VARYING],
        MANY,
    ),
    "sizes returned": (lambda: function(lambda m, x: (x * 2, x.shape[0])), [VARYING], MANY),
    "concatenated sizes": (
        lambda: function(lambda m, x, y: SVD(torch.cat([x, y]) + 1) * 2 + 1),
        [VARYING, torchtrt.Input(min_shape=(2, 6), opt_shape=(3, 6), max_shape=(9, 6))],
        tuple((x, torch.rand(3, 6)) for x in MANY),
    ),
    "sizes that depend on data": (
        lambda: function(
            lambda m, x: (SVD(x[x[:, 0] > 0.5].exp() + 1) * 2).sum() + x.nonzero()[:, 0]
        ),
        [torch.rand(5, 6)],
        (torch.rand(5, 6), torch.rand(5, 6)),
    ),
    "a write to a buffer": (
        lambda: function(accumulate, total=torch.zeros(6)),
        [VARYING],
        (torch.rand(3, 6), torch.rand(5, 6)),
    ),
    "a write to an input": (
        lambda: function(write_input),
        [torch.rand(4, 6), torch.rand(4, 6)],
        ((torch.rand(4, 6), torch.rand(4, 6)),),
    ),
    "containers": (
        lambda: function(
            lambda m, x, y: {
                "a": (x["b"] + 1, [y[0] * 2, None, 3]),
                "c": OrderedDict(d=y[1][0] - 1),
            }
        ),
        [{"b": torch.rand(3)}, (torch.rand(2), [torch.rand(4)])],
        (({"b": torch.rand(3)}, (torch.rand(2), [torch.rand(4)])),),
    ),
    "a dataclass": (
        lambda: function(lambda m, x: Result(x.sum(), [x + 1, x * 2])),
        [torch.rand(3)],
        (torch.rand(3),),
    ),
    "weights without names": (
        lambda: (
            nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Softplus(2.0), nn.Linear(4, 2)))
            .eval()
            .requires_grad_(False)
        ),
        [torch.rand(2, 3)],
        (torch.rand(2, 3),),
    ),
    "a view of an input": (
        lambda: function(lambda m, x: (x.t(), x + 1)),
        [torch.rand(3, 4)],
        (torch.rand(3, 4), torch.rand(4, 3).t()),
    ),
    "a constant result": (
        lambda: function(lambda m, x: (x + 1, m.w * 2, torch.ones(2)), w=torch.rand(3)),
        [torch.rand(3)],
        (torch.rand(3),),
    ),
    "numbers and flags": (
        lambda: function(lambda m, x, y: x * y[0] + (1 if y[1] else 2)),
        [torch.rand(3), (3, True)],
        ((torch.rand(3), (3, True)),),
    ),
    "an empty input": (
        lambda: function(lambda m, x: (x + 1, x.sum())),
        [torch.empty(0, 3)],
        (torch.empty(0, 3),),
    ),
    "a branch": (
        lambda: function(
            lambda m, x: torch.cond(x.sum() > 3, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))
        ),
        [torch.rand(3)],
        (torch.rand(3), torch.rand(3) * 9),
    ),
    "a branch in PyTorch": (
        lambda: function(
            lambda m, x: torch.cond(x.sum() > 3, lambda x: SVD(x) + 1, lambda x: SVD(x) * 2, (x,))
        ),
        [torch.rand(3, 3)],
        (torch.rand(3, 3), torch.rand(3, 3) * 9),
    ),
    **{
        f"{dtype}".removeprefix("torch."): (
            lambda: function(lambda m, x: x + x.flip(0)),
            [torch.ones(3, dtype=dtype)],
            (torch.tensor([1, 0, 3]).to(dtype),),
        )
        for dtype in (
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.int64,
            torch.int32,
            torch.uint8,
        )
    },
    "bool": (
        lambda: function(lambda m, x: x & x.flip(0)),
        [torch.tensor([True, False])],
        (torch.tensor([True, True]),),
    ),
    "complex": (
        lambda: function(lambda m, x: (x * m.w).real + 1, w=torch.rand(3, dtype=torch.complex64)),
        [torch.rand(3, dtype=torch.complex64)],
        (torch.rand(3, dtype=torch.complex64),),
    ),
}


EXECUTED = "aten.linear aten.add aten.mul aten.mm"
"""Ops that stay in PyTorch, so that engines are divided elsewhere."""


def arguments(call):
    """Returns copies of the arguments of one call."""
    return copy.deepcopy(call if isinstance(call, tuple) else (call,))


@pytest.mark.filterwarnings(
    "ignore::torchtrt.errors.SettingsWarning"
)  # one list for several models
@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")  # of dtypes that 8.6 lacks
@pytest.mark.parametrize(
    ("executed", "case"),
    [*(("", case) for case in MODELS), *some(((EXECUTED, case) for case in MODELS), 3)],
)
def test_a_saved_model_computes_what_the_model_does(case, executed, tmp_path, every_tensorrt):
    """Read by torchtrt and by PyTorch, called again and again, it returns and writes what eager PyTorch does."""
    make, inputs, calls = MODELS[case]
    model = make()
    path = saved(model, copy.deepcopy(inputs), tmp_path, torch_executed_ops=executed.split())

    for loaded in (torchtrt.load(path), torch.export.load(path).module()):
        eager = copy.deepcopy(model)
        results = []
        for call in (*calls, *calls):
            expected_args, actual_args = arguments(call), arguments(call)
            expected, actual = eager(*expected_args), loaded(*actual_args)
            same(expected, actual)
            same(expected_args, actual_args)
            results.append((expected, actual))
        for expected, actual in results:  # what was returned stays as it was
            same(expected, actual)
        for name, buffer in eager.named_buffers():
            if hasattr(loaded, "graph_module") and hasattr(loaded.graph_module, name):
                same(buffer, getattr(loaded.graph_module, name))


def test_notes_of_passes_and_front_ends_stay_out_of_a_file(tmp_path):
    """Under any key, in branches too; the compiled model keeps them. PyTorch writes some keys, and fails."""

    class Model(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: SVD(x) * 2, lambda x: x.amax(1), (x + 1,)) + 1

    x, note = torch.rand(3, 3), object()
    ops = {"higher_order.cond"}
    compiled = torchtrt.compile(Model().eval(), [x], min_block_size=1, torch_executed_ops=ops)
    graphs = [
        module.graph for module in compiled.modules() if isinstance(module, torch.fx.GraphModule)
    ]
    nodes = [node for graph in graphs for node in graph.nodes]
    for node in nodes:
        node.meta.update(dict.fromkeys(("custom", "from_node", "torch_fn", "notes"), note))
    torchtrt.save(compiled, tmp_path / "model.pt2")

    torch.testing.assert_close(torchtrt.load(tmp_path / "model.pt2")(x), Model()(x))
    assert len(graphs) > 2
    assert all(node.meta["custom"] is note for node in nodes)
