"""Sizes that a guard fixes are numbers for everything that is converted, though they follow from a size that varies."""

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError, UnsupportedProgramError

OF_THE_LAST_COLUMN = {
    "squeeze": lambda last: last.squeeze(-1) + 1,
    "squeeze all": lambda last: last.squeeze() + 1,
    "expand": lambda last: last.expand(4, 5) + 1,
    "expand as": lambda last: last.repeat(1, 2) + last.expand_as(torch.ones(4, 2)),
    "channels": lambda last: F.conv1d(last[None].mT, torch.ones(2, 1, 3), padding=1),
    "features": lambda last: F.linear(last, torch.ones(3, 1)),
}


@pytest.mark.parametrize("name", OF_THE_LAST_COLUMN)
def test_the_rest_of_three_columns_is_one_column(name):
    """``n - (n + 1) // 2`` is 1 under the guard that PyTorch adds for 3, and for no size that is taken beside 2."""

    def function(x):
        return OF_THE_LAST_COLUMN[name](x.chunk(2, -1)[-1])

    columns = torchtrt.Input(min_shape=(4, 2), opt_shape=(4, 3), max_shape=(4, 8))
    with pytest.warns(UserWarning, match="Compiled for 2 to 3"):
        compiled = torchtrt.compile(Function(function).eval(), [columns], min_block_size=1)

    for x in (torch.rand(4, 3), torch.rand(4, 2)):
        torch.testing.assert_close(compiled(x), function(x))
    assert not compiled.report.in_torch


def test_the_rest_of_two_columns_is_one_column():
    """PyTorch adds no guard for what follows from the range of a size: 1 is left out, for which there is no rest."""

    def function(x):
        return x.chunk(2, -1)[-1].expand(4, 5) + 1

    x = torch.rand(4, 2)
    columns = torch.export.Dim("columns", min=1, max=2)
    with pytest.warns(UserWarning, match="Compiled for 2"):
        compiled = torchtrt.compile(
            Function(function).eval(), [x], dynamic_shapes=(({1: columns},),), min_block_size=1
        )

    torch.testing.assert_close(compiled(x), function(x))


def test_a_part_that_is_one_for_all_sizes_but_one_is_not_taken_for_one():
    """The range that PyTorch exports for starts at 2, and the engines take 1 as well."""

    def function(x):
        return (x.sum() + torch.arange(8.0).reshape(4, 2))[x.shape[0] // 2 :]

    x = torch.rand(2, 4)
    rows = torch.export.Dim("rows", min=1, max=2)
    compiled = torchtrt.compile(
        Function(function).eval(), [x], dynamic_shapes=(({0: rows},),), min_block_size=1
    )

    for tensor in (x, x[:1].clone()):
        torch.testing.assert_close(compiled(tensor), function(tensor))


def test_a_program_from_a_file_knows_its_guards(tmp_path):
    """Opening it makes guards of its own, and is no reason to lose those that it was exported under."""

    class Rest(torch.nn.Module):
        def forward(self, x):
            return x.chunk(2, -1)[-1].expand(4, 5).cumsum(0), (x.t() * 2).as_strided((3,), (1,))

    model, x = Rest(), torch.rand(4, 3)
    sizes = ({1: torch.export.Dim.AUTO},)
    exported = torch.export.export(model, (x,), dynamic_shapes=sizes, strict=False)
    torch.export.save(exported, tmp_path / "rest.pt2")
    columns = torchtrt.Input(min_shape=(4, 2), opt_shape=(4, 3), max_shape=(4, 8))
    loaded = torch.export.load(tmp_path / "rest.pt2")

    with pytest.warns(UserWarning, match="Compiled for 3"):
        compiled = torchtrt.compile(loaded, [columns], min_block_size=1)

    torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(InputError, match=r"compiled for 3\. You asked for 2 to 8"):
        compiled(torch.rand(4, 5))


def test_bags_as_long_as_a_size_that_varies():
    """PyTorch checks whether each new tensor is empty, also one with as many elements as bags."""
    weight = torch.rand(5, 4)
    indices = torchtrt.Input(
        min_shape=(2, 2), opt_shape=(3, 4), max_shape=(8, 8), dtype=torch.int64
    )

    def function(x):
        return F.embedding_bag(x % 5, weight, mode="max")

    compiled = torchtrt.compile(Function(function).eval(), [indices], min_block_size=1)

    for shape in ((3, 4), (2, 2), (8, 5)):
        x = torch.randint(9, shape)
        torch.testing.assert_close(compiled(x), function(x))


def test_engines_take_every_remainder_of_a_size():
    """The least and greatest padding belong to sizes in the middle of the range."""
    rows = torchtrt.Input(min_shape=(4, 3), opt_shape=(7, 3), max_shape=(8, 3))

    def function(x):
        padding = torch.full((6 - x.shape[0] % 4, 3), 2.0)
        return torch.cat([x, padding]).sin()

    compiled = torchtrt.compile(
        Function(function).eval(), [rows], min_block_size=1, torch_executed_ops={"aten.cat"}
    )

    for count in range(4, 9):
        x = torch.rand(count, 3)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_piece_whose_size_is_a_number_keeps_its_place_in_memory():
    """Reading it by strides is refused, because the place varies."""

    def last_piece(x):
        piece = x.chunk(3, 1)[2]
        return piece.as_strided(piece.shape, piece.stride()) * 1

    model = Function(last_piece).eval()
    rows = torchtrt.Input(min_shape=(1, 2), opt_shape=(3, 7), max_shape=(4, 7))
    with pytest.raises(UnsupportedProgramError, match="by strides"):
        torchtrt.compile(model, [rows], min_block_size=1)
