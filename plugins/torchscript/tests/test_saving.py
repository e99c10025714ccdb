"""Scripted and traced models are saved as other models are, whatever the front end noted on their nodes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from torchtrt_reference import VERSIONS

from .helpers import quiet, script

X = torch.rand(3, 3)


class Decomposed(nn.Module):
    """Leaves an op to PyTorch."""

    def forward(self, x):
        return torch.linalg.svdvals(x * 2) + 1


class Constant(nn.Module):
    """Returns a constant beside what it computes."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Buffer(torch.tensor([1.0, 2.0]))

    def forward(self, x):
        return x * 2, self.scale * 2, torch.ones(2)


class Branches(nn.Module):
    """Has branches, with ops that PyTorch runs."""

    def forward(self, x):
        y = torch.linalg.svdvals(x * 2) if bool(x.sum() > 3) else torch.linalg.svdvals(x) + 1
        return y * 2


class Loop(nn.Module):
    """Has a loop, with ops that PyTorch runs."""

    def forward(self, x):
        while bool(x.sum() < 50):
            x = x * torch.linalg.svdvals(x + 1)[0]
        return x


class Padded(nn.Module):
    """Computes with sizes in PyTorch."""

    def forward(self, x):
        rows = x.size(0)
        return F.pad(x, [0, 0, 0, rows % 2]) * 2


def trace(module):
    return quiet(lambda: torch.jit.trace(module, X, check_trace=False))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("convert", "model"),
    [
        *((script, model) for model in (Decomposed, Constant, Branches, Loop, Padded)),
        *((trace, model) for model in (Decomposed, Constant, Padded)),
    ],
)
def test_a_torchscript_model_is_saved_and_loaded(tmp_path, version, convert, model):
    """Its results are those of the module."""
    module = model().eval()
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(convert(module), [X], min_block_size=1)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    torchtrt.save(loaded, tmp_path / "again.pt2")

    for call in (compiled, loaded, torchtrt.load(tmp_path / "again.pt2")):
        for x in (X, X / 10):
            torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        torch.export.load(tmp_path / "model.pt2").module()(X), module(X), rtol=1e-4, atol=1e-4
    )
