"""Special functions by arithmetic, each a function of the op's own signature, computed in float32.

Where a function has a closed asymptotic form or a known short approximation, that is used. Elsewhere
a polynomial that agrees with PyTorch's float64 function in the Chebyshev points of an interval
(Trefethen, Approximation Theory and Approximation Practice, 2013, chapter 2). The tests state the
errors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

_ROOT_2, _ROOT_PI = math.sqrt(2), math.sqrt(math.pi)


def _number(self: Tensor) -> Tensor:
    """Returns a tensor to compute with: integers and half precision in float32."""
    return self if self.dtype is torch.float64 else self.to(torch.float32)


def _as_result(value: Tensor, self: Tensor) -> Tensor:
    """Returns a function's value in the op's dtype: NaN of what is none, which limits may have lost."""
    if not self.dtype.is_floating_point:
        return value
    return torch.where(self != self, self, value.to(self.dtype))


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Returns a polynomial, its highest coefficient first, by Horner's rule."""
    result = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * x + coefficient
    return result


@functools.lru_cache(maxsize=64)
def _fit(
    function: Callable[[Tensor], Tensor], low: float, high: float, degree: int
) -> tuple[float, ...]:
    """Returns a polynomial in ``t``, where -1 to 1 stands for an interval, that interpolates a function."""
    from numpy.polynomial import chebyshev  # here, since importing a pack must be fast

    def sample(t: Any) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            points = (low + high + (high - low) * torch.from_numpy(t)) / 2
            return function(points).numpy()

    series = chebyshev.chebinterpolate(sample, degree)
    return tuple(float(coefficient) for coefficient in chebyshev.cheb2poly(series)[::-1])


def _fitted(
    x: Tensor, function: Callable[[Tensor], Tensor], low: float, high: float, degree: int
) -> Tensor:
    """Returns an approximation of a function on an interval; ``x`` outside of it is moved to its ends."""
    t = x.clamp(low, high) * (2 / (high - low)) - (high + low) / (high - low)
    return _polynomial(t, _fit(function, low, high, degree))


@pack.decomposition(aten.erfc.default)
def erfc(self: Tensor) -> Tensor:
    """Returns the complementary error function, by its scaled form (relative error 8e-6 in float32)."""
    x = _number(self)
    magnitude = torch.abs(x)
    tail = torch.exp(-magnitude * magnitude) * _scaled_tail(magnitude)
    return _as_result(torch.where(x < 0, 2 - tail, tail), self)


def _scaled_tail(x: Tensor) -> Tensor:
    """Returns ``exp(x**2) * erfc(x)`` for ``x`` of at least 0 (Press et al., Numerical Recipes, 1992, section 6.2)."""
    t = 2 / (2 + x)
    powers = (
        *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
        *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
    )
    # exp of this is the scaled tail over t: the square of x cancels in the book's exponent.
    return t * torch.exp(_polynomial(t, powers))


@pack.decomposition(aten.special_erfcx.default)
def erfcx(self: Tensor) -> Tensor:
    """Returns ``exp(x**2) * erfc(x)``, which does not vanish for large ``x``."""
    x = _number(self)
    magnitude = torch.abs(x)
    tail = _scaled_tail(magnitude)
    return _as_result(torch.where(x < 0, 2 * torch.exp(x * x) - tail, tail), self)


@pack.decomposition(aten.erfinv.default)
def erfinv(self: Tensor) -> Tensor:
    """Returns the inverse of the error function (Giles, Approximating the erfinv Function, 2011)."""
    x = _number(self)
    w = -torch.log((1 - x) * (1 + x))
    middle = _polynomial(
        w - 2.5,
        (
            *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
            *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
        ),
    )
    ends = _polynomial(
        torch.sqrt(w.clamp_min(0)) - 3,
        (
            *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
            *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
        ),
    )
    result = torch.where(w < 5, middle, ends) * x
    result = torch.where(x == 1, math.inf, torch.where(x == -1, -math.inf, result))
    return _as_result(torch.where(torch.abs(x) > 1, math.nan, result), self)


