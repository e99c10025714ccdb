"""Ops whose count PyTorch takes as a number compile for counts that vary."""

import math

import pytest
import torch
from torch.nn import functional as F

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError

FUNCTIONS = {
    "linspace": lambda x: torch.linspace(-1, 2, x.shape[0]),
    "linspace-to-the-size": lambda x: torch.linspace(0.5, x.shape[0] - 0.5, x.shape[0]),
    "linspace-of-half": lambda x: torch.linspace(0, 3, x.shape[0], dtype=torch.float16),
    "linspace-fixed-count": lambda x: torch.linspace(0, x.shape[0], 5),
    "one-hot": lambda x: F.one_hot((x[:, 0] > 2).long() * 0, x.shape[0]),
    "einsum-of-one": lambda x: torch.einsum("ij->ji", x).sum(0),
    "max-pool1d": lambda x: F.max_pool1d(x.T.repeat(1, 6), 2, 3, 1, ceil_mode=True),
    "max-pool1d-indices": lambda x: F.max_pool1d(x.T.repeat(1, 6), 3, return_indices=True)[1],
    "bags": lambda x: F.embedding_bag((x > 0.5).long(), torch.eye(2, 4), mode="mean"),
    "weighted-bags": lambda x: F.embedding_bag(
        (x > 0.5).long(), torch.eye(2, 4), mode="sum", per_sample_weights=x
    ),
    "windows": lambda x: x.repeat(3, 1).unfold(0, 3, 2),
    "tril-indices": lambda x: torch.tril_indices(x.shape[0], 3, -1),
    "triu-indices": lambda x: torch.triu_indices(x.shape[0], x.shape[0]),
    "eye": lambda x: torch.eye(x.shape[0]),
    "eye-of-columns": lambda x: torch.eye(2 * x.shape[0], x.shape[0] + 1, dtype=torch.int64),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_count_may_vary(function, version):
    """The whole model is one engine for all of them, including a count of one."""
    rows = torchtrt.Input(min_shape=(1, 3), opt_shape=(4, 3), max_shape=(6, 3))
    model = Function(lambda x: function(x) + x.sum() * 0).eval()
    compiled = torchtrt.compile(model, [rows], require_full_compilation=True)
    for count in (1, 2, 5, 6):
        x = torch.rand(count, 3)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_count_that_does_not_vary_is_pytorchs():
    """Its numbers are those of PyTorch's own op, to the last digit."""
    model = Function(lambda x: x + torch.linspace(0.1, 0.7, 7)).eval()
    x = torch.zeros(7)
    assert torch.equal(torchtrt.compile(model, [x], min_block_size=1)(x), model(x))


def test_no_classes_are_refused_as_pytorch_does():
    """An engine would return a tensor without elements."""
    rows = torchtrt.Input(min_shape=(0, 3), opt_shape=(4, 3), max_shape=(6, 3))
    model = Function(lambda x: F.one_hot(torch.arange(x.shape[0]), x.shape[0]) + x.sum()).eval()
    with pytest.warns(UserWarning, match="You asked for 0 to 6"):
        compiled = torchtrt.compile(model, [rows], min_block_size=1)
    for count in (1, 6):
        x = torch.rand(count, 3)
        torch.testing.assert_close(compiled(x), model(x))


def test_integers_at_equal_distances_are_refused():
    """Integers are cut from numbers that PyTorch rounds otherwise."""
    rows = torchtrt.Input(min_shape=(2, 3), opt_shape=(4, 3), max_shape=(6, 3))
    model = Function(lambda x: torch.linspace(0, 9, x.shape[0], dtype=torch.int64) + x[0, 0]).eval()
    with pytest.raises(InputError, match="the model fixes it to 4"):
        torchtrt.compile(model, [rows], min_block_size=1)


def test_a_convolution_whose_dilation_varies_stays_in_pytorch():
    """TensorRT's layer takes numbers."""
    rows = torchtrt.Input(min_shape=(2, 3), opt_shape=(4, 3), max_shape=(6, 3))
    kernel = torch.ones(1, 1, 2)
    model = Function(
        lambda x: F.conv1d(torch.ones(1, 1, 9) * x.sum(), kernel, dilation=x.shape[0])
    ).eval()
    compiled = torchtrt.compile(model, [rows], min_block_size=1)
    (left,) = compiled.report.in_torch
    assert "strides, paddings, dilations and groups must be fixed" in left.reason
    x = torch.rand(5, 3)
    torch.testing.assert_close(compiled(x), model(x))


class Planner:
    """``opt_einsum``, which plans from the right and computes with sizes as numbers."""

    def contract_path(self, equation, *shapes, **options):
        """Returns the steps, and what else it found."""
        assert options.pop("shapes", False)
        assert all(type(size) is int for shape in shapes for size in shape)
        return [(1, 2), (0, 1)], None


def test_the_order_of_a_contraction_fixes_no_size(monkeypatch):
    """It is the same for all sizes, 1 included."""
    planner = torch.backends.opt_einsum
    monkeypatch.setattr(planner, "is_available", lambda: True)
    monkeypatch.setattr(planner, "get_opt_einsum", Planner)
    monkeypatch.setitem(vars(planner.m), "enabled", True)
    model = Function(lambda x, y, z: torch.einsum("bde,bnd,bn->bne", x, y, z)).eval()
    sizes = ((3, 5), (2, 3), (2,))
    inputs = [
        torchtrt.Input(min_shape=(1, *s), opt_shape=(4, *s), max_shape=(6, *s)) for s in sizes
    ]
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True)
    monkeypatch.undo()
    for count in (1, 4, 6):
        tensors = [torch.rand(count, *size) for size in sizes]
        torch.testing.assert_close(compiled(*tensors), model(*tensors))


