"""Tensors that are neither parameters nor buffers: their numbers are a part of the program, and it writes to none."""

import math

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import EngineError, UnsupportedProgramError


class Scaled(nn.Module):
    """A layer, and tensors that are plain attributes."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale, self.count = torch.tensor(3.0), torch.tensor(2)
        self.several = [torch.ones(4)]
        self.function = function

    def forward(self, x):
        """What the function returns for the layer's result."""
        return self.function(self, self.linear(x))


def as_number(model, y):
    """Multiplies by a number."""
    return y * float(model.scale)


def by_item(model, y):
    """Multiplies by a number."""
    return y * model.scale.item()


def from_list(model, y):
    """Multiplies by an element of a list."""
    return y * model.several[0].tolist()[1]


def as_limit(model, y):
    """Takes so many columns: PyTorch reads the number."""
    return y[:, : model.count]


def by_math(model, y):
    """Multiplies by a root."""
    return y * math.sqrt(model.scale)


READING = [as_number, by_item, from_list, as_limit, by_math]


@pytest.mark.parametrize("function", READING)
def test_a_number_of_a_tensor_is_watched(function):
    """The program has the number, and PyTorch would read another one."""
    model, x = Scaled(function).eval(), torch.rand(2, 4)
    with torch.no_grad():
        compiled = torchtrt.compile(model, [x], min_block_size=1)
        torch.testing.assert_close(compiled(x), model(x))
        for tensor in (model.scale, model.count, *model.several):
            tensor.add_(1)
        with pytest.raises(EngineError, match="has changed since"):
            compiled(x)


@pytest.mark.parametrize("function", READING)
def test_engines_that_get_weights_need_tensors_for_numbers(function):
    """A refit replaces no number in a program."""
    with pytest.raises(UnsupportedProgramError, match="reads a number from a tensor"):
        torchtrt.compile(
            Scaled(function).eval(), [torch.rand(2, 4)], min_block_size=1, immutable_weights=False
        )


def adding(model, y):
    """Writes to a tensor in a list."""
    model.several[0].add_(1)
    return y * model.several[0]


def assigning(model, y):
    """Writes to an element."""
    model.several[0][1] = 5
    return y * model.several[0]


def counting(model, y):
    """Writes to an attribute."""
    model.count += 1
    return y * model.count


@pytest.mark.parametrize("function", [adding, assigning, counting])
def test_a_write_to_such_a_tensor_is_refused_before_it_happens(function):
    """Exporting would do it once, and no call of the program again."""
    model = Scaled(function).eval()
    with pytest.raises(UnsupportedProgramError, match=r"writes to a tensor .*test_python_reads"):
        torchtrt.compile(model, [torch.rand(2, 4)], min_block_size=1)
    assert torch.equal(torch.ones(4), model.several[0])
    assert 2 == model.count


def test_another_tensor_in_the_place_of_an_attribute_is_a_change():
    """As it is for parameters and buffers."""
    model, x = Scaled(lambda model, y: y * model.scale).eval(), torch.rand(2, 4)
    with torch.no_grad():
        compiled = torchtrt.compile(model, [x], min_block_size=1)
        model.scale = torch.tensor(5.0)
        with pytest.raises(EngineError, match="'scale' has changed"):
            compiled(x)


def test_another_buffer_in_the_place_of_one_that_calls_write_to_is_a_change():
    """The graph would go on with the old one."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    model, x = Counting().eval(), torch.rand(2, 4)
    with torch.no_grad():
        compiled = torchtrt.compile(model, [x], min_block_size=1)
        for _ in range(2):
            compiled(x)
        model.count.zero_()
        torch.testing.assert_close(compiled(x), x)
        model.count = torch.zeros(4)
        with pytest.raises(EngineError, match="'count' has changed"):
            compiled(x)
