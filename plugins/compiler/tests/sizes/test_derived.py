"""Sizes that are derived from another, as ``4 * torch.export.Dim("h")``, where the other is the size of no input."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError, SizeWarning
from torchtrt_reference import VERSIONS


def dim(name):
    """Returns a dimension of 2 to 8."""
    return torch.export.Dim(name, min=2, max=8)


H, W = dim("h"), dim("w")
CASES = {
    "factor": (lambda x: x * 2 + 1, [{0: 4 * H}], [(16, 3)], [[(8, 3)], [(32, 3)]]),
    "offset": (lambda x: x * 2 + 1, [{0: H + 1}], [(5, 3)], [[(3, 3)], [(9, 3)]]),
    "both": (lambda x: x * 2 + 1, [{0: 2 * H - 1}], [(5, 3)], [[(3, 3)], [(15, 3)]]),
    "sums": (
        lambda x: x.relu().sum(),
        [{0: 4 * H, 1: 4 * W}],
        [(16, 12)],
        [[(8, 32)], [(32, 8)]],
    ),
    "images": (
        lambda x: F.interpolate(F.avg_pool2d(x, 4), scale_factor=2).flatten(1),
        [{2: 4 * H, 3: 4 * W}],
        [(1, 2, 16, 12)],
        [[(1, 2, 8, 32)], [(1, 2, 32, 8)]],
    ),
    "two": (
        lambda x, y: x[:1] * y[:1],
        [{0: H + 1}, {0: H + 2}],
        [(5, 3), (6, 3)],
        [[(3, 3), (4, 3)], [(9, 3), (10, 3)]],
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_derived_size_may_have_every_value(version, case):
    """Of the smallest and the largest, and the one in the example."""
    function, sizes, example, others = case
    model = Function(function).eval()
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(
            model,
            [torch.rand(shape) for shape in example],
            dynamic_shapes={"inputs": tuple(sizes)},
            require_full_compilation=True,
        )
        for shapes in (example, *others):
            inputs = [torch.rand(shape) for shape in shapes]
            torch.testing.assert_close(compiled(*inputs), model(*inputs))


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("factor", [(9, 3)], r"must be 4\*s\d+, for a whole"),
        ("factor", [(36, 3)], "compiled for 8 to 32"),
        ("offset", [(2, 3)], "compiled for 3 to 9"),
        ("both", [(4, 3)], r"must be 2\*s\d+ - 1, for a whole"),
        ("two", [(3, 3), (5, 3)], r"it must be .*shape\[0\].* = 4"),
    ],
)
def test_another_size_is_refused(name, shapes, message):
    """It is no size that the dimension has, too large, too small, or not the other one's."""
    function, sizes, example, _ = CASES[name]
    compiled = torchtrt.compile(
        Function(function).eval(),
        [torch.rand(shape) for shape in example],
        dynamic_shapes={"inputs": tuple(sizes)},
        min_block_size=1,
    )
    with pytest.raises(InputError, match=message):
        compiled(*(torch.rand(shape) for shape in shapes))


def test_a_program_with_a_derived_size_is_compiled_for_the_sizes_of_an_input():
    """In the range that is asked for."""
    function, sizes, example, _ = CASES["factor"]
    exported = torch.export.export(
        Function(function),
        tuple(torch.rand(shape) for shape in example),
        dynamic_shapes={"inputs": tuple(sizes)},
        strict=False,
    )
    shapes = torchtrt.Input(min_shape=(12, 3), opt_shape=(16, 3), max_shape=(24, 3))
    compiled = torchtrt.compile(exported, [shapes], min_block_size=1)
    assert not compiled.report.narrowed
    for size in (12, 24):
        x = torch.rand(size, 3)
        torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(InputError, match="compiled for 12 to 24"):
        compiled(torch.rand(8, 3))


def test_a_model_with_a_derived_size_is_saved(tmp_path):
    """And runs at other sizes than those of the example."""
    function, sizes, example, others = CASES["images"]
    compiled = torchtrt.compile(
        Function(function).eval(),
        [torch.rand(shape) for shape in example],
        dynamic_shapes={"inputs": tuple(sizes)},
        min_block_size=1,
    )
    torchtrt.save(compiled, tmp_path / "model.ep")
    loaded = torchtrt.load(tmp_path / "model.ep")
    for shapes in others:
        x = torch.rand(shapes[0])
        torch.testing.assert_close(loaded(x), function(x))


