"""The sizes that engines are built for, from expressions of symbols."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError
from torchtrt_runtime.size_ranges import profile_input, size_bounds


@pytest.fixture
def symbolic():
    """A fake tensor of shape (s, t), both sizes symbolic."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
    return mode.from_tensor(torch.ones(6, 10), symbolic_context=context)


def ranges(tensor, *bounds):
    """Returns ranges for the symbols of a tensor's sizes."""
    return {
        size.node.expr: SizeRange(*bound) for size, bound in zip(tensor.shape, bounds, strict=True)
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda s, t: s, (1, 4, 8)),
        (lambda s, t: s * 2 + 1, (3, 9, 17)),
        (lambda s, t: s * t, (2, 40, 160)),
        (lambda s, t: t // 3, (0, 3, 6)),
        (lambda s, t: 30 - t, (10, 20, 28)),
        (lambda s, t: s + t, (3, 14, 28)),
        (lambda s, t: s % 4, (0, 0, 3)),
        (lambda s, t: (4 - s % 4) % 4, (0, 0, 3)),
        (lambda s, t: (t - 6) * (t - 6) + 1, (1, 17, 197)),
        (lambda s, t: s + t % 3, (1, 5, 10)),
        (lambda s, t: t // (s - 1), (0, 3, 20)),
    ],
)
def test_a_size_is_bounded_by_its_symbols(symbolic, expression, expected):
    """Minimum, optimal and maximum hold for growing, shrinking and other expressions, where they have a value."""
    s, t = symbolic.shape
    bounds = ranges(symbolic, (1, 4, 8), (2, 10, 20))

    assert expected == size_bounds(expression(s, t), bounds)


def test_bounds_of_wide_ranges_are_near(symbolic):
    """A remainder changes from each size to the next."""
    s, t = symbolic.shape
    bounds = ranges(symbolic, (1, 4, 8192), (2, 10, 8192))

    assert (3, 7, 10) == size_bounds(s % 8 + 3, bounds)
    assert (1, 2, 4096) == size_bounds(s - s // 2, bounds)
    assert size_bounds(s * t + s % 2, bounds).max >= 8192 * 8192


def test_a_size_without_a_value_is_an_error(symbolic):
    """Eager PyTorch divides by zero."""
    s, t = symbolic.shape
    with pytest.raises(InputError, match="has no value where"):
        size_bounds(t // (s - 1), ranges(symbolic, (1, 1, 1), (2, 3, 4)))


def test_fixed_sizes_are_their_own_bounds():
    """A number has no range."""
    assert (7, 7, 7) == size_bounds(7, {})


def test_a_symbol_without_a_range_is_an_error(symbolic):
    """An engine cannot be built for a size without bounds."""
    with pytest.raises(InputError, match="which no input bounds"):
        size_bounds(symbolic.shape[0], {})


def test_a_profile_marks_the_sizes_that_vary(symbolic):
    """The engine's shape has -1 exactly where the size is symbolic."""
    value = symbolic.new_empty(symbolic.shape[0], 5)

    profile = profile_input("x", value, [ranges(symbolic, (1, 4, 8), (2, 10, 20))])

    assert (-1, 5) == profile.shape
    assert (((1, 4, 8), (5, 5, 5)),) == profile.profiles
