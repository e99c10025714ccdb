"""Branches that clamp infinite values are a choice in the program; other branches are refused as before."""

import pytest
import torch

import torchtrt
from torchtrt.errors import ExportError


class Finite(torch.nn.Module):
    """As in the encoders of BART and others."""

    def forward(self, x):
        """Returns the values, limited if one is infinite."""
        x = x * 4
        if x.dtype == torch.float16 and not torch.isfinite(x).all():
            limit = torch.finfo(x.dtype).max - 1000
            x = torch.clamp(x, min=-limit, max=limit)
        return x + 1


class Infinite(torch.nn.Module):
    """As in mixtures of experts."""

    def forward(self, x):
        """Returns the values, limited if one is infinite."""
        x = x * 4
        if torch.isinf(x).any():
            x = torch.clamp(x, min=-100, max=100)
        return x + 1


class More(torch.nn.Module):
    """The branch does more than to limit."""

    def forward(self, x):
        """Returns the values, limited and doubled if one is infinite."""
        x = x * 4
        if torch.isinf(x).any():
            x = torch.clamp(x, min=-100, max=100) * 2
        return x


class Otherwise(torch.nn.Module):
    """The other branch does something as well."""

    def forward(self, x):
        """Returns the values, limited if one is infinite, and else doubled."""
        x = x * 4
        if not torch.isfinite(x).all():  # noqa: SIM108
            x = torch.clamp(x, min=-100, max=100)
        else:
            x = x * 2
        return x


ROWS = {
    "small": [1.0, -2.0, 3.0],
    "beyond the limit and finite": [16250.0, 1.0, -16250.0],
    "infinite": [20000.0, -20000.0, 16250.0],
    "no number": [float("nan"), 20000.0, 1.0],
}


@pytest.mark.parametrize("kind", [Finite, Infinite])
def test_values_are_limited_only_if_one_is_infinite(kind, version):
    model, x = kind().eval(), torch.tensor(ROWS["small"], dtype=torch.float16)

    compiled = torchtrt.compile(model, (x,), min_block_size=1)

    for row in ROWS.values():
        values = torch.tensor(row, dtype=torch.float16)
        torch.testing.assert_close(compiled(values), model(values), equal_nan=True)
    assert not compiled.report.in_torch


@pytest.mark.parametrize("kind", [More, Otherwise])
def test_branches_that_do_more_are_refused(kind):
    """With the line of the model."""
    with pytest.raises(ExportError, match=r"torch\.is(inf|finite)\(x\)"):
        torchtrt.compile(kind().eval(), (torch.rand(3).half(),), min_block_size=1)