class Patches(torch.nn.Module):
    """Takes whole patches, and resizes what it makes of them to the size of the image."""

    def __init__(self, size, is_written):
        super().__init__()
        self.size, self.is_written = size, is_written
        self.convolution = torch.nn.Conv2d(3, 4, size, size)

    def forward(self, x):
        """``(n, 3, height, width)`` to ``(n, 4, height, width)``."""
        patches = x.shape[2] // self.size
        height = int(patches * self.size)
        if self.is_written:
            return x.new_zeros(height, 4).add_(x.mean())
        return torch.nn.functional.interpolate(self.convolution(x), (height, x.shape[3]))


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("size", [2, 7, 14])
def test_a_derived_size_that_the_model_fixes_is_narrowed_with_its_line(size, is_written, version):
    """int() of a size is that number. The input keeps its symbol, by which the condition is decided."""
    model = Patches(size, is_written).eval()
    images = torch.rand(1, 3, 4 * size, 28)
    height = size * torch.export.Dim("h", min=2, max=9)
    with pytest.warns(UserWarning, match=f"Compiled for {4 * size}: calls"):
        compiled = torchtrt.compile(
            model, [images], dynamic_shapes=({2: height},), min_block_size=1
        )

    (narrowed,) = compiled.report.narrowed
    assert f'"{__file__}", line ' in str(narrowed)
    torch.testing.assert_close(compiled(images), model(images), rtol=1e-4, atol=1e-5)
    with pytest.raises(torchtrt.errors.InputError, match=f"compiled for {4 * size}"):
        compiled(torch.rand(1, 3, 5 * size, 28))


AUTO = torch.export.Dim.AUTO(min=1, max=7)
ROWS = torchtrt.Input(min_shape=(1,), opt_shape=(4,), max_shape=(7,))
FEWER = torchtrt.Input(min_shape=(1,), opt_shape=(3,), max_shape=(7,))


@pytest.mark.parametrize(
    ("inputs", "sizes"),
    [
        pytest.param([ROWS, FEWER], None, id="Input"),
        pytest.param([torch.rand(4), torch.rand(3)], ({0: AUTO}, {0: AUTO}), id="AUTO"),
    ],
)
def test_both_of_two_sizes_stay_in_their_ranges(inputs, sizes):
    """Before, the size that PyTorch derives from the other one had any limits that followed."""
    model = Function(lambda x, y: x[1:] + y).eval()
    shapes = None if sizes is None else {"inputs": sizes}
    with pytest.warns(SizeWarning):
        compiled = torchtrt.compile(model, inputs, dynamic_shapes=shapes, min_block_size=1)

    assert [(2, 7), (1, 6)] == [row.compiled for row in compiled.report.narrowed]
    for rows in (2, 7):
        x, y = torch.rand(rows), torch.rand(rows - 1)
        torch.testing.assert_close(compiled(x, y), model(x, y))
    with pytest.raises(InputError, match="compiled for 1 to 6"):
        compiled(torch.rand(8), torch.rand(7))


def test_an_exported_program_limits_both_of_two_sizes():
    """As its own module does."""
    model = Function(lambda x, y: x[1:] + y).eval()
    example = torch.rand(4), torch.rand(3)
    program = torch.export.export(model, example, dynamic_shapes={"inputs": ({0: AUTO}, {0: AUTO})})
    compiled = torchtrt.compile(program, min_block_size=1)

    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.rand(8), torch.rand(7))
    with pytest.raises(InputError, match="compiled for 2 to 6"):
        compiled(torch.rand(8), torch.rand(7))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_size_of_1_is_compared_where_the_sizes_of_an_op_are_larger(version):
    """A slice of two columns is inside a padded row, unless that had one column: PyTorch takes it for two or more."""

    def function(x, padding):
        return torch.nn.functional.pad(x, (0, padding.shape[0]))[:, padding.shape[0] :][:, :2] * 2

    columns = torchtrt.Input(min_shape=(2, 1), opt_shape=(2, 6), max_shape=(2, 9))
    padding = torchtrt.Input(min_shape=(1,), opt_shape=(3,), max_shape=(9,))
    with torchtrt.use_tensorrt(f"reference@{version}"):
        with pytest.warns(UserWarning, match="Compiled for 2 to 9: calls"):
            compiled = torchtrt.compile(
                Function(function).eval(), [columns, padding], min_block_size=1
            )
        for width, count in itertools.product((2, 3, 9), (1, 2, 9)):
            x, zeros = torch.rand(2, width), torch.zeros(count)
            torch.testing.assert_close(compiled(x, zeros), function(x, zeros))
        with pytest.raises(InputError, match="compiled for 2 to 9"):
            compiled(torch.rand(2, 1), torch.zeros(4))
