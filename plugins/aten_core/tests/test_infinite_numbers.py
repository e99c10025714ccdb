"""Infinite numbers stay infinite: TensorRT 8.6 reads a constant of one element as 1e38 where it is infinite."""

import math

import pytest
import torch
from torch import nn

import torchtrt


class Operands(nn.Module):
    """Ops with an operand that is infinite, as a number and as a tensor of one element."""

    def forward(self, x):
        infinity = torch.tensor(math.inf, dtype=x.dtype)
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
        always = torch.ones(1, 1, dtype=torch.bool)
        return (
            torch.where(always, -math.inf, x),
            torch.where(always, x, math.inf),
            x.masked_fill(always, math.inf),
            x.masked_fill(x > 0, -math.inf),
            x.index_fill(0, torch.tensor([0]), -math.inf),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 4)], ids=str)
@pytest.mark.parametrize("model", [Operands, Selections])
def test_an_infinite_number_stays_infinite(version, model, shape, dtype):
    """In tensors of one element, too, where TensorRT could take all of it for constant."""
    x = torch.linspace(-2, 2, math.prod(shape) + 1)[1:].reshape(shape).to(dtype)

    compiled = torchtrt.compile(model().eval(), [x], require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model()(x), equal_nan=True)
