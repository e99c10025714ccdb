"""Error functions, normal distributions and entropies, by arithmetic.

Each is a function with the op's own signature, and computes in float32. The cases state the errors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchtrt_converters_special import pack
from torchtrt_converters_special.approximation import as_result, polynomial, widened

aten = torch.ops.aten

_ROOT_2, _ROOT_PI = math.sqrt(2), math.sqrt(math.pi)


@pack.decomposition(aten.erfc.default)
def erfc(self: Tensor) -> Tensor:
    """Returns the complementary error function, by its scaled form (relative error 8e-6 in float32)."""
    x = widened(self)
    magnitude = torch.abs(x)
    tail = torch.exp(-magnitude * magnitude) * _scaled_tail(magnitude)
    return as_result(torch.where(x < 0, 2 - tail, tail), self)


def _scaled_tail(x: Tensor) -> Tensor:
    """Returns ``exp(x**2) * erfc(x)`` for ``x`` of at least 0 (Press et al., Numerical Recipes, 1992, section 6.2)."""
    t = 2 / (2 + x)
    powers = (
        *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
        *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
    )
    # exp of this is the scaled tail over t: the square of x cancels in the book's exponent.
    return t * torch.exp(polynomial(t, powers))


@pack.decomposition(aten.special_erfcx.default)
def erfcx(self: Tensor) -> Tensor:
    """Returns ``exp(x**2) * erfc(x)``, which does not vanish for large ``x``."""
    x = widened(self)
    magnitude = torch.abs(x)
    tail = _scaled_tail(magnitude)
    return as_result(torch.where(x < 0, 2 * torch.exp(x * x) - tail, tail), self)


@pack.decomposition(aten.erfinv.default)
def erfinv(self: Tensor) -> Tensor:
    """Returns the inverse of the error function (Giles, Approximating the erfinv Function, 2011)."""
    x = widened(self)
    w = -torch.log((1 - x) * (1 + x))
    middle = polynomial(
        w - 2.5,
        (
            *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
            *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
        ),
    )
    ends = polynomial(
        torch.sqrt(w.clamp_min(0)) - 3,
        (
            *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
            *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
        ),
    )
    result = torch.where(w < 5, middle, ends) * x
    result = torch.where(x == 1, math.inf, torch.where(x == -1, -math.inf, result))
    return as_result(torch.where(torch.abs(x) > 1, math.nan, result), self)


@pack.decomposition(aten.special_ndtri.default)
def ndtri(self: Tensor) -> Tensor:
    """Returns the inverse of the normal distribution function; below one half by its tail, which keeps its digits."""
    p = widened(self)
    central = torch.erfinv(2 * p - 1) * _ROOT_2
    # Newton's step in the logarithm of the tail, whose derivative is the hazard rate.
    lower = p < 0.1
    small = torch.where(lower, p, 0.1).clamp_min(torch.finfo(torch.float32).tiny)
    level = torch.log(small)
    x = -torch.sqrt((-2 * level - torch.log(-2 * level * (2 * math.pi) + 1e-3)).clamp_min(1e-3))
    for _ in range(4):
        tail = _scaled_tail(-x / _ROOT_2)
        error = torch.log(tail / 2) - x * x / 2 - level
        x = x - error * tail * (_ROOT_PI / _ROOT_2)
    result = torch.where(lower, x, central)
    result = torch.where(p == 0, -math.inf, result)
    result = torch.where(p == 1, math.inf, result)
    return as_result(torch.where((p < 0) | (p > 1), math.nan, result), self)


@pack.decomposition(aten.special_log_ndtr.default)
def log_ndtr(self: Tensor) -> Tensor:
    """Returns the logarithm of the normal distribution function, also where the function vanishes."""
    x = widened(self)
    t = x / _ROOT_2
    low = torch.log(_scaled_tail(torch.abs(t)) / 2) - t * t
    high = torch.log1p(-torch.exp(-t * t) * _scaled_tail(torch.abs(t)) / 2)
    high = torch.where(t == math.inf, 0.0, high)
    return as_result(torch.where(x < 0, low, high), self)


@pack.decomposition(aten.special_entr.default)
def entr(self: Tensor) -> Tensor:
    """Returns ``-x * log(x)``, 0 at 0 and minus infinity below."""
    x = widened(self)
    inner = torch.where(x > 0, x, 1.0)
    result = torch.where(x == 0, 0.0, -inner * torch.log(inner))
    return as_result(torch.where(x < 0, -math.inf, result), self)


@pack.decomposition(aten.logit.default)
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """Returns ``log(x / (1 - x))``, of an ``x`` that is kept ``eps`` away from 0 and 1."""
    x = widened(self)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    result = torch.log(x / (1 - x))
    return as_result(torch.where((x < 0) | (x > 1), math.nan, result), self)
