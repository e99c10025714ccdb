"""A batch of 0 is compiled where the ops themselves take it, whatever PyTorch's shape rules say."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError, SizeWarning


class Resized(nn.Module):
    """Repeats the nearest elements: PyTorch's shape rule raises an error for a batch of 0, and the op does not."""

    def forward(self, x):
        """From six rows to seven."""
        return F.interpolate(x, size=7)


class Unshuffled(nn.Module):
    """Moves pixels to channels: of a batch of 0, PyTorch returns the input, and its shape rule says otherwise."""

    def forward(self, x):
        """To four times as many channels."""
        return F.pixel_unshuffle(x, 2)


BATCHES = torchtrt.Input(min_shape=(0, 3, 6, 6), opt_shape=(2, 3, 6, 6), max_shape=(4, 3, 6, 6))


def test_an_op_that_takes_no_rows_is_compiled_for_them():
    """The result is empty, as in eager PyTorch."""
    compiled = torchtrt.compile(Resized().eval(), [BATCHES], min_block_size=1)

    assert compiled.report.narrowed == []
    for batch in (0, 1, 4):
        x = torch.rand(batch, 3, 6, 6)
        torch.testing.assert_close(compiled(x), Resized()(x))


def test_no_rows_of_which_an_op_makes_another_shape_are_left_out():
    """A call with them is an error, and no result of another shape."""
    with pytest.warns(SizeWarning, match="Compiled for 1 to 4"):
        compiled = torchtrt.compile(Unshuffled().eval(), [BATCHES], min_block_size=1)

    with pytest.raises(InputError, match="compiled for 1 to 4"):
        compiled(torch.rand(0, 3, 6, 6))
    x = torch.rand(1, 3, 6, 6)
    torch.testing.assert_close(compiled(x), Unshuffled()(x))


def test_no_elements_that_an_op_refuses_are_left_out():
    """PyTorch's shape rule lets them pass. Of an op that takes one tensor only, the error is about the sizes."""
    model = Function(lambda x: F.adaptive_avg_pool1d(x[..., 1:], 2)).eval()
    columns = torchtrt.Input(min_shape=(2, 3, 1), opt_shape=(2, 3, 5), max_shape=(2, 3, 8))
    with pytest.warns(SizeWarning, match="Compiled for 2 to 8"):
        compiled = torchtrt.compile(model, [columns], min_block_size=1)

    x = torch.rand(2, 3, 2)
    torch.testing.assert_close(compiled(x), model(x))


def test_comparing_sizes_draws_no_random_numbers():
    """A program's own numbers stay the same, whether it compiles a model or not."""
    model = nn.Sequential(nn.Dropout(0.5), nn.ReLU()).train()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    rows = torchtrt.Input(min_shape=(0, 3), opt_shape=(2, 3), max_shape=(4, 3))
    with pytest.warns(UserWarning, match="training mode"):
        torchtrt.explain(model, [rows], min_block_size=1)

    assert torch.equal(state, torch.get_rng_state())


def test_a_part_of_no_elements_has_the_sizes_of_the_others():
    """TensorRT infers no size of a tensor without elements."""
    model = Function(lambda x: x.unflatten(0, (-1, 1)) * 2).eval()
    sizes = torchtrt.Input(min_shape=(0, 0), opt_shape=(6, 4), max_shape=(8, 6))
    compiled = torchtrt.compile(model, [sizes], min_block_size=1)
    for shape in ((0, 0), (3, 0), (0, 2), (3, 2)):
        x = torch.rand(shape)
        torch.testing.assert_close(compiled(x), model(x))


def test_an_exported_program_is_lowered_for_the_sizes_of_0_that_are_declared():
    """To PyTorch, a size of a program is positive."""

    class Clearing(nn.Module):
        def forward(self, x, y):
            x[: y.shape[0]].zero_()
            return x

    varying = torch.export.Dim.AUTO(min=2, max=6), torch.export.Dim.AUTO(min=0, max=4)
    program = torch.export.export(
        Clearing(), (torch.rand(5), torch.rand(4)), dynamic_shapes=tuple({0: d} for d in varying)
    )
    x = torchtrt.Input(min_shape=(2,), opt_shape=(5,), max_shape=(6,))
    y = torchtrt.Input(min_shape=(0,), opt_shape=(4,), max_shape=(4,))
    compiled = torchtrt.compile(program, [x, y], min_block_size=1)
    for count in range(3):
        expected = torch.tensor([0.0] * count + [1.0] * (5 - count))
        torch.testing.assert_close(compiled(torch.ones(5), torch.rand(count)), expected)


def test_no_elements_that_a_part_of_an_op_does_not_take_are_left_out():
    """The op returns zeros then, and what it is decomposed into selects the last column."""
    model = Function(lambda x: torch.trapezoid(x, dim=1)).eval()
    columns = torchtrt.Input(min_shape=(2, 0), opt_shape=(5, 6), max_shape=(9, 6))
    with pytest.warns(SizeWarning, match="Compiled for 1 to 6"):
        compiled = torchtrt.compile(model, [columns], min_block_size=1)
    x = torch.rand(2, 1)
    torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(InputError, match="compiled for 1 to 6"):
        compiled(torch.rand(2, 0))


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_model_that_is_exported_only_for_sizes_from_1_is_compiled_for_these():
    """Before 2.15, PyTorch compares strides of a branch's result with products of sizes, which those of 0 are not."""
    model = Function(lambda x: torch.cond(x.sum() > 0, torch.neg, torch.clone, (x,))).eval()
    sizes = torchtrt.Input(min_shape=(0, 0), opt_shape=(5, 3), max_shape=(7, 6))
    compiled = torchtrt.compile(model, [sizes], min_block_size=1)
    least = min((row.compiled[0] for row in compiled.report.narrowed), default=0)
    for shape in ((1, 1), (1, 4), (7, 1), (0, 3), (3, 0)):
        x = torch.rand(shape)
        if min(shape) >= least:
            torch.testing.assert_close(compiled(x), model(x))
        else:
            with pytest.raises(InputError, match="compiled for 1 to"):
                compiled(x)


def test_a_model_that_reads_strides_takes_no_size_of_0():
    """PyTorch computes strides as if each size were 1 or more, which no expression of the program does."""
    model = Function(lambda x: (x + 1, x.stride(0))).eval()
    sizes = torchtrt.Input(min_shape=(0, 0), opt_shape=(5, 6), max_shape=(9, 6))
    with pytest.warns(SizeWarning, match="Compiled for 1 to"):
        compiled = torchtrt.compile(model, [sizes], min_block_size=1)
    for shape in ((3, 1), (9, 6)):
        x = torch.rand(shape)
        assert compiled(x)[1] == model(x)[1]
    with pytest.raises(InputError, match="compiled for 1 to 6"):
        compiled(torch.rand(3, 0))
