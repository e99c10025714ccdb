"""Powers of zeros, infinities, NaN and negative numbers are PyTorch's, which IEEE 754 defines."""

import math

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.tensorrt import is_real

SETTINGS = {"tactic_sources": 0, "optimization_level": 0} if is_real() else {}
NUMBERS = (-math.inf, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf, math.nan)
EXPONENTS = (*NUMBERS, -2.0, 1.5, 3.0)


class OfTensors(nn.Module):
    """A power in which both operands vary."""

    def forward(self, base, exponent):
        return base**exponent


class ToNumbers(nn.Module):
    """Powers to fixed exponents, as numbers and as a tensor."""

    def forward(self, base):
        exponents = torch.tensor(EXPONENTS, dtype=base.dtype, device=base.device)
        # In float16, the roots of -0.0 and -inf are others on the CPU than on CUDA.
        numbers = [
            exponent
            for exponent in EXPONENTS
            if abs(exponent) != 0.5 or base.dtype is torch.float32
        ]
        return (*(base**number for number in numbers), base[:, None] ** exponents)


class OfNumbers(nn.Module):
    """Powers of fixed bases, as numbers and as a tensor."""

    def forward(self, exponent):
        bases = torch.tensor(NUMBERS, dtype=exponent.dtype, device=exponent.device)
        return (*(torch.pow(number, exponent) for number in NUMBERS), bases ** exponent[:, None])


class WithOtherNumbers(nn.Module):
    """Powers with numbers that half precision cannot represent."""

    def forward(self, x):
        return x**1e-8, x ** (1 / 3), torch.pow(1e6, x), torch.pow(1e-8, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("model", [OfTensors, ToNumbers, OfNumbers])
def test_powers_of_special_numbers_are_pytorchs(version, model, dtype):
    """The base 1, the exponent 0, and infinite powers of negative numbers, which have no logarithm."""
    device = "cuda" if is_real() else "cpu"
    numbers = torch.tensor(NUMBERS, dtype=dtype, device=device)
    inputs = [numbers]
    if model is OfTensors:
        inputs = [grid.contiguous() for grid in torch.meshgrid(numbers, numbers, indexing="ij")]
    eager = model().eval()

    compiled = torchtrt.compile(eager, inputs, require_full_compilation=True, **SETTINGS)

    torch.testing.assert_close(compiled(*inputs), eager(*inputs), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_in_powers_are_rounded_to_half_precision(dtype):
    """PyTorch rounds them, and not the numbers of other arithmetic: the exponent 1e-8 is 0 in float16."""
    x = torch.tensor([-2.0, 0.0, 0.5, 1e-7, 1e4], dtype=dtype)

    eager = WithOtherNumbers().eval()

    compiled = torchtrt.compile(eager, [x], require_full_compilation=True)

    torch.testing.assert_close(compiled(x), eager(x), equal_nan=True)
