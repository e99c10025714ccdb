"""Guards that ops asked and that do not hold for some sizes: a call is right there, or it is refused."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from tests.support.compiled import accepted_calls
from tests.support.modules import Function
from torchtrt.errors import InputError
from torchtrt_reference import VERSIONS


class Sized(nn.Module):
    """Calls a function with the size of another input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, other):
        return self.function(x, other.shape[0])


def scaled_in_place(x, n):
    copy = x.clone()
    copy[:, :n].add_(n % 2)
    return copy


FUNCTIONS = {
    "a factor": lambda x, n: x[:, :n] * (n % 2),
    "a shift": lambda x, n: x[:, :n].roll(n % 2, 1),
    "an amount": lambda x, n: F.pad(x[:, :n], (0, n % 2)),
    "a start": lambda x, n: x[:, 2 * n :] * max(n - 3, 1),
    "a size of 1": lambda x, n: x[:, n + 1 :] + torch.ones(max(n - 3, 1), 1, 1),
    "a write": scaled_in_place,
    "a size of none": lambda x, n: x[:, :n] + x.new_zeros(n % 2).sum(),
}
"""Slices that a size may exceed, beside a number or a size that is small for many sizes."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_guard_beside_a_small_number_is_not_dropped(function, version):
    """Each combination of sizes, with more columns than the slice has, as many, and fewer."""
    columns = torchtrt.Input(min_shape=(2, 1), opt_shape=(2, 3), max_shape=(2, 8))
    others = torchtrt.Input(min_shape=(1,), opt_shape=(5,), max_shape=(8,))
    model = Sized(function).eval()
    with warnings.catch_warnings(), torchtrt.use_tensorrt(f"reference@{version}"):
        warnings.simplefilter("ignore")
        compiled = torchtrt.compile(model, [columns, others], min_block_size=1)
        sizes = itertools.product(range(1, 9), repeat=2)
        calls = ((torch.rand(2, width), torch.zeros(count)) for width, count in sizes)
        assert accepted_calls(compiled, model, calls)


def test_an_argument_that_cannot_be_made_is_no_refusal_of_an_op():
    """A start behind the last column leaves nothing, in PyTorch. The row says which sizes are left out."""
    columns = torchtrt.Input(min_shape=(2, 3), opt_shape=(2, 6), max_shape=(2, 8))
    others = torchtrt.Input(min_shape=(1,), opt_shape=(2,), max_shape=(8,))
    model = Sized(lambda x, n: x[:, n:].flip(1)).eval()
    with pytest.warns(UserWarning, match=r"where other\.shape\[0\] <= x\.shape\[1\]"):
        torchtrt.compile(model, [columns, others], min_block_size=1)


def test_what_ops_are_decomposed_into_is_run_with_small_sizes():
    """For 2 and 3 rows, their half is 1: PyTorch makes a number of it while it decomposes the write."""

    class Halves(nn.Module):
        def forward(self, x):
            half = x.shape[0] // 2
            ones = x.new_ones(2, half).clone()
            ones[:, half:].mul_(2)
            return ones

    rows = torchtrt.Input(min_shape=(1,), opt_shape=(2,), max_shape=(3,))
    with pytest.warns(UserWarning, match="Compiled for 2 to 3"):
        compiled = torchtrt.compile(Halves().eval(), [rows], min_block_size=1)
    with pytest.raises(InputError, match="compiled for 2 to 3"):
        compiled(torch.rand(1))
    assert compiled(torch.rand(3)).shape == (2, 1)


LENGTHS = {
    "the smaller": lambda x, y: min(x.shape[0], y.shape[0]),
    "the larger": lambda x, y: max(x.shape[0], x.shape[1] - y.shape[0]),
}


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_a_guard_that_fails_for_few_larger_sizes_stays_a_condition(length):
    """Of three sizes, only a part of all combinations is run."""
    model = Function(lambda x, y: x[:, : length(x, y)] * 2).eval()
    x = torchtrt.Input(min_shape=(1, 0), opt_shape=(3, 5), max_shape=(5, 7))
    y = torchtrt.Input(min_shape=(1,), opt_shape=(4,), max_shape=(6,))
    compiled = torchtrt.compile(model, [x, y], min_block_size=1)
    sizes = itertools.product(range(1, 6), range(8), range(1, 7))
    calls = ((torch.rand(rows, columns), torch.rand(count)) for rows, columns, count in sizes)
    assert len(accepted_calls(compiled, model, calls)) > 100


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_write_to_all_rows_but_for_one_size_of_1_is_right(least):
    """PyTorch takes sizes for 2 or more, for which the written slice is the whole tensor."""

    class Written(nn.Module):
        def forward(self, x):
            y = x * 2
            y[max(x.shape[1] - x.shape[0] - 4, 0) :] += 1
            return y

    sizes = torchtrt.Input(min_shape=(least, least), opt_shape=(4, 6), max_shape=(6, 6))
    compiled = torchtrt.compile(Written().eval(), [sizes], min_block_size=1)
    calls = ((torch.rand(shape),) for shape in itertools.product(range(least, 7), repeat=2))
    assert len(accepted_calls(compiled, Written(), calls)) >= 36


def sliced_by_a_remainder(x, y):
    """A limit that PyTorch takes for at most the size, which it takes for 2 or more."""
    return y[: (x.shape[0] + y.shape[0]) % 3] * 2


def sliced_by_a_product(x, y):
    """A limit that counts from the end for the optimal sizes."""
    return x[: x.shape[0] * y.shape[0] - 3]


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("function", [sliced_by_a_remainder, sliced_by_a_product])
@pytest.mark.parametrize("optima", [(3, 2), (1, 2), (2, 1)])
def test_a_limit_of_two_sizes_is_right_for_each_pair(function, optima):
    """A size of 1 may be right beside one size, and wrong beside another."""

    class Sliced(nn.Module):
        def forward(self, x, y):
            return function(x, y)

    model = Sliced().eval()
    inputs = [
        torchtrt.Input(min_shape=(1, 2), opt_shape=(optimum, 2), max_shape=(4, 2))
        for optimum in optima
    ]
    compiled = torchtrt.compile(model, inputs, min_block_size=1)
    pairs = itertools.product(range(1, 5), repeat=2)
    calls = [tuple(torch.rand(size, 2) for size in pair) for pair in pairs]
    assert accepted_calls(compiled, model, calls)


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize(
    "function",
    [
        lambda h, w, table: table[2 * h + 2 * w - 4 :] * 2,
        lambda h, w, table: table[: 2 * h + 2 * w - 4] * 2,
        lambda h, w, table: table[: h * w - 1].clone().fill_(1),
        lambda h, w, table: table[: 9 - h - w] * 2,
    ],
    ids=["start", "limit", "product", "from above"],
)
def test_a_limit_that_is_certain_for_sizes_of_2_is_right_beside_each_size(function):
    """PyTorch takes it for the end of the table. It is not for a size of 1 beside another of 2."""

    class Sliced(nn.Module):
        def forward(self, x, table):
            return function(*x.shape, table)

    model = Sliced().eval()
    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(3, 4), max_shape=(4, 4))
    table = torch.rand(3, 2)
    compiled = torchtrt.compile(model, [sizes, table], min_block_size=1)
    shapes = itertools.product(range(1, 5), repeat=2)
    assert accepted_calls(compiled, model, [(torch.rand(shape), table) for shape in shapes])
