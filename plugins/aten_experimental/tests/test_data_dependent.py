"""Outputs whose size depends on the data come out at their own size."""

import pytest
import torch
from torch import nn

import torchtrt


class Positions(nn.Module):
    """Where a tensor is positive."""

    def forward(self, x):
        """Returns the indices, and arithmetic on them."""
        return torch.nonzero(torch.relu(x)) * 2 + 1


@pytest.mark.parametrize("version", ["8.6.0", "10.16.1", "11.4.0"])
@pytest.mark.parametrize("positive", [0, 1, 5, 12])
def test_nonzero_has_as_many_rows_as_there_are(version, positive):
    """From none to all, int64, in row-major order."""
    x = -torch.ones(3, 4)
    x.view(-1)[:positive] = 1.0
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(
            Positions().eval(), (torch.rand(3, 4),), require_full_compilation=True
        )

    torch.testing.assert_close(compiled(x), Positions()(x))


def test_results_of_two_calls_do_not_share_memory():
    """The first result is unchanged by the second call."""
    compiled = torchtrt.compile(
        Positions().eval(), (torch.rand(3, 4),), require_full_compilation=True
    )

    first = compiled(torch.ones(3, 4))
    kept = first.clone()
    compiled(-torch.ones(3, 4))

    torch.testing.assert_close(first, kept)
