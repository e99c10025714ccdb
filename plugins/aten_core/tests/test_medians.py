"""Medians of numbers of elements that vary, down to none."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function


@pytest.mark.parametrize("op", [torch.median, torch.nanmedian])
def test_the_median_of_no_elements_is_nan(op):
    """And that of some is one of them, or NaN where PyTorch has it."""
    some = torchtrt.Input(min_shape=(0, 3), opt_shape=(4, 3), max_shape=(6, 3))
    compiled = torchtrt.compile(Function(op).eval(), [some], require_full_compilation=True)

    for count in (0, 1, 2, 5):
        x = torch.randn(count, 3)
        holed = torch.where(x > 0, x, torch.nan)
        for tensor in (x, holed, holed * torch.nan):
            torch.testing.assert_close(compiled(tensor), op(tensor), equal_nan=True)


def test_the_median_of_a_part_that_may_be_empty_is_nan():
    """The rows that vary need not be the input's."""
    model = Function(lambda x: x[x.shape[0] :].median() + x.sum() * 0).eval()
    some = torchtrt.Input(min_shape=(2, 3), opt_shape=(4, 3), max_shape=(6, 3))
    compiled = torchtrt.compile(model, [some], require_full_compilation=True)

    assert compiled(torch.rand(3, 3)).isnan()
