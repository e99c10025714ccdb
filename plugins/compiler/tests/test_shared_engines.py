"""The attempts of one tuning share their engines."""

import torch
from torch import nn

import torchtrt
from torchtrt_compiler.measuring.tuning import Measuring, measuring_by
from torchtrt_testing.faults import watched_tensorrt


def test_attempts_share_their_engines():
    """Without a cache too: what Inductor compiles of the rest changes no engine."""
    as_on_gpu = Measuring(lambda *_: 1, is_on_gpu=lambda leaves: True, tries=0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    x = torch.rand(2, 3, 8, 8)
    settings = {"torch_executed_ops": {"aten.conv2d", "aten.relu"}, "engine_cache": False}
    with watched_tensorrt() as tensorrt, measuring_by(as_on_gpu):
        compiled = torchtrt.compile(model, [x], min_block_size=1, tune=True, **settings)

    assert len(tensorrt.builds) == 1
    assert any("compiled by Inductor" in line for line in compiled.report.tried)
    assert compiled.settings.engine_cache is False
    torch.testing.assert_close(compiled(x), model(x))
