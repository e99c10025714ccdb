"""Reductions of numbers of elements that vary, down to none."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function


@pytest.mark.each_tensorrt
def test_reductions_of_no_elements_are_those_of_pytorch():
    """Each has a value of its own for nothing: none is true, all are, the sum is 0, and the product 1."""

    def reductions(x):
        return (
            (x > 0).any(),
            x.any(0),
            x.any(0, keepdim=True),
            x.isnan().any(),
            (x > 0).int().any(0),
            (x > 0).all(),
            x.all(0),
            x.sum(0),
            x.prod(0),
            x.mean(0),
            x.count_nonzero(),
            x.norm(1, 0),
            x.logsumexp(0),
        )

    some = torchtrt.Input(min_shape=(0, 3), opt_shape=(4, 3), max_shape=(6, 3))
    compiled = torchtrt.compile(Function(reductions).eval(), [some], require_full_compilation=True)

    for x in (torch.zeros(0, 3), torch.zeros(2, 3), torch.tensor([[0.0, 1.0, torch.nan]])):
        torch.testing.assert_close(compiled(x), reductions(x), equal_nan=True)


@pytest.mark.each_tensorrt
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("correction", [-1, 0, 1])
def test_the_variance_of_no_elements_is_no_number_for_any_correction(correction):
    """A divisor of 1, which a correction of -1 leaves, would make it 0."""

    def spreads(x):
        return (
            torch.var(x, 1, correction=correction),
            *torch.std_mean(x, (0, 1), correction=correction),
        )

    some = torchtrt.Input(min_shape=(2, 0), opt_shape=(2, 3), max_shape=(2, 6))
    compiled = torchtrt.compile(Function(spreads).eval(), [some], require_full_compilation=True)

    for x in (torch.zeros(2, 0), torch.rand(2, 1), torch.rand(2, 5)):
        torch.testing.assert_close(compiled(x), spreads(x), equal_nan=True)
