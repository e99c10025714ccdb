"""Rows of conditions: which sizes a compiled model refuses, in words that can be evaluated."""

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import InputError

AUTO = torch.export.Dim.AUTO


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_row_of_several_conditions_is_one_condition():
    """It is false for what calls are refused for."""

    class Parts(nn.Module):
        def forward(self, x):
            parts = x.tensor_split(4)
            return parts[3], parts[0]

    rows = torchtrt.Input(min_shape=(0, 6), opt_shape=(5, 6), max_shape=(9, 6))
    compiled = torchtrt.compile(Parts().eval(), [rows], min_block_size=1)
    (row,) = compiled.report.narrowed
    for count in range(10):
        x = torch.ones(count, 6)
        is_compiled = row.compiled[0] <= count <= row.compiled[1]
        if is_compiled and eval(row.condition, {"x": x}):
            compiled(x)
        else:
            with pytest.raises(InputError):
                compiled(x)


def fixed_by_a_branch(x, y):
    """One more where both have eight rows."""
    return x + 1 if x.shape[0] + y.shape[0] == 8 else x - 1


def fixed_by_an_op(x, y):
    """As many rows as the sorted ones have."""
    rows = torch.ones(y.shape[0] + x.shape[0], 3)
    return rows.take_along_dim(rows.argsort(0), 0) + x.sum()


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
@pytest.mark.parametrize("function", [fixed_by_a_branch, fixed_by_an_op])
def test_a_sum_that_is_a_number_is_a_row(function):
    """PyTorch replaces one of the sizes by the number without the other."""

    class Fixed(nn.Module):
        def forward(self, x, y):
            return function(x, y)

    rows = torchtrt.Input(min_shape=(1,), opt_shape=(4,), max_shape=(8,))
    compiled = torchtrt.compile(Fixed().eval(), [rows, rows], min_block_size=1)
    conditions = [row.condition for row in compiled.report.narrowed]
    assert "x.shape[0] + y.shape[0] == 8" in conditions
    assert "x: float32 [8 - y.shape[0]]" in str(compiled)


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_condition_that_rewriting_a_write_adds_to_a_program_is_a_row():
    """The program itself takes the sizes: no guard that it was exported with is about them."""

    class Diagonal(nn.Module):
        def forward(self, x, y):
            copy = y * 2
            copy[(x.size(0) + 1) // 2] = 1
            return x.diagonal()[None] * 2, copy

    rows, columns = AUTO(min=2, max=6), AUTO(min=1, max=8)
    args = torch.rand(2, 2), torch.rand(6, 6)
    program = torch.export.export(
        Diagonal(), args, dynamic_shapes=({0: rows, 1: rows}, {0: columns, 1: columns})
    )
    x = torchtrt.Input(min_shape=(2, 2), opt_shape=(2, 2), max_shape=(6, 6))
    y = torchtrt.Input(min_shape=(1, 1), opt_shape=(6, 6), max_shape=(8, 8))
    compiled = torchtrt.compile(program, [x, y], min_block_size=1)
    conditions = [row.condition for row in compiled.report.narrowed]
    rows_and_columns = torch.rand(2, 6), torch.rand(6, 6)
    try:
        results = compiled(*rows_and_columns)
    except InputError:  # newer versions than PyTorch 2.13 add no condition
        assert "x.shape[0] >= x.shape[1]" in conditions
    else:
        torch.testing.assert_close(results, Diagonal()(*rows_and_columns))


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_small_size_that_a_users_program_is_not_right_for_is_a_row():
    """The program has no condition that leaves it out, and 0 is taken."""

    class Squeezed(nn.Module):
        def forward(self, y):
            y.squeeze(0).add_(1)
            return y * 2

    rows = {0: AUTO(min=1, max=5)}
    program = torch.export.export(Squeezed(), (torch.rand(3, 4),), dynamic_shapes=(rows,))
    y = torchtrt.Input(min_shape=(0, 4), opt_shape=(3, 4), max_shape=(5, 4))
    compiled = torchtrt.compile(program, [y], min_block_size=1)
    assert ["y.shape[0] != 1"] == [row.condition for row in compiled.report.narrowed]


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_condition_has_a_row_though_an_op_refuses_the_optimal_sizes_of_its_range():
    """Whether the model refuses a size is found out beside sizes of other inputs that it takes."""

    class Last(nn.Module):
        def forward(self, x, y, n: int):
            copy = y + 1
            copy[x.shape[0]] = 1
            return torch.outer(x[0], x[:, 0])[-n:], copy

    x = torchtrt.Input(ranges=[((4, 6), (4, 6), (4, 6)), ((4, 1), (4, 2), (4, 6))])
    y = torchtrt.Input(ranges=[((5, 4), (5, 4), (5, 4)), ((1, 4), (2, 4), (5, 4))])
    number = torchtrt.Number(min=2, opt=3, max=4)
    compiled = torchtrt.compile(Last().eval(), [x, y, number], min_block_size=1)
    conditions = [row.condition for row in compiled.report.narrowed]
    assert "n > 0 and n <= x.shape[1]" in conditions
