"""The gamma function's logarithm and its derivatives, by arithmetic.

Each is a function with the op's own signature, and computes in float32. The cases state the errors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchtrt_converters_special import pack
from torchtrt_converters_special.approximation import as_result, fitted, polynomial, widened

aten = torch.ops.aten


def _log_gamma_quotient(x: Tensor) -> Tensor:
    """Returns ``lgamma(x)`` without its zeros at 1 and 2."""
    return torch.lgamma(x) / ((x - 1) * (x - 2))


@pack.decomposition(aten.lgamma.default)
def lgamma(self: Tensor) -> Tensor:
    """Returns the logarithm of the gamma function's magnitude.

    From 0.5 to 3 by a fit beside its zeros, above by Stirling's series, below 0.5 by reflection
    (Abramowitz and Stegun, 6.1.17 and 6.1.41).
    """
    x = widened(self)
    reflected = x < 0.5
    y = torch.where(reflected, 1 - x, x)
    near = fitted(y, _log_gamma_quotient, 0.5, 3.0, 12) * ((y - 1) * (y - 2))
    inverse = 1 / y.clamp_min(1)
    square = inverse * inverse
    series = inverse * polynomial(square, (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    large = y.clamp_min(1)
    far = (large - 0.5) * (torch.log(large) - 1) + (series + (math.log(2 * math.pi) - 1) / 2)
    result = torch.where(y < 3, near, far)
    wave = torch.sin(math.pi * torch.abs(x - torch.round(x)))
    mirrored = math.log(math.pi) - torch.log(wave) - result
    result = torch.where(reflected, mirrored, result)
    pole = (x <= 0) & (torch.floor(x) == x)
    return as_result(torch.where(pole | (torch.abs(x) == math.inf), math.inf, result), self)


@pack.decomposition(aten.digamma.default)
def digamma(self: Tensor) -> Tensor:
    """Returns the derivative of ``lgamma``, by recurrence, an asymptotic series and reflection.

    Abramowitz and Stegun, 6.3.5, 6.3.18 and 6.3.7.
    """
    x = widened(self)
    reflected = x < 0
    y = torch.where(reflected, 1 - x, x)
    steps = 1 / y
    for step in range(1, 6):
        steps = steps + 1 / (y + step)
    y = y + 6
    square = 1 / (y * y)
    series = square * polynomial(square, (1 / 252, -1 / 120, 1 / 12))
    result = torch.log(y) - 0.5 / y - series - steps
    result = torch.where(reflected, result - math.pi * _cotangent(x), result)
    result = torch.where(reflected & (torch.floor(x) == x), math.nan, result)
    result = torch.where(x == math.inf, x, result)
    pole = torch.where(torch.signbit(x), math.inf, -math.inf).to(x.dtype)
    return as_result(torch.where(x == 0, pole, result), self)


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
"""The Bernoulli numbers of orders 2, 4, 6, 8 and 10."""
_COTANGENT = tuple(
    abs(number) * (2 * math.pi) ** (2 * k) / (math.factorial(2 * k) * math.pi)
    for k, number in enumerate(_BERNOULLI, 1)
)


def _cotangent(x: Tensor) -> Tensor:
    """Returns ``cot(pi * x)``, exact where it is 0; beside its poles by its series (Abramowitz and Stegun, 4.3.70).

    There TensorRT's tangent has an absolute error only, which its inverse would make large.
    """
    rest = x - torch.round(x)
    flat = torch.sign(rest) * torch.tan(math.pi * (0.5 - torch.abs(rest)))
    steep = 1 / (math.pi * rest) - rest * polynomial(rest * rest, _COTANGENT[::-1])
    return torch.where(torch.abs(rest) > 0.25, flat, steep)


@pack.decomposition(aten.polygamma.default)
def polygamma(n: int, self: Tensor) -> Tensor:
    """Returns the ``n``-th derivative of ``digamma``, by recurrence, an asymptotic series and reflection.

    Abramowitz and Stegun, 6.4.6, 6.4.11 and 6.4.7.
    """
    if n == 0:
        return torch.digamma(self)
    if n > 10:
        raise NotImplementedError("higher derivatives than the tenth exceed float32")
    x = widened(self)
    reflected = x < 0.5
    y = torch.where(reflected, 1 - x, x)
    count, factorial = 6 + 2 * n, math.factorial(n)
    steps = torch.zeros_like(y)
    for step in range(count):
        steps = steps + _power(1 / (y + step), n + 1)
    inverse = 1 / (y + count)
    coefficients = [
        number * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        for k, number in enumerate(_BERNOULLI, 1)
    ]
    series = polynomial(inverse * inverse, (*coefficients[::-1], math.factorial(n - 1)))
    result = _power(inverse, n) * (series + inverse * (factorial / 2)) + steps * factorial
    sign = (-1) ** (n + 1)
    wave = polynomial(_cotangent(x), _derivative_of_cotangent(n)) * (sign * math.pi ** (n + 1))
    # Of the reflected argument the derivative of order n has the sign of (-1)**n.
    result = torch.where(reflected, -wave - sign * result, result)
    pole = (x <= 0) & (torch.floor(x) == x)
    return as_result(torch.where(pole, math.inf, result) * sign, self)


def _power(x: Tensor, exponent: int) -> Tensor:
    result = x
    for _ in range(exponent - 1):
        result = result * x
    return result


def _derivative_of_cotangent(n: int) -> list[float]:
    """Returns the ``n``-th derivative of ``cot(t)`` as a polynomial in ``cot(t)``, highest coefficient first."""
    coefficients = [0.0, 1.0]  # lowest first
    for _ in range(n):
        slope = [index * value for index, value in enumerate(coefficients)][1:]
        coefficients = [0.0] * (len(slope) + 2)
        for exponent, value in enumerate(slope):
            coefficients[exponent] -= value
            coefficients[exponent + 2] -= value
    return coefficients[::-1]
