"""Ops over a size that is a number in the program, although TensorRT computes it from sizes of inputs."""

import pytest
import torch
import torch.nn.functional as F

import torchtrt
from tests.support.modules import Function

OPS = {
    "averages of equal parts": lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 3),
    "averages of unequal parts": lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 4),
    "maxima": lambda x: F.adaptive_max_pool1d(x.transpose(1, 2), 3),
    "a convolution": lambda x: F.conv1d(x, torch.ones(4, 6, 3)),
    "layer normalization": lambda x: F.layer_norm(x.transpose(1, 2), (6,)),
    "group normalization": lambda x: F.group_norm(x, 3),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.transpose(1, 2)[:, None]] * 3),
}


@pytest.mark.each_tensorrt
@pytest.mark.filterwarnings("ignore:You asked for")
@pytest.mark.parametrize("function", OPS.values(), ids=OPS)
def test_a_size_that_is_a_number_for_all_accepted_calls_is_one_to_tensorrt(function):
    """A sum with six numbers makes 6 of the slice's length: for six rows, and for seven."""

    def model(x):
        chosen = x.narrow(1, 0, x.shape[0] // 2 + 3)
        return function(chosen), chosen.transpose(1, 2) + torch.ones(6)

    rows = torchtrt.Input(min_shape=(6, 8, 4), opt_shape=(6, 8, 4), max_shape=(8, 8, 4))
    compiled = torchtrt.compile(Function(model).eval(), [rows], min_block_size=1)

    for count in (6, 7):
        x = torch.rand(count, 8, 4)
        torch.testing.assert_close(compiled(x), model(x))
