"""A compiled model is called like the model: by place and by name, with defaults, with dictionaries in any order."""

import pickle

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import InputError

X, Y = torch.rand(2, 4), torch.rand(2, 4)


class Masked(nn.Module):
    """Arguments with defaults."""

    def forward(self, x, mask=None, scale=2.0):
        """Scales, or masks."""
        return x * scale if mask is None else x - mask


class Difference(nn.Module):
    """A dictionary."""

    def forward(self, pair):
        """The first less the second."""
        return pair["a"] - pair["b"]


class Several(nn.Module):
    """As many as there are, and others by any name."""

    def forward(self, *values, **more):
        """All of them."""
        return values[0] - values[1] + more["p"] / more["q"]


class Collecting(nn.Module):
    """Takes what it does not name, as models of transformers do."""

    def forward(self, x, **more):
        """Twice the input, or the factor that is given."""
        return x * more.get("factor", 2)


def compiled_as(model, *inputs, **kwargs):
    """Returns the model, compiled with these inputs."""
    return torchtrt.compile(model.eval(), inputs, kwarg_inputs=kwargs, min_block_size=1)


def test_pytorchs_own_names_are_taken():
    """A module's parameter ``input`` is one that exporting renames."""
    for model in (nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())):
        torch.testing.assert_close(compiled_as(model, X)(input=X), model(input=X))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X, None), {}),
        ((X, None, 2.0), {}),
        ((X,), {"scale": 2.0}),
        ((), {"mask": None, "x": X}),
    ],
)
def test_defaults_may_be_given(args, kwargs):
    """What is compiled in may be given again."""
    model = Masked()
    torch.testing.assert_close(compiled_as(model, X)(*args, **kwargs), model(*args, **kwargs))


@pytest.mark.parametrize(
    "arguments", [((X, Y), {}), ((X,), {"mask": Y}), ((), {"x": X, "mask": Y})]
)
@pytest.mark.parametrize("called", [((X, Y), {}), ((X,), {"mask": Y}), ((), {"mask": Y, "x": X})])
def test_by_place_or_by_name_is_one(arguments, called):
    """However the model was compiled."""
    model = Masked()
    compiled = compiled_as(model, *arguments[0], **arguments[1])
    torch.testing.assert_close(compiled(*called[0], **called[1]), X - Y)


def test_dictionaries_are_taken_in_any_order():
    """By their keys."""
    compiled = compiled_as(Difference(), {"a": X, "b": Y})
    torch.testing.assert_close(compiled({"b": Y, "a": X}), X - Y)
    torch.testing.assert_close(compiled(pair={"b": Y, "a": X}), X - Y)


def test_collected_arguments_are_taken():
    """``*args`` and ``**kwargs`` of ``forward``; the signature survives pickling."""
    model = Several()
    compiled = compiled_as(model, X, Y, p=X, q=Y + 1)
    expected = model(X, Y, q=Y + 1, p=X)
    torch.testing.assert_close(compiled(X, Y, q=Y + 1, p=X), expected)
    signature = pickle.loads(pickle.dumps(compiled.signature))
    assert signature.arrange((X, Y), {"q": Y, "p": X}) == ((X, Y), {"p": X, "q": Y})


@pytest.mark.parametrize(
    ("args", "kwargs", "match"),
    [
        (
            (X,),
            {"scale": 3.0},
            r"'scale' was not given when .* default \(scale=2.0\) is compiled in",
        ),
        ((X, Y), {}, r"'mask' was not given when .* default \(mask=None\)"),
        ((), {"y": X}, r"issing a required argument: 'x': the model takes \(x, mask=None"),
        ((X,), {"foo": 1}, "ot an unexpected keyword argument 'foo'"),
    ],
)
def test_what_the_model_would_not_take_or_not_alike_is_an_error(args, kwargs, match):
    """It says what is wrong with which argument."""
    with pytest.raises(InputError, match=match):
        compiled_as(Masked(), X)(*args, **kwargs)


def test_an_argument_that_is_collected_is_named_where_it_was_not_given():
    """By its own name, and not by that of what collects it."""
    with pytest.raises(InputError, match=r"'factor' was not given .*\(\*\*more\) is compiled in"):
        compiled_as(Collecting(), X)(X, factor=3)


@pytest.mark.parametrize("pair", [{"a": X}, {"a": X, "b": Y, "c": X}, {"a": X, "z": Y}, [X, Y], X])
def test_what_nests_otherwise_is_an_error(pair):
    """It names the inputs."""
    with pytest.raises(InputError, match="pair_a, pair_b"):
        compiled_as(Difference(), {"a": X, "b": Y})(pair)
