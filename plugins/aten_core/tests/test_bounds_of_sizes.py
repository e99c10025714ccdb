"""Sizes of 1, and numbers of 0, are among those for which an index may be negative, or another size the largest.

PyTorch takes the sizes of inputs for 2 or more.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchtrt import Input, Number, compile


def written(x, index):
    """Writes to one column of a copy, which may be counted from the end."""
    copy = x.clone()
    copy.select(1, index).fill_(7)
    return copy


FUNCTIONS = {
    "an index": lambda x, n: x.select(1, n - 2),
    "an index that is written": lambda x, n: written(x, n - 2),
    "an index that is replaced": lambda x, n: torch.select_scatter(x, x[:, 0] * 2, 1, n - 2),
    "a start": lambda x, n: x.narrow(1, n - 2, 1),
    "a limit": lambda x, n: x[:, n - 2 :],
    "a length": lambda x, n: F.pad(x, (0, 8 - n)).cumsum(1),
    "a length of a scatter": lambda x, n: x.new_zeros(2, 17 - n).scatter(1, x.argsort(1), x),
}


class OfSize(nn.Module):
    """Takes the number as a size, or as it is."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, n):
        return self.function(x, n.shape[0] if isinstance(n, torch.Tensor) else n)


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.each_tensorrt
@pytest.mark.parametrize("is_number", [False, True], ids=["size", "number"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_small_size_computes_what_eager_computes_or_is_refused(function, is_number):
    """Each size, the smallest first."""
    model = OfSize(function).eval()
    sizes = Number(0, 5, 8) if is_number else Input(min_shape=(1,), opt_shape=(5,), max_shape=(8,))
    x = torch.rand(2, 9)
    compiled = compile(model, [x, sizes], min_block_size=1)
    assert not compiled.report.in_torch
    least = compiled.report.narrowed[0].compiled[0] if compiled.report.narrowed else 1 - is_number

    assert least <= 2
    for n in range(least, 9):
        number = n if is_number else torch.zeros(n)
        torch.testing.assert_close(compiled(x, number), model(x, number))


def test_what_a_view_at_a_negative_index_is_written_through_is_refused():
    """Functionalization takes the start for 0 or more: the last column, at which a size of 1 starts, is not written."""

    class Writing(nn.Module):
        def forward(self, x, n):
            copy = x.clone()
            copy.narrow(1, n.shape[0] - 2, 1).add_(1)
            return copy

    sizes = Input(min_shape=(1,), opt_shape=(5,), max_shape=(8,))
    with pytest.warns(UserWarning, match="Compiled for 2 to 8"):
        compiled = compile(Writing().eval(), [torch.rand(2, 9), sizes], min_block_size=1)
    assert [row.compiled for row in compiled.report.narrowed] == [(2, 8)]


class MultiHot(nn.Module):
    """Writes 1 to as many places of each row as there are indices."""

    def forward(self, indices):
        return torch.zeros(indices.shape[0], 5).scatter(1, indices, 1.0) * 2


@pytest.mark.parametrize(("most", "in_torch"), [(5, []), (12, ["aten.scatter.value"])])
def test_a_scatter_that_may_have_more_indices_than_places_stays_in_pytorch(most, in_torch):
    """TensorRT takes no more."""
    indices = Input(min_shape=(1, 1), opt_shape=(2, 4), max_shape=(3, most), dtype=torch.int64)
    compiled = compile(MultiHot().eval(), [indices], min_block_size=1)
    assert [row.op for row in compiled.report.in_torch] == in_torch
    for count in (1, 4, most):
        rows = torch.randint(5, (2, count))
        assert torch.equal(compiled(rows), MultiHot()(rows))
