"""The attempts of one tuning share their engines."""

import torch
from torch import nn

import torchtrt
from torchtrt_compiler.building import engine as building
from torchtrt_compiler.measuring import tuning


def test_attempts_share_their_engines(monkeypatch):
    """Without a cache too: what Inductor compiles of the rest changes no engine."""
    built = []
    build = building.build_plan
    monkeypatch.setattr(building, "build_plan", lambda *args: built.append(args) or build(*args))
    monkeypatch.setattr(tuning, "milliseconds", lambda *_: 1)
    monkeypatch.setattr(tuning, "_candidates", lambda *_: [])
    monkeypatch.setattr(tuning, "_are_on_a_gpu", lambda leaves: True)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    x = torch.rand(2, 3, 8, 8)
    compiled = torchtrt.compile(
        model,
        [x],
        min_block_size=1,
        tune=True,
        torch_executed_ops={"aten.conv2d", "aten.relu"},
        engine_cache=False,
    )

    assert len(built) == 1
    assert any("compiled by Inductor" in line for line in compiled.report.tried)
    assert compiled.settings.engine_cache is False
    torch.testing.assert_close(compiled(x), model(x))
