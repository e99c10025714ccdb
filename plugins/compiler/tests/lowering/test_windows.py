"""Writes to views whose elements each have a place of their own, whatever the op is called that made the view."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import UnsupportedProgramError

ROWS = torchtrt.Input(min_shape=(2, 3), opt_shape=(4, 3), max_shape=(7, 3))


def clears_windows(x):
    """The rows of an odd number leave one that is in no window."""
    x = x.clone()
    x.unfold(0, 2, 2).zero_()
    return x


def doubles_columns_of_windows(x):
    """A view of windows is written to, along another dimension."""
    x = x.t().clone()
    x.unfold(-1, 2, 2)[1:].mul_(2)
    return x


def writes_to_an_input(x):
    """The caller sees the write."""
    x.unfold(0, 1, 1)[0].add_(1)
    return x * 2


def writes_to_all_by_strides(x):
    """One column of a matrix has its elements apart."""
    x = x.clone()
    x.as_strided((x.shape[0],), (3,)).add_(1)
    return x


def writes_to_an_expansion_of_nothing(x):
    """Nothing is repeated."""
    x = x.clone()
    x.expand(x.shape).add_(1)
    return x


def writes_to_a_copy_of_windows(x):
    """Windows that overlap are copied before."""
    return x.unfold(0, 2, 1).reshape(-1).mul_(2) + 1


@pytest.mark.parametrize(
    "function",
    [
        clears_windows,
        doubles_columns_of_windows,
        writes_to_an_input,
        writes_to_all_by_strides,
        writes_to_an_expansion_of_nothing,
        writes_to_a_copy_of_windows,
    ],
    ids=lambda function: function.__name__,
)
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["fixed sizes", "dynamic sizes"])
def test_a_write_to_elements_apart_is_right(function, is_dynamic):
    """Strides and sizes tell whether two elements are one place, with symbols in them as well."""
    model = Function(function).eval()
    for count in (2, 3, 7):
        x = torch.rand(count, 3)
        compiled = torchtrt.compile(model, [ROWS if is_dynamic else x], min_block_size=1)
        argument, written = x.clone(), x.clone()

        torch.testing.assert_close(compiled(argument), model(written))
        torch.testing.assert_close(argument, written)


def test_a_write_to_windows_with_gaps_is_refused():
    """PyTorch's functionalization has zeros between the windows."""
    model = Function(lambda x: x.unfold(0, 2, 3).mul_(2)).eval()
    with pytest.raises(UnsupportedProgramError, match="what is between them"):
        torchtrt.compile(model, [torch.rand(8)], min_block_size=1)


def test_a_write_to_windows_that_overlap_is_refused():
    """A write would count twice where they do."""
    model = Function(lambda x: x.unfold(0, 2, 1).mul_(2)).eval()
    with pytest.raises(UnsupportedProgramError, match="one place in memory"):
        torchtrt.compile(model, [torch.rand(8)], min_block_size=1)
