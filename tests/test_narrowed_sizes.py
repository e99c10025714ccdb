"""Sizes that a model takes in a smaller range than was requested: reported when it is compiled."""

import json
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import InputError


class SlicedFromTheEnd(nn.Module):
    """PyTorch exports one program for at least eight elements, another below."""

    def forward(self, x):
        """The rows without the first and the last ones, every other."""
        return x[:, -8:-2:2] + 1


class Guarded(nn.Module):
    """A check of a size."""

    def forward(self, x):
        """At most 100 rows."""
        if x.size(0) > 100:
            raise ValueError
        return x + 1


class Sum(nn.Module):
    """Two inputs whose sizes must be equal."""

    def forward(self, x, y):
        """The sum."""
        return x + y


def rows(minimum, maximum):
    """Returns an input with rows of two that vary in number."""
    return torchtrt.Input(min_shape=(minimum, 2), opt_shape=(8, 2), max_shape=(maximum, 2))


CASES = [
    pytest.param(
        SlicedFromTheEnd,
        [torchtrt.Input(min_shape=(3, 2), opt_shape=(3, 9), max_shape=(3, 10))],
        ("x", 1, (2, 10), (8, 10)),
        id="slice",
    ),
    pytest.param(Guarded, [rows(1, 200)], ("x", 0, (1, 200), (1, 100)), id="guard"),
    pytest.param(Sum, [rows(1, 10), rows(3, 8)], ("x", 0, (1, 10), (3, 8)), id="equal"),
]


@pytest.mark.parametrize(("model", "inputs", "expected"), CASES)
def test_a_narrowed_size_is_a_warning_and_in_the_report(model, inputs, expected):
    """It has the input, the dimension, the requested range and the compiled one."""
    with pytest.warns(UserWarning, match="You asked for") as caught:
        compiled = torchtrt.compile(model().eval(), inputs, min_block_size=1)

    (narrowed,) = compiled.report.narrowed
    assert (narrowed.input, narrowed.dim, narrowed.asked, narrowed.compiled) == expected
    assert caught[0].filename == __file__
    assert json.loads(json.dumps(compiled.report.to_json()))["narrowed"][0]["dim"] == expected[1]


@pytest.mark.parametrize(("model", "inputs", "expected"), CASES)
def test_full_compilation_is_of_all_sizes_asked_for(model, inputs, expected):
    """Otherwise it is an error, and the range that it names is accepted."""
    with pytest.raises(InputError, match=f"Engines are for {expected[3][0]} to {expected[3][1]}"):
        torchtrt.compile(model().eval(), inputs, min_block_size=1, require_full_compilation=True)


def test_the_line_of_the_model_is_told():
    """A check of a size that the model makes itself."""
    with pytest.raises(InputError, match=r"test_narrowed_sizes.py\", line \d+, in forward"):
        torchtrt.compile(Guarded().eval(), [rows(1, 200)], require_full_compilation=True)


def test_what_is_as_asked_for_is_not_mentioned():
    """A range that starts at 1, and the range that the message names."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for inputs in ([rows(1, 100)], [rows(2, 50)]):
            compiled = torchtrt.compile(
                Guarded().eval(), inputs, min_block_size=1, require_full_compilation=True
            )
            assert not compiled.report.narrowed
            x = torch.rand(inputs[0].max_shape)
            assert torch.equal(compiled(x), x + 1)
