"""Weights of few bits."""

import pytest
import torch

import torchtrt
from torchtrt import trt
from torchtrt.tensorrt import shims


@pytest.mark.parametrize(
    ("dtype", "numbers", "name", "wanted"),
    [
        (torch.int4, [-1, 7, -8], "INT4", [0x7F, 0x08]),
        (torch.float4_e2m1fn_x2, [0x21, -1], "FP4", [0x21, 0xFF]),
        (torch.float8_e8m0fnu, [127, 0], "E8M0", [127, 0]),
    ],
)
def test_weights_of_few_bits_are_packed(dtype, numbers, name, wanted):
    """Of int4 a tensor has one value in each byte, and TensorRT two."""
    tensor = torch.tensor(numbers, dtype=torch.int8).view(dtype)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        weights, owner = shims.weights_of(tensor)
        assert getattr(trt.DataType, name) == weights.dtype
    assert len(numbers) * (2 if name == "FP4" else 1) == weights.size
    assert wanted == owner.view(torch.uint8).tolist()


def test_weights_of_few_bits_need_a_tensorrt_that_has_them():
    """The error names the version that has."""
    tensor = torch.zeros(2, dtype=torch.uint8).view(torch.int4)
    with (
        torchtrt.use_tensorrt("reference@8.6.0"),
        pytest.raises(
            torchtrt.errors.UnsupportedDtypeError, match=r"INT4, which TensorRT has .* 10.0"
        ),
    ):
        shims.weights_of(tensor)
