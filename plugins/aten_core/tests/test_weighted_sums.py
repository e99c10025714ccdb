"""What is NaN or infinite reaches the results whose windows have it, and no others."""

import pytest
import torch
import torch.nn.functional as F

from torchtrt.testing import TensorSpec, op_case
from torchtrt_testing.checking import check_where_exact

from .test_pack import layers

INF, NAN = torch.inf, torch.nan


def picture(height, width, dtype=torch.float32):
    """Returns an image with NaN in one channel and infinities in another."""
    image = torch.randn(1, 2, height, width, generator=torch.Generator().manual_seed(0))
    image[0, 0, 2, 3] = NAN
    image[0, 1, 0, 0], image[0, 1, -1, -1] = INF, -INF
    return TensorSpec(values=image.to(dtype))


def resized(size, mode, **options):
    """Returns a function that resizes an image."""
    return lambda x: F.interpolate(x, size=size, mode=mode, **options)


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        resized((3, 4), "area"),
        resized((2, 2), "area"),
        lambda x: F.adaptive_avg_pool2d(x, (5, 1)),
        lambda x: F.adaptive_avg_pool2d(x, (13, 4)),
        lambda x: F.adaptive_avg_pool1d(x.flatten(0, 1), 4),
        lambda x: F.adaptive_avg_pool3d(x.unsqueeze(2), (2, 3, 5)),
    ],
)
def test_averages_of_unequal_parts_read_their_own_elements(version, function, dtype):
    """A part of a dimension has fewer elements than another, and both have an element of neighbors."""
    check_where_exact(op_case((), picture(11, 29, dtype), function=function))


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(2, 2), (3, 4), (5, 7), (9, 9), (14, 20), (7, 4)])
def test_smooth_images_read_their_own_elements(version, mode, size):
    """Of many elements and of few, where one size stays as well."""
    function = resized(size, mode, antialias=True)
    check_where_exact(op_case((), picture(7, 9), function=function), varying=False)


@pytest.mark.parametrize("height", [4, 9])
def test_an_image_of_one_column_becomes_what_pytorch_makes_of_it(version, height):
    """PyTorch 2.13 repeats its first row."""
    function = resized((height, 1), "bilinear", antialias=True)
    check_where_exact(op_case((), "2 3 7 1", function=function))


@pytest.mark.each_tensorrt
@pytest.mark.parametrize(
    ("mode", "factors"),
    [
        ("bilinear", (0.6, 1.7)),
        ("bilinear", (1.0, 0.6)),
        ("nearest", (0.6, 1.7)),
        ("nearest-exact", (0.6, 1.7)),
        ("bicubic", (0.6, 1.7)),
        ("bicubic", (1.0, 1.7)),
    ],
)
def test_images_by_a_factor_read_their_own_elements(version, mode, factors):
    """Elements without weight among them, as in eager PyTorch: of NaN they make NaN."""
    image = picture(7, 9)
    image.values[image.values.isinf()] = NAN
    case = op_case((), image, function=lambda x: F.interpolate(x, scale_factor=factors, mode=mode))
    check_where_exact(case, varying=False)


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("mode", ["linear", "bilinear", "trilinear"])
def test_what_keeps_its_size_reads_no_neighbors(version, mode):
    """Beside a dimension that a factor changes, and where all vary."""
    count = {"linear": 1, "bilinear": 2, "trilinear": 3}[mode]
    factors = [1.0, *[1.6] * (count - 1)]

    def function(x, y):
        image = torch.where(x > 2.9, NAN, x) if count > 1 else torch.where(x > 2.9, INF, x)
        del y
        return F.interpolate(image.clamp(max=5), scale_factor=factors, mode=mode)

    case = op_case((), f"1 2{' length' * count}", "length", function=function)
    check_where_exact(case)


@pytest.mark.parametrize(
    ("size", "length", "count"), [(8, 32, 3), (16, 17, 9), (5, 11, 14), (5, 19, 5), (7, 224, 3)]
)
def test_averages_of_unequal_parts_are_few_layers(size, length, count):
    """Two, three and more than four elements: constants count, and two reshapes around a pooling layer."""
    x = torch.rand(2, 3, length)
    assert layers(lambda x: F.adaptive_avg_pool1d(x, size), x) == count
