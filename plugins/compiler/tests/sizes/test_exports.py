"""A model is exported once, and a program from a file takes the sizes that it took before."""

import io

import pytest
import torch
import torch.export.passes
from torch import nn

import torchtrt
from torchtrt.errors import InputError, SizeWarning
from torchtrt.graphs import same_for_all_answers

RUNS = []
"""One element for each run of the code of ``Counted``: exporting restores a module's attributes."""


class Counted(nn.Module):
    """Counts how often its Python code runs, and asks about sizes of three inputs."""

    def forward(self, x, y, z):
        """Rows that are doubled if there is one, where the columns of two inputs agree."""
        RUNS.append(x.shape)
        if x.shape[1] != y.shape[1]:
            raise ValueError
        rows = x * 2 if x.shape[0] == 1 else x * 3
        rows = rows + (1 if z.shape[0] // 2 == 2 else 2)
        return rows[:2].sum(1), y[:, -1], z.squeeze()


def ranged(*minimum, most=9):
    """Returns an input whose sizes start at these."""
    return torchtrt.Input(
        min_shape=minimum, opt_shape=(4,) * len(minimum), max_shape=(most,) * len(minimum)
    )


def test_a_model_is_exported_once():
    """However many of its sizes may be 0 or 1, and whatever its code asks about them."""
    RUNS.clear()
    model = Counted().eval()
    with pytest.warns(UserWarning, match="You asked for"):
        torchtrt.compile(model, [ranged(0, 1), ranged(1, 1), ranged(1, 1)], min_block_size=1)

    assert 1 == len(RUNS)


def test_a_check_of_the_model_is_no_row_of_the_report():
    """Its other questions are."""
    with pytest.warns(UserWarning, match="You asked for"):
        compiled = torchtrt.compile(
            Counted().eval(), [ranged(2, 2), ranged(2, 2), ranged(2, 2)], min_block_size=1
        )

    assert [("z", (4, 5))] == [(row.input, row.compiled) for row in compiled.report.narrowed]


class Linear(nn.Module):
    """Layers without a question about sizes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        """The last rows of the batch."""
        return self.layers(x).transpose(0, 1).reshape(-1)


def saved_and_loaded(program):
    """Returns a program that went through a file."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer)


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_program_that_was_saved_and_moved_takes_the_sizes_that_it_took(is_loaded, is_moved):
    """A file says that sizes are 2 or more, and moving a program asks whether they are 1."""
    model = Linear().eval()
    batch = torch.export.Dim("batch", min=1, max=6)
    program = torch.export.export(model, (torch.rand(3, 4),), dynamic_shapes=({0: batch},))
    if is_loaded:
        program = saved_and_loaded(program)
    if is_moved:
        program = torch.export.passes.move_to_device_pass(program, "cpu")
    compiled = torchtrt.compile(program, min_block_size=1)

    assert [] == compiled.report.narrowed
    for count in range(1, 7):
        x = torch.rand(count, 4)
        torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(InputError):
        compiled(torch.rand(7, 4))


def test_a_question_whose_answers_are_the_same_is_no_condition():
    """A pack promises it around a function of a library."""

    class Expanded(nn.Module):
        def forward(self, x, y):
            with same_for_all_answers():
                y = y.expand(x.shape[0], -1) if x.shape[0] != 1 else y
            return x + y

    model = Expanded().eval()
    one = torchtrt.Input((1, 4))
    sizes = torchtrt.Input(min_shape=(1, 4), opt_shape=(3, 4), max_shape=(6, 4))
    compiled = torchtrt.compile(model, [sizes, one], min_block_size=1)

    assert [] == compiled.report.narrowed
    for count in (1, 2, 6):
        x, y = torch.rand(count, 4), torch.rand(1, 4)
        torch.testing.assert_close(compiled(x, y), model(x, y))


def test_sizes_that_a_program_was_not_exported_for_are_no_fault_of_the_model():
    """Compiling it for one of them would fail; exporting it again helps."""
    batch = torch.export.Dim("batch", min=2, max=4)
    program = torch.export.export(
        nn.ReLU().eval(), (torch.rand(3, 2),), dynamic_shapes=({0: batch},)
    )
    rows = torchtrt.Input(min_shape=(2, 2), opt_shape=(3, 2), max_shape=(6, 2))
    with pytest.warns(SizeWarning, match=r"but the program takes 2 to 4\. .* export the model"):
        compiled = torchtrt.compile(program, [rows], min_block_size=1)
    with pytest.raises(InputError, match=r"but the program takes 2 to 4\. .* export the model"):
        compiled(torch.rand(5, 2))


def test_dynamic_shapes_beside_an_input_ask_for_what_both_allow():
    """Nothing of that is left out, so there is no warning."""
    shapes = ({0: torch.export.Dim("batch", min=2, max=4)},)
    rows = torchtrt.Input(min_shape=(1, 2), opt_shape=(3, 2), max_shape=(6, 2))
    compiled = torchtrt.compile(nn.ReLU().eval(), [rows], dynamic_shapes=shapes, min_block_size=1)

    assert not compiled.report.narrowed
    with pytest.raises(InputError, match=r"compiled for 2 to 4\. Compile again with a wider range"):
        compiled(torch.rand(5, 2))
