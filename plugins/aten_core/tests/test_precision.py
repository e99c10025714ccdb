"""Functions that keep the digits of small numbers keep them everywhere."""

import pytest
import torch

from torchtrt.testing import run_compiled

from .test_pack import Function, compile_everything

SMALL = torch.logspace(-30, -1, 3001)
GRID = torch.cat([-SMALL.flip(0), torch.tensor([-0.0, 0.0]), SMALL])
ENDS = torch.tensor([torch.inf, -torch.inf, torch.nan, 3e38, -3e38])


def relative_error(result, exact):
    """Returns the largest distance from the exact values, in units of float32's resolution of these."""
    size = exact.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return float(((result - exact) / size).abs().max()) / torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [(torch.expm1, -100.0, 88.0), (torch.log1p, -0.999, 0.999), (torch.log1p, 1.0, 1e6)],
)
def test_small_and_large_results_are_exact_to_three_units(version, function, low, high):
    """Within three units in the last place of float32, on a fine grid, around 0 and around a half too."""
    near = torch.linspace(max(low, -0.6), min(high, 0.6), 100001)
    x = torch.cat([GRID.clamp(min=low), near, torch.linspace(low, high, 100001)])
    compiled = compile_everything(Function(function).eval(), x)
    assert relative_error(run_compiled(compiled, x).double(), function(x.double())) < 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("function", [torch.expm1, torch.log1p])
def test_ends_are_as_in_pytorch(version, function, dtype):
    """Infinities, NaN, signed zeros, numbers far from 0, and every float16 near 0."""
    x = torch.cat([ENDS, GRID]).to(dtype)
    compiled = compile_everything(Function(function).eval(), x)
    result, expected = run_compiled(compiled, x), function(x)
    torch.testing.assert_close(result, expected, equal_nan=True)
    number = ~expected.isnan()
    assert torch.equal(torch.signbit(result[number]), torch.signbit(expected[number]))


def test_digamma_beside_its_poles_is_exact_to_few_units(version):
    """Where its series stands for a cotangent."""
    x = torch.cat([pole + torch.linspace(-0.25, 0.25, 1001) for pole in (0.0, -1.0, -4.0)])
    x = x[x != torch.round(x)]
    compiled = compile_everything(Function(torch.digamma).eval(), x)
    exact = torch.digamma(x.double())
    away = exact.abs() > 3  # between the poles it has zeros
    assert relative_error(run_compiled(compiled, x).double()[away], exact[away]) < 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_logarithms_of_powers_of_two_are_whole_numbers(version, dtype):
    """And the numbers beside them have no logarithms below or above what PyTorch's are."""
    powers = torch.pow(2.0, torch.arange(-14.0 if dtype is torch.float16 else -126.0, 16.0)).to(
        dtype
    )
    infinity = torch.full_like(powers, torch.inf)
    x = torch.cat([powers, torch.nextafter(powers, infinity), torch.nextafter(powers, -infinity)])
    compiled = compile_everything(Function(lambda x: torch.floor(torch.log2(x))).eval(), x)
    torch.testing.assert_close(
        run_compiled(compiled, x), torch.floor(torch.log2(x)), rtol=0, atol=0
    )


def test_the_ends_of_the_logarithm_are_as_in_pytorch(version):
    """Numbers without a logarithm, numbers that are no normal ones, and the largest."""
    x = torch.cat([ENDS, torch.tensor([0.0, -0.0, -1.0, 1e-45, 1e-40])])
    compiled = compile_everything(Function(torch.log2).eval(), x)
    torch.testing.assert_close(run_compiled(compiled, x), torch.log2(x), equal_nan=True)


def test_a_number_is_scaled_by_powers_of_two_that_are_no_numbers(version):
    """The result is finite where PyTorch's is."""
    x = torch.tensor([1e-30, 3e38, 1e-45, 3e38, 1.5, 1.5, -1.0, 0.0, torch.inf, torch.nan])
    by = torch.tensor([200, -200, 160, -277, -149, -150, 1000, 1000, -1000, 3])
    compiled = compile_everything(Function(torch.ldexp).eval(), x, by)
    expected = torch.ldexp(x, by)
    torch.testing.assert_close(
        run_compiled(compiled, x, by), expected, rtol=0, atol=0, equal_nan=True
    )


def test_mantissas_and_exponents_are_exact(version):
    """Each power of two, its neighbors, and what has no exponent."""
    powers = torch.ldexp(torch.ones(277), torch.arange(-149, 128))
    above, below = (torch.nextafter(powers, torch.tensor(end)) for end in (torch.inf, 0.0))
    x = torch.cat([ENDS, torch.tensor([0.0, -0.0]), powers, -powers, above, below])
    compiled = compile_everything(Function(torch.frexp).eval(), x)
    for result, expected in zip(run_compiled(compiled, x), torch.frexp(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("function", [torch.sign, torch.sgn])
def test_what_is_no_number_has_the_sign_0(version, function, dtype):
    """As in PyTorch; TensorRT's is NaN."""
    x = torch.cat([ENDS, GRID]).to(dtype)
    compiled = compile_everything(Function(function).eval(), x)
    assert torch.equal(run_compiled(compiled, x), function(x))