@pack.decomposition(aten.special_ndtri.default)
def ndtri(self: Tensor) -> Tensor:
    """Returns the inverse of the normal distribution function; below one half by its tail, which keeps its digits."""
    p = _number(self)
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
    return _as_result(torch.where((p < 0) | (p > 1), math.nan, result), self)


@pack.decomposition(aten.special_log_ndtr.default)
def log_ndtr(self: Tensor) -> Tensor:
    """Returns the logarithm of the normal distribution function, also where the function vanishes."""
    x = _number(self)
    t = x / _ROOT_2
    low = torch.log(_scaled_tail(torch.abs(t)) / 2) - t * t
    high = torch.log1p(-torch.exp(-t * t) * _scaled_tail(torch.abs(t)) / 2)
    high = torch.where(t == math.inf, 0.0, high)
    return _as_result(torch.where(x < 0, low, high), self)


def _log_gamma_quotient(x: Tensor) -> Tensor:
    """Returns ``lgamma(x)`` without its zeros at 1 and 2."""
    return torch.lgamma(x) / ((x - 1) * (x - 2))


@pack.decomposition(aten.lgamma.default)
def lgamma(self: Tensor) -> Tensor:
    """Returns the logarithm of the gamma function's magnitude.

    From 0.5 to 3 by a fit beside its zeros, above by Stirling's series, below 0.5 by reflection
    (Abramowitz and Stegun, 6.1.17 and 6.1.41).
    """
    x = _number(self)
    reflected = x < 0.5
    y = torch.where(reflected, 1 - x, x)
    near = _fitted(y, _log_gamma_quotient, 0.5, 3.0, 12) * ((y - 1) * (y - 2))
    inverse = 1 / y.clamp_min(1)
    square = inverse * inverse
    series = inverse * _polynomial(square, (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    large = y.clamp_min(1)
    far = (large - 0.5) * (torch.log(large) - 1) + (series + (math.log(2 * math.pi) - 1) / 2)
    result = torch.where(y < 3, near, far)
    wave = torch.sin(math.pi * torch.abs(x - torch.round(x)))
    mirrored = math.log(math.pi) - torch.log(wave) - result
    result = torch.where(reflected, mirrored, result)
    pole = (x <= 0) & (torch.floor(x) == x)
    return _as_result(torch.where(pole | (torch.abs(x) == math.inf), math.inf, result), self)


@pack.decomposition(aten.digamma.default)
def digamma(self: Tensor) -> Tensor:
    """Returns the derivative of ``lgamma``, by recurrence, an asymptotic series and reflection.

    Abramowitz and Stegun, 6.3.5, 6.3.18 and 6.3.7.
    """
    x = _number(self)
    reflected = x < 0
    y = torch.where(reflected, 1 - x, x)
    steps = 1 / y
    for step in range(1, 6):
        steps = steps + 1 / (y + step)
    y = y + 6
    square = 1 / (y * y)
    series = square * _polynomial(square, (1 / 252, -1 / 120, 1 / 12))
    result = torch.log(y) - 0.5 / y - series - steps
    result = torch.where(reflected, result - math.pi * _cotangent(x), result)
    result = torch.where(reflected & (torch.floor(x) == x), math.nan, result)
    result = torch.where(x == math.inf, x, result)
    pole = torch.where(torch.signbit(x), math.inf, -math.inf).to(x.dtype)
    return _as_result(torch.where(x == 0, pole, result), self)


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
    steep = 1 / (math.pi * rest) - rest * _polynomial(rest * rest, _COTANGENT[::-1])
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
    x = _number(self)
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
    series = _polynomial(inverse * inverse, (*coefficients[::-1], math.factorial(n - 1)))
    result = _power(inverse, n) * (series + inverse * (factorial / 2)) + steps * factorial
    sign = (-1) ** (n + 1)
    wave = _polynomial(_cotangent(x), _derivative_of_cotangent(n)) * (sign * math.pi ** (n + 1))
    # Of the reflected argument the derivative of order n has the sign of (-1)**n.
    result = torch.where(reflected, -wave - sign * result, result)
    pole = (x <= 0) & (torch.floor(x) == x)
    return _as_result(torch.where(pole, math.inf, result) * sign, self)


def _power(x: Tensor, exponent: int) -> Tensor:
    result = x
    for _ in range(exponent - 1):
        result = result * x
    return result


def _derivative_of_cotangent(n: int) -> list[float]:
    """Returns the ``n``-th derivative of ``cot(t)`` as a polynomial in ``cot(t)``, highest coefficient first."""
    coefficients = [0.0, 1.0]  # lowest first
    for _ in range(n):
        slope = [place * value for place, value in enumerate(coefficients)][1:]
        coefficients = [0.0] * (len(slope) + 2)
        for place, value in enumerate(slope):
            coefficients[place] -= value
            coefficients[place + 2] -= value
    return coefficients[::-1]


@pack.decomposition(aten.special_i0e.default)
def i0e(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 0 times ``exp(-abs(x))``."""
    return _scaled_bessel(self, torch.special.i0e)


@pack.decomposition(aten.special_i1e.default)
def i1e(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 1 times ``exp(-abs(x))``."""
    x = _number(self)
    return _as_result(_scaled_bessel(x, _even_i1e) * torch.sign(x), self)


def _even_i1e(x: Tensor) -> Tensor:
    return torch.special.i1e(torch.abs(x))


def _scaled_bessel(self: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns an even function that falls like the inverse root: a fit up to 8 and one of the inverse beyond."""
    x = torch.abs(_number(self))
    odd = function is _even_i1e  # it has a zero at 0, which a fit would lose
    near = _fitted(x, _i1e_quotient if odd else function, 0.0, 8.0, 17) * (x if odd else 1.0)
    root = torch.rsqrt(x.clamp_min(8))
    tail = _i1e_tail if odd else _i0e_tail
    far = _fitted(root * root, tail, 0.0, 0.125, 8) * root
    result = torch.where(x < 8, near, far)
    return _as_result(torch.where(x == math.inf, 0.0, result), self)


def _i1e_quotient(x: Tensor) -> Tensor:
    return torch.where(x == 0, 0.5, torch.special.i1e(x) / x)


def _tail(function: Callable[[Tensor], Tensor], minimum: float) -> Callable[[Tensor], Tensor]:
    """Returns ``function(x) * sqrt(x)`` as a function of ``1 / x``, which is smooth down to ``minimum``."""

    def tail(inverse: Tensor) -> Tensor:
        x = 1 / inverse.clamp_min(minimum)
        return function(x) * torch.sqrt(x)

    return tail


_i0e_tail = _tail(torch.special.i0e, 1e-12)
_i1e_tail = _tail(torch.special.i1e, 1e-12)


@pack.decomposition(aten.i0.default)
def i0(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 0."""
    x = _number(self)
    return _as_result(_grown(torch.special.i0e(x), x), self)


@pack.decomposition(aten.special_i1.default)
def i1(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 1."""
    x = _number(self)
    return _as_result(_grown(torch.special.i1e(x), x), self)


@pack.decomposition(aten.special_modified_bessel_i0.default)
def modified_bessel_i0(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 0."""
    return i0(self)


@pack.decomposition(aten.special_modified_bessel_i1.default)
def modified_bessel_i1(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 1."""
    return i1(self)


def _grown(scaled: Tensor, x: Tensor) -> Tensor:
    """Returns a scaled function times ``exp(abs(x))``, in two factors that do not overflow before the product does."""
    factor = torch.exp(torch.abs(x) / 2)
    return scaled * factor * factor


@pack.decomposition(aten.special_bessel_j0.default)
def bessel_j0(self: Tensor) -> Tensor:
    """Returns the Bessel function of the first kind of order 0."""
    x = torch.abs(_number(self))
    near = _fitted(x * x, _j0_of_square, 0.0, 64.0, 15)
    return _as_result(torch.where(x < 8, near, _wave(x, 0)), self)


@pack.decomposition(aten.special_bessel_j1.default)
def bessel_j1(self: Tensor) -> Tensor:
    """Returns the Bessel function of the first kind of order 1."""
    x = _number(self)
    magnitude = torch.abs(x)
    near = _fitted(x * x, _j1_quotient_of_square, 0.0, 64.0, 15) * magnitude
    result = torch.where(magnitude < 8, near, _wave(magnitude, 1))
    return _as_result(torch.where(x < 0, -result, result), self)


def _j0_of_square(square: Tensor) -> Tensor:
    return torch.special.bessel_j0(torch.sqrt(square))


def _j1_quotient_of_square(square: Tensor) -> Tensor:
    x = torch.sqrt(square.clamp_min(1e-12))
    return torch.special.bessel_j1(x) / x


@pack.decomposition(aten.special_bessel_y0.default)
def bessel_y0(self: Tensor) -> Tensor:
    """Returns the Bessel function of the second kind of order 0."""
    x = _number(self)
    inner = torch.where(x > 0, x, 1.0)
    near = _fitted(x * x, _y0_of_square, 0.0, 64.0, 15)
    near = near + 2 / math.pi * torch.log(inner) * torch.special.bessel_j0(x)
    return _as_result(_right_of_zero(x, torch.where(x < 8, near, _wave(x, 0, True)), -1), self)


@pack.decomposition(aten.special_bessel_y1.default)
def bessel_y1(self: Tensor) -> Tensor:
    """Returns the Bessel function of the second kind of order 1."""
    x = _number(self)
    inner = torch.where(x > 0, x, 1.0)
    near = _fitted(x * x, _y1_of_square, 0.0, 64.0, 15) * x
    pole = torch.log(inner) * torch.special.bessel_j1(x) - 1 / inner
    near = near + 2 / math.pi * pole
    return _as_result(_right_of_zero(x, torch.where(x < 8, near, _wave(x, 1, True)), -1), self)


def _right_of_zero(x: Tensor, value: Tensor, sign: int) -> Tensor:
    """Returns a function with a pole of a sign at 0 that is none below."""
    value = torch.where(x == 0, sign * math.inf, value)
    return torch.where(x < 0, math.nan, value)


def _positive_root(square: Tensor) -> Tensor:
    return torch.sqrt(square.clamp_min(1e-14))


def _y0_of_square(square: Tensor) -> Tensor:
    x = _positive_root(square)
    return torch.special.bessel_y0(x) - 2 / math.pi * torch.log(x) * torch.special.bessel_j0(x)


def _y1_of_square(square: Tensor) -> Tensor:
    x = torch.sqrt(square.clamp_min(1e-4))
    pole = torch.log(x) * torch.special.bessel_j1(x) - 1 / x
    return (torch.special.bessel_y1(x) - 2 / math.pi * pole) / x


def _wave(x: Tensor, order: int, second_kind: bool = False) -> Tensor:
    """Returns a Bessel function far from 0 (Abramowitz and Stegun, 9.2.5, 9.2.6, 9.2.9 and 9.2.10)."""
    mu = 4 * order * order
    terms = [1.0]
    for k in range(1, 8):
        terms.append(terms[-1] * (mu - (2 * k - 1) ** 2) / (k * 8))
    inverse = 1 / x.clamp_min(8)
    square = -inverse * inverse
    even = _polynomial(square, terms[6::-2])
    odd = _polynomial(square, terms[7::-2]) * inverse
    phase = x - (order / 2 + 0.25) * math.pi
    cosine, sine = torch.cos(phase), torch.sin(phase)
    wave = even * sine + odd * cosine if second_kind else even * cosine - odd * sine
    return wave * torch.sqrt(inverse * (2 / math.pi))


@pack.decomposition(aten.special_spherical_bessel_j0.default)
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Returns ``sin(x) / x``, near 0 by its series."""
    number = _number(x)
    near = _polynomial(number * number, (1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0))
    far = torch.sin(number) / torch.where(torch.abs(number) < 0.5, 1.0, number)
    result = torch.where(torch.abs(number) < 0.5, near, far)
    return _as_result(torch.where(torch.abs(number) == math.inf, 0.0, result), x)


@pack.decomposition(aten.special_scaled_modified_bessel_k0.default)
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 0 times ``exp(x)``."""
    number = _number(x)
    inner = torch.where(number > 0, number, 1.0)
    near = _fitted(number * number, _k0_of_square, 0.0, 4.0, 9)
    near = (near - torch.log(inner) * i0(number.clamp(0, 2))) * torch.exp(number.clamp(0, 2))
    return _as_result(_right_of_zero(number, _second_kind(number, near, _k0_tail), 1), x)


@pack.decomposition(aten.special_scaled_modified_bessel_k1.default)
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 1 times ``exp(x)``."""
    number = _number(x)
    inner = torch.where(number > 0, number, 1.0)
    near = _fitted(number * number, _k1_of_square, 0.0, 4.0, 9) * number
    near = near + torch.log(inner) * i1(number.clamp(0, 2)) + 1 / inner
    near = near * torch.exp(number.clamp(0, 2))
    return _as_result(_right_of_zero(number, _second_kind(number, near, _k1_tail), 1), x)


@pack.decomposition(aten.special_modified_bessel_k0.default)
def modified_bessel_k0(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 0."""
    x = _number(self)
    return _as_result(scaled_modified_bessel_k0(x) * torch.exp(-x.clamp_min(0)), self)


@pack.decomposition(aten.special_modified_bessel_k1.default)
def modified_bessel_k1(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 1."""
    x = _number(self)
    return _as_result(scaled_modified_bessel_k1(x) * torch.exp(-x.clamp_min(0)), self)


def _second_kind(x: Tensor, near: Tensor, tail: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns a function that is fitted up to 2, and beyond falls like the inverse root."""
    root = torch.rsqrt(x.clamp_min(2))
    return torch.where(x < 2, near, _fitted(root * root, tail, 0.0, 0.5, 10) * root)


def _k0_of_square(square: Tensor) -> Tensor:
    x = _positive_root(square)
    return torch.special.modified_bessel_k0(x) + torch.log(x) * torch.special.i0(x)


def _k1_of_square(square: Tensor) -> Tensor:
    x = torch.sqrt(square.clamp_min(1e-4))
    pole = torch.log(x) * torch.special.i1(x) + 1 / x
    return (torch.special.modified_bessel_k1(x) - pole) / x


_k0_tail = _tail(torch.special.scaled_modified_bessel_k0, 1e-9)
_k1_tail = _tail(torch.special.scaled_modified_bessel_k1, 1e-9)


@pack.decomposition(aten.special_entr.default)
def entr(self: Tensor) -> Tensor:
    """Returns ``-x * log(x)``, 0 at 0 and minus infinity below."""
    x = _number(self)
    inner = torch.where(x > 0, x, 1.0)
    result = torch.where(x == 0, 0.0, -inner * torch.log(inner))
    return _as_result(torch.where(x < 0, -math.inf, result), self)


@pack.decomposition(aten.logit.default)
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """Returns ``log(x / (1 - x))``, of an ``x`` that is kept ``eps`` away from 0 and 1."""
    x = _number(self)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    result = torch.log(x / (1 - x))
    return _as_result(torch.where((x < 0) | (x > 1), math.nan, result), self)
