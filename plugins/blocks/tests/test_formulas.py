"""A formula has PyTorch's values: the same expression, on network tensors and on PyTorch's."""

import pytest
import torch

import torchtrt
from torchtrt_blocks import types
from torchtrt_blocks.formulas import Formula

EXPRESSIONS = {
    "arithmetic": lambda x: (2 - x) * 3 / (1 + abs(x)) - -x,
    "powers": lambda x: x**1 + x**2 - x**7 / 100,
    "exponential": lambda x: x.exp().log() + (x**2).sqrt() + (x**2).log1p(),
    "angles": lambda x: x.sin() + x.tan(),
    "gates": lambda x: x.sigmoid() * x.tanh(),
    "rounding": lambda x: x.floor() + 2 * x.ceil() + 4 * x.round(),
    "limits": lambda x: x.clamp(-1.0) + x.clamp(None, 1.0) + x.clamp(-2.0, 2.0),
    "reductions": lambda x: x - x.sum([1]) + x.mean([0]),
    "choice": lambda x: ((x < -1) | ~(x <= 1) & (x != 2)).where(x, 0.5),
}
INTEGERS = {
    "quotients": lambda x: x // 3 + (x - 7) // -2,
    "remainders": lambda x: x % 3 + (x - 7) % -2,
    "powers": lambda x: x**3 - x**5,
}
TABLES = {torch.float32: EXPRESSIONS, torch.int32: INTEGERS}


class Choice(torch.Tensor):
    """A PyTorch tensor on which ``where`` and the reductions are called as on a formula."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """Returns what PyTorch does, with dimensions kept, and with the condition as the tensor."""
        if function in (torch.Tensor.sum, torch.Tensor.mean):
            kwargs = {"keepdim": True}
        elif function is torch.Tensor.where:
            condition, chosen, other = args
            args = (chosen, condition, other)
        return super().__torch_function__(function, types, args, kwargs or {})


@torch.library.custom_op("formulas::compute", mutates_args=())
def compute(x: torch.Tensor, name: str) -> torch.Tensor:
    """The op of all expressions."""
    result = TABLES[x.dtype][name](x.as_subclass(Choice))
    return result.as_subclass(torch.Tensor).clone()


@compute.register_fake
def _(x, name):
    return torch.empty_like(x)


@torchtrt.dynamo_tensorrt_converter("formulas::compute", supports_dynamic_shapes=True)
def convert(ctx, x, name):
    """Computes an expression as a formula."""
    return TABLES[types.output_dtype(ctx)][name](Formula(ctx, x)).tensor


class Expressions(torch.nn.Module):
    """All expressions over one dtype."""

    def forward(self, x):
        return [compute(x, name) for name in TABLES[x.dtype]]


@pytest.mark.parametrize("dtype", TABLES, ids=str)
def test_a_formula_has_pytorchs_values(version, dtype):
    """The expression is the same, so that PyTorch's result is the expected one."""
    x = torch.arange(-12, 12).reshape(4, 6)
    x = x.to(dtype) if dtype is torch.int32 else x / 4
    model = Expressions().eval()

    compiled = torchtrt.compile(model, (x,), require_full_compilation=True)

    results = dict(zip(TABLES[dtype], compiled(x), strict=True))
    expected = dict(zip(TABLES[dtype], model(x), strict=True))
    torch.testing.assert_close(results, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exponent", [0, -1, 0.5])
def test_a_formula_has_only_powers_with_positive_integers(exponent):
    """Others are a converter of their own: torchtrt_blocks.powers."""
    with pytest.raises(ValueError, match="positive integers"):
        Formula.__pow__(None, exponent)