BEYOND_INT32 = {
    "a power": lambda x, n: x * n**6,
    "a quotient of a product": lambda x, n: x * ((n * 2**30) // 2**28),
    "a remainder of a product": lambda x, n: x + (n * 2**30 + 5) % 1000,
    "a product": lambda x, n: x * (n * 2**30),
}


@pytest.mark.parametrize("function", BEYOND_INT32.values(), ids=BEYOND_INT32)
def test_arithmetic_that_may_leave_int32_stays_in_pytorch(function, version):
    """A network has sizes as int32, and Python's integers do not end."""
    model, x = Function(lambda x, n: function(x.sin(), n)).eval(), torch.rand(3)
    compiled = torchtrt.compile(model, [x, torchtrt.Number(1, 16, 64)], min_block_size=1)
    for number in (1, 2, 36, 64):
        torch.testing.assert_close(compiled(x, number), model(x, number))


def test_a_product_of_sizes_may_leave_int32(version):
    """The number of elements, squared."""
    rows = torchtrt.Input(min_shape=(8, 8), opt_shape=(64, 64), max_shape=(512, 512))
    model = Function(lambda x: x.sum() / (x.shape[0] * x.shape[1]) ** 2).eval()
    compiled = torchtrt.compile(model, [rows], min_block_size=1)
    for size in (8, 255, 256):
        x = torch.rand(size, size)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("scale", [0.29, 0.3, 1 / 3, 1 / 7, 0.57, 1.1, 2.5])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_a_fraction_takes_the_nearest_rows_that_pytorch_takes(scale, mode, version):
    """PyTorch computes the number of rows in float64 and their indices in float32, for every size."""
    rows = torchtrt.Input(
        min_shape=(1, 2, 16, 16), opt_shape=(1, 2, 48, 16), max_shape=(1, 2, 512, 16)
    )
    model = Function(lambda x: F.interpolate(x, scale_factor=scale, mode=mode)).eval()
    compiled = torchtrt.compile(model, [rows], require_full_compilation=True)
    for count in (16, 17, 48, 99, 100, 200, 300, 512):
        x = torch.rand(1, 2, count, 16)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("part", [0.29, 0.5, 0.57])
def test_a_size_is_rounded_as_in_float64(part, version):
    """In an engine where float32 gives the same integers for all sizes; otherwise in PyTorch."""
    columns = torchtrt.Input(min_shape=(2, 8), opt_shape=(2, 50), max_shape=(2, 500))
    model = Function(lambda x: x.sin()[:, : math.floor(x.shape[1] * part)] * 2).eval()
    compiled = torchtrt.compile(model, [columns], min_block_size=1)
    assert (part == 0.5) is not bool(compiled.report.in_torch)
    for count in (8, 50, 100, 200, 300, 500):
        x = torch.rand(2, count)
        torch.testing.assert_close(compiled(x), model(x))


def filled_by_size(x):
    """Returns a vector of half the number of rows, and reads no element."""
    return torch.full((x.shape[1],), x.shape[0] / 2)


@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool])
def test_the_sizes_of_a_tensor_that_no_engine_takes_are_pytorchs(version, dtype):
    """TensorRT 8 takes int8 as quantized values only."""
    rows = torchtrt.Input(min_shape=(1, 1), opt_shape=(2, 2), max_shape=(4, 4), dtype=dtype)
    compiled = torchtrt.compile(Function(filled_by_size).eval(), [rows], min_block_size=1)

    x = torch.zeros(3, 2, dtype=dtype)
    assert torch.equal(compiled(x), filled_by_size(x))
