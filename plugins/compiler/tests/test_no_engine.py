"""A model of which nothing becomes an engine is one warning that says why, and what to do."""

import warnings

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import FullCompilationError, NoEngineWarning

X = torch.rand(4, 8)


class Igamma(nn.Module):
    """An op without a converter, between two that have one."""

    def forward(self, x):
        return torch.igamma(x.exp(), x + 1)


class Alone(nn.Module):
    """An op without a converter."""

    def forward(self, x):
        return torch.igamma(x, x)


class Returned(nn.Module):
    def forward(self, x):
        return x


class Written(nn.Module):
    """A write, which PyTorch does, and nothing else."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4, 8))

    def forward(self, x):
        self.state.copy_(x)
        return x


class Random(nn.Module):
    """An op that depends on no input, and so is in no engine."""

    def forward(self, x):
        return x, torch.rand(3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Igamma(), r"can run 2 of its 3 ops, in blocks of fewer than min_block_size=5: .*min_block_size=1"),
        (Alone(), r"can run 0 of its 1 ops\. The report says why"),
    ],
    ids=["small", "no converter"],
)  # fmt: skip
def test_no_engine_is_one_warning_that_counts_the_ops(model, message):
    """And is shown where compile() was called."""
    with pytest.warns(NoEngineWarning, match=message) as shown:
        compiled = torchtrt.compile(model.eval(), [X])

    assert [__file__] == [warning.filename for warning in shown]
    assert not compiled.report.blocks
    torch.testing.assert_close(compiled(X), model(X), equal_nan=True)


def test_what_the_warning_advises_builds_engines():
    """Full compilation would not."""
    assert torchtrt.compile(Igamma().eval(), [X], min_block_size=1).report.blocks
    with pytest.raises(FullCompilationError, match="igamma"):
        torchtrt.compile(Igamma().eval(), [X], require_full_compilation=True)


@pytest.mark.parametrize("model", [nn.Linear(8, 8), nn.ReLU()], ids=["linear", "relu"])
def test_a_whole_model_becomes_an_engine_however_small(model):
    """Without a setting, so that no first example needs one."""
    compiled = torchtrt.compile(model.eval(), [X])

    assert 1 == len(compiled.report.blocks)
    assert not compiled.report.in_torch
    torch.testing.assert_close(compiled(X), model(X))


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (Returned(), {}),
        (Written(), {}),
        (Random(), {}),
        (nn.Linear(8, 8), {"dryrun": True}),
        (nn.Linear(8, 8), {"torch_executed_ops": {"aten.linear"}}),
    ],
    ids=["returns its input", "writes", "no input", "dry run", "asked for"],
)
def test_nothing_warns_where_no_engine_was_to_be_expected(model, settings):
    """Nothing could be in an engine, or the settings allow none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torchtrt.compile(model.eval(), [X], **settings)
        assert settings.get("dryrun") or not compiled.report.blocks
        torchtrt.explain(model, [X])
