"""Input: ranges of shapes."""

import pytest
import torch

import torchtrt
from torchtrt.errors import InputError
from torchtrt_compiler.inputs import Input


def test_a_fixed_shape_has_no_dynamic_dimensions():
    """``shape`` alone fixes every size."""
    assert Input(shape=(2, 3)).dynamic_dims() == {}


def test_only_sizes_that_vary_are_dynamic():
    """Dimensions with min == max stay static."""
    spec = Input(min_shape=(1, 8), opt_shape=(4, 8), max_shape=(16, 8))

    assert [0] == list(spec.dynamic_dims())


def test_the_example_avoids_sizes_that_exporting_treats_specially():
    """An optimal size of 1 is exported with 2, so that the size stays symbolic."""
    spec = Input(min_shape=(1, 1), opt_shape=(1, 1), max_shape=(8, 1), dtype=torch.int64)

    example = spec.example(torch.device("cpu"))

    assert (2, 1) == tuple(example.shape)
    assert example.dtype is torch.int64


def test_several_ranges_are_exported_as_one():
    """From the least to the greatest size of all, with an example of the first."""
    spec = Input(ranges=[((4, 8, 3), (4, 12, 3), (4, 16, 3)), ((1, 1, 3), (2, 1, 3), (8, 1, 3))])

    assert ((1, 1, 3), (4, 12, 3), (8, 16, 3)) == spec.bounds
    assert [0, 1] == list(spec.dynamic_dims())
    assert (4, 12, 3) == tuple(spec.example(torch.device("cpu")).shape)
    assert [((4, 8, 3), (4, 12, 3), (4, 16, 3)), ((1, 1, 3), (2, 1, 3), (8, 1, 3))] == [
        spec.in_profile(number) for number in (0, 1)
    ]


def test_one_range_is_that_of_every_profile():
    """However many another input has."""
    spec = Input(min_shape=(1,), opt_shape=(4,), max_shape=(16,))

    assert spec.in_profile(0) == spec.in_profile(7) == ((1,), (4,), (16,))


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"shape": (1,), "min_shape": (1,)},
        {"min_shape": (1,), "max_shape": (2,)},
        {"min_shape": (4,), "opt_shape": (2,), "max_shape": (8,)},
        {"min_shape": (1,), "opt_shape": (9,), "max_shape": (8,)},
        {"min_shape": (1,), "opt_shape": (1, 2), "max_shape": (8, 2)},
        {"min_shape": (-1,), "opt_shape": (1,), "max_shape": (8,)},
        {"shape": (1,), "ranges": [((1,),) * 3]},
        {"min_shape": (1,), "opt_shape": (1,), "max_shape": (1,), "ranges": [((1,),) * 3]},
        {"ranges": []},
        {"ranges": [((1,), (2,))]},
        {"ranges": [((1,),) * 3, ((1, 1),) * 3]},
        {"ranges": [((1,),) * 3, ((4,), (2,), (8,))]},
        {"ranges": [3]},
        {"ranges": 3},
    ],
    ids=str,
)
def test_inconsistent_shapes_are_refused(keywords):
    """Min <= opt <= max, of equal rank, or one shape."""
    with pytest.raises(InputError, match="Input"):
        Input(**keywords)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"shape": 3}, "min_shape=3. Give a sequence of integers"),
        ({"shape": "ab"}, "Give a sequence of integers"),
        ({"shape": (1.5, 2)}, "Give a sequence of integers"),
        ({"shape": (1, 2), "dtype": "float32"}, "dtype='float32'. Give a torch.dtype"),
        ({"shape": (1, 2), "dtype": None}, "dtype=None. Give a torch.dtype"),
    ],
    ids=str,
)
def test_what_is_no_shape_and_no_dtype_is_refused(keywords, message):
    """When the Input is made, with what to write instead."""
    with pytest.raises(InputError, match=message):
        Input(**keywords)


def test_an_optimal_shape_without_memory_for_it_is_refused():
    """The model is exported with a tensor of this shape."""
    rows = Input(min_shape=(1, 4), opt_shape=(2**60, 4), max_shape=(2**61, 4))
    with pytest.raises(InputError, match=r"optimal shape .* on cpu: .*Give an opt_shape that"):
        torchtrt.compile(torch.nn.Linear(4, 4).eval(), [rows])


def test_sizes_may_be_of_any_integer_type():
    """What counts as an integer in Python counts here."""
    assert ((2, 3),) * 3 == Input(torch.empty(2, 3).shape).bounds
    assert (1, 2) == Input(torch.tensor([1, 2])).min_shape


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"shape": (-1, 3)}, "size cannot be negative.*give its minimum, optimum and maximum"),
        ({"min_shape": (1,), "opt_shape": (1, 2), "max_shape": (8, 2)}, "one rank"),
        ({"min_shape": (4,), "opt_shape": (2,), "max_shape": (8,)}, "min <= opt <= max"),
    ],
)
def test_each_mistake_in_shapes_has_its_own_message(keywords, message):
    with pytest.raises(InputError, match=message):
        Input(**keywords)
