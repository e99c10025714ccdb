"""Interpolation by a factor that keeps small sizes: PyTorch copies them, and interpolates greater ones."""

import itertools

import pytest
import torch

import torchtrt

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def compiled_for(dims, factor, least):
    """Returns a model that interpolates, and the compiled one for sizes from ``least`` to 13."""
    model = torch.nn.Upsample(scale_factor=factor, mode=MODES[dims], align_corners=False).eval()
    low, usual, high = ((1, 2, *[size] * dims) for size in (least, 11, 13))
    sizes = torchtrt.Input(min_shape=low, opt_shape=usual, max_shape=high)
    return model, torchtrt.compile(model, [sizes])


@pytest.mark.filterwarnings("ignore:No engine was built")
@pytest.mark.parametrize(("dims", "factor"), [(1, 1.1), (2, 1.1), (2, (1.1, 1.5)), (3, 1.3)])
def test_pytorch_interpolates_where_a_factor_keeps_a_size(dims, factor):
    """The report names the factor and the size."""
    model, compiled = compiled_for(dims, factor, 2)

    for shape in itertools.product((2, 3, 10, 13), repeat=dims):
        image = torch.randn(1, 2, *shape)
        torch.testing.assert_close(compiled(image), model(image))
    assert "the factor 1." in str(compiled.report)
    assert not compiled.report.blocks


@pytest.mark.parametrize(
    ("dims", "factor", "least"), [(1, 1.1, 10), (2, (1.5, 2.7), 2), (3, 1.6, 2)]
)
def test_an_engine_interpolates_where_no_size_stays(dims, factor, least):
    """For a factor of 1.1, that is from 10 on."""
    model, compiled = compiled_for(dims, factor, least)

    for shape in itertools.product((least, 11, 13), repeat=dims):
        image = torch.randn(1, 2, *shape)
        torch.testing.assert_close(compiled(image), model(image), rtol=1e-4, atol=1e-4)
    assert len(compiled.report.blocks) == 1


def test_a_fixed_size_that_stays_beside_a_dynamic_one_stays_in_pytorch():
    """The other dimension is interpolated, and no size of it stays."""
    model = torch.nn.Upsample(scale_factor=(1.1, 1.5), mode="bilinear", align_corners=False).eval()
    sizes = torchtrt.Input(min_shape=(1, 2, 7, 4), opt_shape=(1, 2, 7, 8), max_shape=(1, 2, 7, 9))
    with pytest.warns(UserWarning, match="No engine was built"):
        compiled = torchtrt.compile(model, [sizes])

    image = torch.randn(1, 2, 7, 9)
    torch.testing.assert_close(compiled(image), model(image))
