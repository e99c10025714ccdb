"""A part of a tensor is replaced by rows of which there may be none."""

import pytest
import torch

from tests.support.modules import Function
from torchtrt import Input, compile


def shifted(x):
    result = torch.zeros_like(x)
    result[1:] = x[:-1]
    return result


def half(x):
    return torch.slice_scatter(x, x[: x.shape[0] // 2] * 2, 0, 0, x.shape[0] // 2)


@pytest.mark.filterwarnings(
    "ignore:You asked for 1 to 8"
)  # PyTorch fixes what broadcasts: a slice of one row
@pytest.mark.each_tensorrt
@pytest.mark.parametrize(
    "function", [shifted, half, lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1)]
)
def test_one_row_has_no_rows_behind_it(function):
    """So that none is written."""
    rows = Input(min_shape=(1, 4), opt_shape=(5, 4), max_shape=(8, 4))
    compiled = compile(Function(function).eval(), [rows], min_block_size=1)
    assert not compiled.report.in_torch

    for count in (1, 4, 5, 8):
        x = torch.rand(count, 4)
        assert torch.equal(compiled(x), function(x))
