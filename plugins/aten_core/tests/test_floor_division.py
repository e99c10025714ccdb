"""A size divided by a fraction is Python's, also where PyTorch rounds its quotient up before it rounds it down."""

import math

import pytest
import torch

from tests.support.modules import Function
from torchtrt import Input, compile


@pytest.mark.each_tensorrt
@pytest.mark.parametrize("divisor", [0.1, 0.3, 0.7, -0.1, 1e-3, 2.5])
def test_a_size_is_divided_as_python_does(divisor):
    """As a number, and as a size: ``7 // 0.1`` is 69."""

    def function(x):
        quotient = x.shape[0] // divisor
        return x.relu() * quotient, x.new_ones(abs(math.floor(quotient)) + 2)

    rows = Input(min_shape=(1, 2), opt_shape=(7, 2), max_shape=(300, 2))
    compiled = compile(Function(function).eval(), [rows], min_block_size=1)

    for count in (1, 2, 3, 7, 10, 49, 256, 300):
        x = torch.ones(count, 2)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_size_is_divided_as_before_behind_the_export():
    """The method of PyTorch's class is its own again."""
    before = torch.SymInt.__floordiv__
    rows = Input(min_shape=(1,), opt_shape=(7,), max_shape=(9,))
    compile(Function(lambda x: x.relu() * (x.shape[0] // 0.1)).eval(), [rows], min_block_size=1)
    assert torch.SymInt.__floordiv__ is before
