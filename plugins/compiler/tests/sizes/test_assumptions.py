"""Derived sizes of 0 and 1, such as those of ``x[1:]`` and of feature maps: ops assume that they are neither."""

import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError, SizeWarning

SEQUENCES = {
    "rows but the first": lambda x: x[1:] * 2,
    "differences": lambda x: x[1:] - x[:-1],
    "half of the rows": lambda x: x[: x.shape[0] // 2].softmax(0),
    "a chunk": lambda x: torch.cat([x[:1], x[1:].flip(0)]).cumsum(0),
    "a convolution": lambda x: F.conv1d(x.T[None], torch.ones(4, 4, 2))[0].T.relu(),
    "sums of rows": lambda x: x[1:].cumsum(0),
    "a write to every second row": lambda x: _written_in_steps(x[1:]),
    "a product without rows": lambda x: torch.einsum("ij,kj->ik", x, x[1:]),
    "a view of what is written": lambda x: _written(x),
}


def _written(x):
    y = x.clone()
    y[1:].reshape(-1).mul_(3)
    return y


def _written_in_steps(x):
    y = x.clone()
    y[::2].mul_(3)
    return y


def rows(least=1, most=12):
    """Returns an input of four columns."""
    return torchtrt.Input(min_shape=(least, 4), opt_shape=(6, 4), max_shape=(most, 4))


def compiled_without_warning(function, *inputs):
    """Returns a compiled function that takes all sizes which were asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SizeWarning)
        return torchtrt.compile(
            Function(function).eval(), inputs, min_block_size=1, require_full_compilation=True
        )


def check_refused(function, sizes, shapes, is_refused):
    """Checks that a compiled function warns, refuses some shapes, and returns eager results for the others."""
    with pytest.warns(SizeWarning):
        compiled = torchtrt.compile(Function(function).eval(), [sizes], min_block_size=1)
    for shape in shapes:
        x = torch.rand(shape)
        if is_refused(shape):
            with pytest.raises(InputError):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("name", SEQUENCES)
def test_sizes_for_which_a_derived_one_is_small_are_taken(name):
    function = SEQUENCES[name]
    least = 2 if name == "a convolution" else 1  # for which eager PyTorch raises
    compiled = compiled_without_warning(function, rows(least))
    for number in range(least, 13):
        x = torch.rand(number, 4)
        torch.testing.assert_close(compiled(x), function(x))


def test_images_whose_last_feature_map_is_one_pixel_are_taken():
    model = nn.Sequential(
        *(nn.Conv2d(3 if layer == 0 else 4, 4, 3, 2, 1) for layer in range(3)),
        nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    ).eval()  # fmt: skip
    images = torchtrt.Input(
        min_shape=(1, 3, 1, 1), opt_shape=(2, 3, 32, 32), max_shape=(3, 3, 40, 40)
    )
    compiled = compiled_without_warning(model, images)
    for batch, height, width in itertools.product((1, 3), (1, 2, 5, 8, 9, 16, 40), (1, 8, 33)):
        x = torch.rand(batch, 3, height, width)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (lambda x: x[1:].squeeze() + 1, {2}),
        (lambda x: x * 2 if x[1:].shape[0] == 1 else x * 3, {2}),
        (lambda x: F.conv1d(x.T[None], torch.ones(4, 4, 3)).squeeze(2), {3}),
    ],
    ids=["squeeze", "branch", "squeezed convolution"],
)
def test_sizes_for_which_an_op_does_otherwise_are_refused(function, refused):
    with pytest.warns(SizeWarning):
        compiled = torchtrt.compile(Function(function).eval(), [rows(2)], min_block_size=1)
    for number in range(2, 13):
        x = torch.rand(number, 4)
        if number in refused:
            with pytest.raises(InputError):
                compiled(x)
            continue
        try:
            expected = function(x)
        except RuntimeError:
            continue
        torch.testing.assert_close(compiled(x), expected)


def test_a_squeezed_map_is_refused_where_it_is_one_pixel():
    """Of a height of 1 or 2 beside a width of 1 or 2: each alone is taken."""

    def function(x):
        return F.conv2d(x, torch.ones(2, 1, 3, 3), stride=2, padding=1).flatten(2).squeeze(2)

    images = torchtrt.Input(min_shape=(2, 1, 1, 1), opt_shape=(2, 1, 8, 8), max_shape=(3, 1, 9, 9))
    shapes = [(2, 1, *sizes) for sizes in itertools.product(range(1, 10), repeat=2)]
    check_refused(function, images, shapes, lambda shape: max(shape[2:]) <= 2)


def test_a_pooled_diagonal_is_refused_where_it_is_one_element():
    """Where the smaller of two sizes is 1 or 2, whatever the other one is."""

    def function(x):
        return F.max_pool1d(x.tril().diagonal()[None], 3, 2, 1).squeeze(0).squeeze(0)

    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(5, 7), max_shape=(9, 9))
    shapes = list(itertools.product(range(1, 10), repeat=2))
    check_refused(function, sizes, shapes, lambda shape: min(shape) <= 2)


def test_a_size_that_a_condition_fixes_to_1_is_squeezed():
    """In the network it is still open."""

    def function(x):
        return F.conv1d(x[:2, None], torch.ones(1, 1, 2), stride=2).squeeze() * 2

    sizes = torchtrt.Input(min_shape=(2, 2), opt_shape=(5, 3), max_shape=(9, 9))
    with pytest.warns(SizeWarning):
        compiled = torchtrt.compile(Function(function).eval(), [sizes], min_block_size=1)
    for columns in (2, 3):
        x = torch.rand(4, columns)
        torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(InputError):
        compiled(torch.rand(4, 5))


def test_elements_that_pytorch_takes_for_granted_are_counted():
    """To PyTorch, two sizes have a product of 4 or more, and the first three elements are three."""

    def function(x):
        return torch.outer(x.flatten()[:3], x[0])

    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(5, 7), max_shape=(9, 9))
    shapes = list(itertools.product(range(1, 10), repeat=2))
    check_refused(function, sizes, shapes, lambda shape: math.prod(shape) < 3)


def test_elements_are_counted_where_another_size_is_small():
    """Two rows without the first are one, which other ops than the one that asked for three elements see."""

    def function(x):
        rows = x[1:]
        return torch.outer(rows.flatten()[:3], rows[0])

    sizes = torchtrt.Input(min_shape=(2, 1), opt_shape=(5, 7), max_shape=(9, 9))
    shapes = list(itertools.product(range(2, 10), range(1, 10)))
    check_refused(function, sizes, shapes, lambda shape: (shape[0] - 1) * shape[1] < 3)


def test_elements_are_counted_where_an_op_asked_for_more_rows():
    """To PyTorch, which then takes five rows or more for granted, there are four elements or more."""

    def function(x):
        rows = torch.broadcast_to(x[:1], x.shape)[1:][::3].T
        return torch.outer(rows.flatten()[:3], rows[0])

    sizes = torchtrt.Input(min_shape=(2, 1), opt_shape=(5, 7), max_shape=(9, 9))
    shapes = list(itertools.product(range(2, 10), range(1, 10)))
    check_refused(function, sizes, shapes, lambda shape: (shape[0] + 1) // 3 * shape[1] < 4)


def test_small_sizes_are_tried_in_long_ranges():
    """The one length of which a row is left is far from both ends of the range."""

    def function(x):
        return x[5000:].squeeze() * 2

    rows = torchtrt.Input(min_shape=(2, 2), opt_shape=(9000, 2), max_shape=(2**17, 2))
    shapes = [(number, 2) for number in (5001, 5002, 5003, 2**17)]
    check_refused(function, rows, shapes, lambda shape: shape[0] == 5001)


def test_pytorch_logs_no_traceback_of_what_compiles(caplog):
    """It cannot simplify the conditions of such a reshape, and goes on without."""
    sizes = torchtrt.Input(min_shape=(2, 8), opt_shape=(4, 8), max_shape=(16, 8))
    model = Function(lambda x: x.reshape(-1, 2, 8).sum(1).cumsum(0)).eval()
    compiled = compiled_without_warning(model, sizes)
    assert not [record for record in caplog.records if record.exc_info]
    for number in (2, 4, 16):
        x = torch.rand(number, 8)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_check_of_an_op_that_is_on_no_size_is_kept():
    """Padding by reflection takes more columns than it adds, and no size of it is small at that limit."""

    def function(x):
        return F.pad(x[None], (4, 4), mode="reflect")[0]

    sizes = torchtrt.Input(min_shape=(2, 1), opt_shape=(3, 9), max_shape=(4, 12))
    shapes = [(3, columns) for columns in range(1, 13)]
    check_refused(function, sizes, shapes, lambda shape: shape[1] <= 4)
