"""Values that are written at indices broadcast where a size of theirs is 1, although it may be another."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function

PLACES = torch.tensor([0, 2])
MASK = torch.tensor([True, False, True])


def input_between(least, most):
    return torchtrt.Input(min_shape=least, opt_shape=most, max_shape=most)


def assert_equals_eager(function, inputs, calls):
    """Checks that an engine computes what PyTorch does for each of several calls."""
    compiled = torchtrt.compile(Function(function).eval(), inputs, require_full_compilation=True)
    for call in calls:
        torch.testing.assert_close(compiled(*call), function(*call))


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("accumulate", [False, True])
def test_values_at_fixed_indices_broadcast(accumulate):
    """The fake kernel of ``index_put`` compares no sizes, so that no size of 1 is left out."""
    assert_equals_eager(
        lambda x, values: x.index_put((PLACES,), values, accumulate),
        [torch.rand(3, 2), input_between((1, 1), (2, 2))],
        [(torch.rand(3, 2), torch.rand(shape)) for shape in [(2, 2), (1, 2), (2, 1), (1, 1)]],
    )


@pytest.mark.each_tensorrt
def test_values_at_any_number_of_indices_broadcast():
    """For no index, there may be no row, or one."""
    indices = torchtrt.Input(min_shape=(0,), opt_shape=(2,), max_shape=(3,), dtype=torch.int64)
    assert_equals_eager(
        lambda x, values, indices: x.index_put((indices,), values),
        [torch.rand(3, 2), input_between((0, 2), (3, 2)), indices],
        [
            (torch.rand(3, 2), torch.rand(rows, 2), torch.arange(count))
            for count, rows in [(3, 3), (2, 2), (2, 1), (1, 1), (0, 0), (0, 1)]
        ],
    )


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("accumulate", [False, True])
def test_one_row_is_for_each_place_of_a_mask(accumulate):
    """Other numbers of rows have one for each place where the mask is true."""
    nowhere, everywhere = torch.zeros(3).bool(), torch.ones(3).bool()
    assert_equals_eager(
        lambda x, mask, values: x.index_put((mask,), values, accumulate),
        [torch.rand(3, 2), MASK, input_between((0, 2), (3, 2))],
        [
            (torch.rand(3, 2), mask, torch.rand(rows, 2))
            for mask, rows in [(MASK, 2), (MASK, 1), (everywhere, 3), (nowhere, 0), (nowhere, 1)]
        ],
    )
