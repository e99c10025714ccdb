"""The nearest elements are PyTorch's, which rounds positions in float32, where the exact ratio is another element's."""

import pytest
import torch
import torch.nn.functional as F

from tests.support.modules import Function
from torchtrt import Input, compile
from torchtrt.testing import op_case
from torchtrt_testing.checking import check_where_exact

from .test_pack import layers

MODES = ["nearest", "nearest-exact"]
PAIRS = [(4, 41), (2, 82), (2, 61), (62, 224), (24, 47)]


def image(height, dtype=torch.float32):
    """Returns an image whose rows differ."""
    return torch.arange(height * 3.0).reshape(1, 1, height, 3).to(dtype)


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("height", "wanted"), PAIRS)
def test_fixed_sizes_give_the_rows_of_pytorch(version, mode, height, wanted):
    """By a size, and by a factor."""

    def function(x):
        by_factor = F.interpolate(x, scale_factor=(wanted / height, 1.0), mode=mode)
        volume = F.interpolate(x[None], size=(2, wanted, 5), mode=mode)
        return F.interpolate(x, size=(wanted, 5), mode=mode), by_factor, volume

    case = op_case((), f"2 1 {height} 3", function=function)
    check_where_exact(case)


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sizes_of_another_input_give_the_rows_of_pytorch(mode, dtype):
    """Of any pair within the ranges."""
    rows = Input(
        min_shape=(1, 1, 1, 3), opt_shape=(1, 1, 24, 3), max_shape=(1, 1, 70, 3), dtype=dtype
    )
    like = Input(min_shape=(1,), opt_shape=(47,), max_shape=(230,))

    def function(x, y):
        return F.interpolate(x, size=(y.shape[0], 5), mode=mode)

    compiled = compile(Function(function).eval(), [rows, like], require_full_compilation=True)

    for height, wanted in (*PAIRS, (1, 1), (1, 230), (70, 1), (7, 14)):
        x, y = image(height, dtype), torch.zeros(wanted)
        torch.testing.assert_close(compiled(x, y), function(x, y), rtol=0, atol=0)


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("mode", MODES)
def test_a_size_computed_from_a_size_gives_the_rows_of_pytorch(mode):
    """For ``2 * size - 1``, the exact ratio has other elements for 24, 28, 50 and more."""
    rows = Input(min_shape=(1, 1, 2, 3), opt_shape=(1, 1, 24, 3), max_shape=(1, 1, 60, 3))

    def function(x):
        return F.interpolate(x, size=(2 * x.shape[2] - 1, 5), mode=mode)

    compiled = compile(Function(function).eval(), [rows], require_full_compilation=True)

    for height in (2, 7, 24, 28, 50, 54, 60):
        assert torch.equal(compiled(image(height)), function(image(height)))


@pytest.mark.parametrize("mode", MODES)
def test_usual_sizes_are_one_layer(mode):
    """Fixed sizes, twice and half the size."""
    x = torch.rand(1, 2, 20, 30)
    assert layers(lambda x: F.interpolate(x, size=(40, 60), mode=mode), x) == 1
    assert layers(lambda x: F.interpolate(x, size=(33, 7), mode=mode), x) == 1
    dynamic = {"inputs": ({2: torch.export.Dim("height", min=4, max=1000)},)}
    twice = layers(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x, dynamic=dynamic)
    assert twice == layers(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x, dynamic=dynamic
    )
