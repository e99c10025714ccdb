"""Weights that are elsewhere while TensorRT builds, or not in plans, on the real TensorRT and an NVIDIA GPU.

Run with ``TORCHTRT_TENSORRT=real pytest tests/gpu``.
"""

import pytest
import torch

import torchtrt
from tests.support.compiled import assert_same
from torchtrt.errors import RefitError
from torchtrt.tensorrt import Capability, is_real, supports
from torchtrt_testing.faults import watched_tensorrt

pytestmark = [
    pytest.mark.tensorrt,
    pytest.mark.skipif(not is_real(), reason="needs the real TensorRT and an NVIDIA GPU"),
]

WIDTH = 1024
SETTINGS = {"require_full_compilation": True, "disable_tf32": True, "tactic_sources": 0}


class Model(torch.nn.Module):
    """Weights as they are, folded and tied, and constants of the code, of floats and of integers."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.norm.running_var.uniform_(0.5, 2)
        self.tied = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied.weight = self.first.weight
        self.last = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.tied(self.norm(self.first(x)).relu()) * torch.arange(WIDTH, device=x.device)
        return self.last(x)[:, torch.tensor([1, 5, 60], device=x.device)]


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Keeps TF32 off on PyTorch's side too."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def test_weights_are_not_on_the_gpu_during_a_build():
    """PyTorch then has no memory for them, and afterwards as much as before."""
    model, x = Model().eval().cuda(), torch.rand(4, WIDTH, device="cuda")
    weights = 2 * WIDTH * WIDTH * 4
    expected, before, during = model(x), torch.cuda.memory_allocated(), []

    def look(build):
        during.append(torch.cuda.memory_allocated())
        assert model.first.weight.device.type == "cpu"
        assert model.tied.weight is model.first.weight
        return ""

    with watched_tensorrt(refuses=look):
        compiled = torchtrt.compile(model, [x], offload_module_to_cpu=True, **SETTINGS)

    assert during
    assert max(during) <= before - weights
    assert all(weight.is_cuda for weight in model.state_dict().values())
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)
    assert_same(compiled, model, x)


@pytest.mark.skipif(
    not supports(Capability.STRIPPED_PLANS), reason="TensorRT has no plans without weights"
)
@pytest.mark.parametrize("immutable", [True, False])
def test_a_plan_without_weights_computes_with_those_of_the_model(tmp_path, immutable):
    """In this process, and from a file; other weights are refused or taken."""
    model, other = Model().eval().cuda(), Model(1).eval().cuda()
    x = torch.rand(4, WIDTH, device="cuda")
    settings = {**SETTINGS, "strip_engine_weights": True, "immutable_weights": immutable}
    compiled = torchtrt.compile(model, [x], **settings)

    assert sum(block.plan_bytes for block in compiled.report.blocks) < WIDTH * WIDTH * 4
    assert_same(compiled, model, x)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    weights = {name: weight.cpu() for name, weight in model.state_dict().items()}
    for source in (model, weights):
        assert_same(torchtrt.load(tmp_path / "model.pt2", weights=source).cuda(), model, x)
    if immutable:
        with pytest.raises(RefitError, match="are not those that the engine"):
            torchtrt.load(tmp_path / "model.pt2", weights=other)
    else:
        assert_same(torchtrt.load(tmp_path / "model.pt2", weights=other).cuda(), other, x)
        assert_same(torchtrt.refit_module_weights(compiled, other), other, x)
