"""Resampling by a factor that keeps or doubles small sizes, for which eager PyTorch has rules of their own."""

import itertools

import pytest
import torch

import torchtrt


def compiled_for(mode, dims, factor, least):
    """Returns a model that resamples, and the compiled one for sizes from ``least`` to 13."""
    aligned = {} if "nearest" in mode else {"align_corners": False}
    model = torch.nn.Upsample(scale_factor=factor, mode=mode, **aligned).eval()
    low, usual, high = ((1, 2, *[size] * dims) for size in (least, 11, 13))
    sizes = torchtrt.Input(min_shape=low, opt_shape=usual, max_shape=high)
    return model, torchtrt.compile(model, [sizes])


def assert_equal_to_eager(model, compiled, dims, least):
    """Compares images of all combinations of a few sizes."""
    for shape in itertools.product((least, 10, 13), repeat=dims):
        image = torch.randn(1, 2, *shape)
        torch.testing.assert_close(compiled(image), model(image), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:No engine was built")
@pytest.mark.parametrize(
    ("mode", "dims", "factor", "rule"),
    [
        ("linear", 1, 1.1, "keeps a size of 2"),
        ("bilinear", 2, (1.1, 1.5), "keeps a size of 2"),
        ("trilinear", 3, 1.3, "keeps a size of 2"),
        ("bicubic", 2, 1.1, "keeps a size of 2"),
        ("nearest", 2, 1.1, "keeps a size of 2"),
        ("nearest", 2, 2.1, "doubles a size of 2"),
        ("nearest-exact", 2, 1.1, "keeps a size of 2"),
    ],
)
def test_pytorch_resamples_where_a_size_has_another_rule(mode, dims, factor, rule):
    """The report names the factor and the size."""
    model, compiled = compiled_for(mode, dims, factor, 2)

    assert_equal_to_eager(model, compiled, dims, 2)
    assert rule in " ".join(str(compiled.report).split())
    assert not compiled.report.blocks


@pytest.mark.parametrize(
    ("mode", "dims", "factor", "least"),
    [
        ("linear", 1, 1.1, 10),
        ("bilinear", 2, (1.5, 2.7), 2),
        ("trilinear", 3, 1.6, 2),
        ("bicubic", 2, 1.5, 2),
        ("nearest", 1, 1.1, 2),
        ("nearest", 2, 2.1, 10),
        ("nearest", 2, 2.0, 2),
        ("nearest", 3, 2.1, 2),
        ("nearest-exact", 2, 1.1, 10),
        ("nearest-exact", 3, 1.1, 2),
    ],
)
def test_an_engine_resamples_where_no_size_has(mode, dims, factor, least):
    """For a factor of 1.1, that is from 10 on."""
    model, compiled = compiled_for(mode, dims, factor, least)

    assert_equal_to_eager(model, compiled, dims, least)
    assert len(compiled.report.blocks) == 1


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(7, 5), (7, 11), (11, 7)])
def test_fixed_sizes_that_stay_are_resampled_as_eager_pytorch_does(mode, shape):
    """By the weights of PyTorch's own function."""
    aligned = {} if "nearest" in mode else {"align_corners": False}
    model = torch.nn.Upsample(scale_factor=1.1, mode=mode, **aligned).eval()
    image = torch.randn(1, 2, *shape)

    compiled = torchtrt.compile(model, [image])

    torch.testing.assert_close(compiled(image), model(image), rtol=1e-4, atol=1e-4)
    assert len(compiled.report.blocks) == 1


def test_a_fixed_size_that_stays_beside_a_dynamic_one():
    """The other dimension is interpolated, and no size of it stays."""
    model = torch.nn.Upsample(scale_factor=(1.1, 1.5), mode="bilinear", align_corners=False).eval()
    sizes = torchtrt.Input(min_shape=(1, 2, 7, 4), opt_shape=(1, 2, 7, 8), max_shape=(1, 2, 7, 9))
    compiled = torchtrt.compile(model, [sizes])

    for width in (4, 8, 9):
        image = torch.randn(1, 2, 7, width)
        torch.testing.assert_close(compiled(image), model(image))
    assert len(compiled.report.blocks) == 1


@pytest.mark.filterwarnings("ignore:You asked for")
def test_a_size_that_another_input_fixes_is_resampled():
    """The size of the result is an expression still, of which it is not known that it is the scaled one."""

    class Pyramid(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(2, 2, 3, stride=4, padding=1)

        def forward(self, x, y):
            small = self.convolution(x)
            return torch.nn.functional.interpolate(small, scale_factor=2.0), small + y

    model, y = Pyramid().eval(), torch.randn(1, 2, 3, 3)
    shapes = [(2, 2, size, size) for size in (9, 10, 20)]
    sizes = torchtrt.Input(min_shape=shapes[0], opt_shape=shapes[1], max_shape=shapes[2])
    compiled = torchtrt.compile(model, [sizes, y], min_block_size=1)
    for shape in ((2, 2, 9, 12), (2, 2, 12, 11)):
        image = torch.randn(shape)
        torch.testing.assert_close(compiled(image, y), model(image, y), rtol=1e-4, atol=1e-4)
