"""Remainders are exact, whatever the quotient."""

import math

import pytest
import torch

import torchtrt
from torchtrt.testing import run_compiled

from .test_pack import Function, compile_everything

ENDS = [0.0, -0.0, 1.0, -7.0, 5.3, 1e-30, 1e20, -1e38, 3.4e38, torch.inf, -torch.inf, torch.nan]


def numbers(seed):
    """Returns numbers of all magnitudes, and the ends with each other."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.rand(4000, generator=generator) * 200 - 80
    signs = torch.randn(4000, generator=generator).sign()
    ends = torch.tensor(ENDS)
    pairs = ends.repeat(len(ENDS)) if seed else ends.repeat_interleave(len(ENDS))
    return torch.cat([torch.pow(2.0, exponents) * signs, pairs])


def exact(first, second):
    """Returns the remainder with the dividend's sign, of C's library: PyTorch's own gives NaN for large quotients."""

    def of(x, y):
        return math.nan if y == 0 or math.isinf(x) else math.fmod(x, y)

    return torch.tensor([of(x, y) for x, y in zip(first.tolist(), second.tolist(), strict=True)])


def with_sign_of(rest, divisor):
    """Returns remainders with the divisor's sign."""
    moves = (rest != 0) & ((rest < 0) != (divisor < 0))
    return torch.where(moves, rest + divisor, rest)


def assert_equal(result, expected):
    """Checks that all is equal, NaN to NaN."""
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_a_remainder_of_two_tensors_is_exact(version):
    """With either sign, for quotients of up to 200 bits."""
    first, second = numbers(0), numbers(1)
    model = Function(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y))).eval()
    compiled = compile_everything(model, first, second)
    by_dividend, by_divisor = run_compiled(compiled, first, second)
    expected = exact(first, second)
    assert_equal(by_dividend, expected)
    assert_equal(by_divisor, with_sign_of(expected, second))


@pytest.mark.parametrize("divisor", [360.0, -0.3, 0.25, 2 * math.pi, 1e30, 2.0, 3])
def test_a_remainder_by_a_number_is_exact(version, divisor):
    """Powers of 2 are divisors like others, where their quotient may be infinite."""
    first = numbers(0)
    second = torch.full_like(first, divisor)
    model = Function(lambda x: (torch.fmod(x, divisor), torch.remainder(x, divisor))).eval()
    by_dividend, by_divisor = run_compiled(compile_everything(model, first), first)
    assert_equal(by_dividend, exact(first, second))
    assert_equal(by_divisor, with_sign_of(exact(first, second), second))


def test_a_quotient_is_rounded_down_as_in_pytorch(version):
    """It may be infinite, where the division's result is."""
    first, second = numbers(0), numbers(1)
    compiled = compile_everything(Function(torch.floor_divide).eval(), first, second)
    assert_equal(run_compiled(compiled, first, second), torch.floor_divide(first, second))


@pytest.mark.parametrize(
    ("first", "second", "most"),
    [
        (torch.ones(4, dtype=torch.float16), 360.0, 45),
        (torch.ones(4, dtype=torch.int32), 0.3, 60),
        (torch.ones(4), 360.0, 110),
    ],
    ids=["half", "integer", "single"],
)
def test_known_operands_take_fewer_layers(layers, first, second, most):
    """Of an operand's dtype, or of a number, it follows how large a quotient may be."""
    compile_everything(Function(lambda x: torch.fmod(x, second)).eval(), first)
    assert most > len(layers)


@pytest.mark.parametrize("function", [torch.remainder, torch.fmod])
def test_a_size_divides(function):
    """One that is known at run time only."""
    x = torch.tensor([[7.5, -7.5], [0.25, 3.0], [-2.0, 1e6]])
    dynamic = {"x": {0: torch.export.Dim("rows", min=2, max=9)}}

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x, x.shape[0])

    program = torch.export.export(Model(), (x,), dynamic_shapes=dynamic)
    compiled = torchtrt.compile(program, (x,), require_full_compilation=True)

    torch.testing.assert_close(run_compiled(compiled, x), function(x, 3))
    torch.testing.assert_close(run_compiled(compiled, x[:2]), function(x[:2], 2))
