"""The maximum of windows of nothing but -inf is -inf, at no cost where no -inf can come in."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.support.versions import since
from torchtrt import Input, compile
from torchtrt.testing import TensorSpec, op_case, run_compiled
from torchtrt_testing.checking import check_where_exact

from .test_pack import Function, compile_everything, layers

INF, NAN = torch.inf, torch.nan
EMPTY = [[-INF, -INF, 1.0, -INF], [-INF, -INF, -INF, 2.0]]


def windows(dtype, *before):
    """Returns an image of two by two windows: nothing but -inf on the left, and something on the right."""
    return TensorSpec(values=torch.tensor(EMPTY).expand(*before, 2, 4).tolist(), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("function", "before", "arguments"),
    [
        (F.max_pool1d, (1,), (2,)),
        (F.max_pool1d, (1,), (3, 1, 1)),
        (F.max_pool2d, (1, 1), (2,)),
        (F.max_pool2d, (1,), (3, 1, 1)),
        (F.max_pool2d, (1, 1), (3, 2, 1, 1, True)),
        (F.max_pool3d, (1, 1, 2), (2,)),
        (F.adaptive_max_pool1d, (1,), (2,)),
        (F.adaptive_max_pool2d, (1, 1), ((1, 2),)),
        (F.adaptive_max_pool3d, (1, 1, 2), ((1, 1, 2),)),
        (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], (1, 1), ()),
    ],
)
def test_a_window_of_nothing_but_minus_infinity_is_minus_infinity(
    version, function, before, arguments, dtype
):
    """As in PyTorch, in every dtype, also where the padding takes part."""
    check_where_exact(op_case((), windows(dtype, *before), *arguments, function=function))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_lowest_finite_number_is_told_from_minus_infinity(version, dtype):
    """As a mask puts it in; so are its neighbours."""
    lowest = torch.finfo(dtype).min
    rows = [[lowest, lowest, -INF, -INF, -INF, lowest, lowest / 2, -INF]]
    image = TensorSpec(values=[[rows]], dtype=dtype)
    check_where_exact(op_case((), image, (1, 2), function=F.max_pool2d))


def test_windows_beside_nan_are_as_they_are(version):
    """What TensorRT makes of NaN stays in its own window."""
    image = torch.tensor([[[[NAN, 1.0, -INF, -INF, 5.0, -2.0]]]])
    compiled = compile_everything(Function(lambda x: F.max_pool2d(x, (1, 2))).eval(), image)
    assert run_compiled(compiled, image).flatten().tolist()[1:] == [-INF, 5.0]


def with_indices(pool, *arguments, **options):
    """Returns a function that gives maxima and their indices, of windows with several NaN and equal numbers."""

    def function(x):
        image = torch.where(x > 1.2, NAN, torch.round(x))
        return pool(image, *arguments, return_indices=True, **options)[:2]

    return function


WITH_INDICES = [
    with_indices(F.max_pool2d, 3, 1, 1),
    with_indices(F.max_pool2d, 2, dilation=2),
    with_indices(F.max_pool3d, 2),
    with_indices(F.adaptive_max_pool2d, (3, 4)),
]
RANDOM = with_indices(F.fractional_max_pool2d, 2, 3, _random_samples=torch.full((1, 2, 2), 0.5))


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("function", [*WITH_INDICES, RANDOM])
def test_the_index_of_nan_is_that_of_the_last(function):
    """Of equal numbers it is that of the first."""
    check_where_exact(op_case((), "1 2 6 6", function=function))


@since("2.13", "refuses named dimensions that windows may not divide")
@pytest.mark.parametrize("function", WITH_INDICES)
def test_the_index_of_nan_in_a_dynamic_image_is_that_of_the_last(version, function):
    """As in one whose sizes are fixed."""
    lengths = {"height": (5, 6, 9), "width": (5, 7, 8)}
    check_where_exact(op_case((), "1 2 height width", function=function, dimensions=lengths))


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
@pytest.mark.parametrize("window", [(2, 2, 0), (3, 3, 0), ((5, 3), (3, 2), (2, 1))], ids=str)
def test_a_window_may_be_larger_than_a_dynamic_image_whose_windows_are_rounded_up(pool, window):
    """The last window has what is left, also where it is the only one."""
    without_padding = {} if pool is F.max_pool2d else {"count_include_pad": False}
    function = functools.partial(
        pool,
        kernel_size=window[0],
        stride=window[1],
        padding=window[2],
        ceil_mode=True,
        **without_padding,
    )
    images = Input(min_shape=(1, 2, 1, 1), opt_shape=(1, 2, 8, 8), max_shape=(1, 2, 9, 9))
    compiled = compile(Function(function).eval(), [images], min_block_size=1)
    assert not compiled.report.in_torch
    assert not compiled.report.narrowed

    for height, width in itertools.product((1, 2, 3, 4, 8, 9), repeat=2):
        x = torch.randn(1, 2, height, width)
        torch.testing.assert_close(run_compiled(compiled, x), function(x))


@pytest.mark.parametrize(
    "before",
    [
        torch.relu,
        F.relu6,
        torch.sigmoid,
        F.hardtanh,
        F.silu,
        lambda x: x.clamp(min=-5),
        lambda x: x.clamp(min=torch.finfo(torch.float32).min),
        lambda x: torch.cat([torch.relu(x), torch.sigmoid(x)], 1),
        lambda x: F.max_pool2d(torch.relu(x), 3, 1, 1),
        lambda x: F.max_pool2d(torch.relu(x), 2, return_indices=True)[0],
    ],
)
@pytest.mark.parametrize("pool", [F.max_pool2d, F.adaptive_max_pool2d])
def test_a_pool_that_cannot_meet_minus_infinity_is_one_layer(before, pool):
    """What has a limit below is pooled by the pooling layer alone, through other pools and concatenation too."""
    x = torch.randn(1, 2, 8, 8)
    assert layers(lambda x: pool(before(x), 2), x) == layers(before, x) + 1


@pytest.mark.parametrize(
    "before",
    [
        F.leaky_relu,
        lambda x: x.clamp(max=5),
        lambda x: x.clamp(min=-INF),
        lambda x: x.clamp(min=0, max=-INF),
        lambda x: x.clamp(min=x.amin()),
        lambda x: torch.cat([torch.relu(x), x], 1),
        lambda x: F.max_pool2d(x, 3, 1, 1),
    ],
)
def test_a_pool_that_can_meet_minus_infinity_gives_it(version, before):
    """A limit above or infinite or unknown, one part of several, a pool of anything."""
    case = op_case((), windows(torch.float32, 1, 1), function=lambda x: F.max_pool2d(before(x), 2))
    check_where_exact(case)


def test_pools_of_pools_are_looked_through_once():
    """However many ways lead back to what limits them."""

    def pyramid(x):
        x = torch.relu(x)
        for _ in range(24):
            x = F.max_pool2d(torch.cat([F.max_pool2d(x, 1), F.max_pool2d(x, 3, 1, 1)], 2), (2, 1))
        return x

    assert layers(pyramid, torch.randn(1, 1, 4, 4)) == 1 + 24 * 4
