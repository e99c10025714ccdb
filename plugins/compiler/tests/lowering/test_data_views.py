"""Writes through ops whose results are views for some data and copies for other data."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import UnsupportedProgramError

X = torch.arange(24.0).reshape(4, 6)
MASK = torch.arange(6) < 3


def count(mask, least=0):
    """Returns how many elements are chosen: from ``least`` to all."""
    chosen = mask.sum().item()
    torch._check(chosen >= least)
    torch._check(chosen <= mask.shape[0])
    return chosen


def by_reshape(x, mask):
    """A view of all columns, and of one; a copy of several."""
    y = x.clone()
    y[:, : count(mask)].reshape(-1).add_(1)
    return y


def by_flatten(x, mask):
    """A view for the same counts, by another op."""
    y = x.clone()
    y[:, : count(mask)].flatten().add_(1)
    return y


def by_contiguous(x, mask):
    """The argument itself for all columns only."""
    y = x.clone()
    y[:, : count(mask, least=2)].contiguous().add_(1)
    return y


def of_the_input(x, mask):
    """The caller's tensor is written."""
    x[:, : count(mask)].reshape(-1).add_(1)
    return x * 1


def read_through_the_copy(x, mask):
    """The write is to the base, and what may be a copy is read."""
    y = x.clone()
    flat = y[:, : count(mask)].reshape(-1)
    y.add_(1)
    return flat * 1


def of_half(x, mask):
    """A view where twice the count is the whole length."""
    y = x.clone()
    y[:, : 2 * count(mask[:3], least=1)].reshape(-1).add_(1)
    return y


def in_a_branch(x, mask):
    """The write is in the graph of a branch."""

    def writes(x, mask):
        y = x.clone()
        y[:, : count(mask)].reshape(-1).add_(1)
        return y

    return torch.cond(x.sum() > 0, writes, lambda x, mask: x.clone(), (x, mask))


BY_DATA = [
    by_reshape,
    by_flatten,
    by_contiguous,
    of_the_input,
    read_through_the_copy,
    of_half,
    in_a_branch,
]


@pytest.mark.parametrize("function", BY_DATA)
def test_a_write_that_reaches_what_is_read_for_some_data_only_is_refused(function):
    """PyTorch takes what it cannot decide for a copy."""
    with pytest.raises(UnsupportedProgramError, match="for some data only"):
        torchtrt.compile(Function(function).eval(), [X, MASK])


def by_slices(x, mask):
    """Views for all data."""
    y = x.clone()
    y[:, : count(mask)].t().add_(1)
    return y


def fresh_rows(x, mask):
    """Rows that data choose are contiguous: a view for all data."""
    rows = x.t()[mask]
    rows.reshape(-1).add_(1)
    return rows


def read_alone(x, mask):
    """Nothing else reads what may be a view."""
    y = x * 2
    return y[:, : count(mask)].reshape(-1).add_(1)


@pytest.mark.parametrize("function", [by_slices, fresh_rows, read_alone])
def test_other_writes_with_sizes_from_data_give_what_eager_pytorch_gives(function):
    """Where it is a view for all data, or where nobody can see which."""
    model = Function(function).eval()
    compiled = torchtrt.compile(model, [X, MASK], min_block_size=1)

    for chosen in range(7):
        mask = torch.arange(6) < chosen
        torch.testing.assert_close(compiled(X.clone(), mask), model(X.clone(), mask))
