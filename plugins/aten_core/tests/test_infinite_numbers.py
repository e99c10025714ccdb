"""Infinite numbers stay infinite: TensorRT 8.6 reads a constant of one element as 1e38 where it is infinite."""

import math

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.tensorrt import is_real

SETTINGS = {"tactic_sources": 0, "optimization_level": 0} if is_real() else {}


class Operands(nn.Module):
    """Ops with an operand that is infinite, as a number and as a tensor of one element."""

    def forward(self, x):
        infinity = torch.tensor(math.inf, dtype=x.dtype, device=x.device)
        return (
            x + math.inf,
            math.inf - x,
            x * -math.inf,
            math.inf / x,
            torch.maximum(x, infinity),
            torch.minimum(x, -infinity),
            torch.addcmul(x, x, infinity),
            torch.remainder(x, math.inf),
            torch.fmod(x, infinity),
            torch.xlogy(x.abs(), math.inf),
            torch.lerp(x, infinity, 0.5),
            x.clamp(-math.inf, math.inf),
            torch.nan_to_num(x / 0, nan=math.inf, posinf=math.inf),
        )


class Selections(nn.Module):
    """Selections whose condition, and one of whose values, is constant."""

    def forward(self, x):
        always = torch.ones(1, 1, dtype=torch.bool, device=x.device)
        return (
            torch.where(always, -math.inf, x),
            torch.where(always, x, math.inf),
            x.masked_fill(always, math.inf),
            x.masked_fill(x > 0, -math.inf),
            x.index_fill(0, torch.tensor([0], device=x.device), -math.inf),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 4)], ids=str)
@pytest.mark.parametrize("model", [Operands, Selections])
def test_an_infinite_number_stays_infinite(version, model, shape, dtype):
    """In tensors of one element, too, where TensorRT could take all of it for constant."""
    device = "cuda" if is_real() else "cpu"
    x = torch.linspace(-2, 2, math.prod(shape) + 1)[1:].reshape(shape).to(device, dtype)
    eager = model().eval().to(device)

    compiled = torchtrt.compile(eager, [x], require_full_compilation=True, **SETTINGS)

    torch.testing.assert_close(compiled(x), eager(x), equal_nan=True)
