"""Bessel functions: fits near 0, and asymptotic forms beyond.

Each is a function with the op's own signature, and computes in float32. The cases state the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchtrt_converters_special import pack
from torchtrt_converters_special.approximation import as_result, fitted, polynomial, widened

aten = torch.ops.aten


@pack.decomposition(aten.special_i0e.default)
def i0e(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 0 times ``exp(-abs(x))``."""
    return _scaled_bessel(self, torch.special.i0e)


@pack.decomposition(aten.special_i1e.default)
def i1e(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 1 times ``exp(-abs(x))``."""
    x = widened(self)
    return as_result(_scaled_bessel(x, _even_i1e) * torch.sign(x), self)


def _even_i1e(x: Tensor) -> Tensor:
    result: Tensor = torch.special.i1e(torch.abs(x))
    return result


def _scaled_bessel(self: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns an even function that falls like the inverse root: a fit up to 8 and one of the inverse beyond."""
    x = torch.abs(widened(self))
    odd = function is _even_i1e  # it has a zero at 0, which a fit would lose
    near = fitted(x, _i1e_quotient if odd else function, 0.0, 8.0, 17) * (x if odd else 1.0)
    root = torch.rsqrt(x.clamp_min(8))
    tail = _i1e_tail if odd else _i0e_tail
    far = fitted(root * root, tail, 0.0, 0.125, 8) * root
    result = torch.where(x < 8, near, far)
    return as_result(torch.where(x == math.inf, 0.0, result), self)


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
    x = widened(self)
    return as_result(_grown(torch.special.i0e(x), x), self)


@pack.decomposition(aten.special_i1.default)
def i1(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 1."""
    x = widened(self)
    return as_result(_grown(torch.special.i1e(x), x), self)


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
    x = torch.abs(widened(self))
    near = fitted(x * x, _j0_of_square, 0.0, 64.0, 15)
    return as_result(torch.where(x < 8, near, _wave(x, 0)), self)


@pack.decomposition(aten.special_bessel_j1.default)
def bessel_j1(self: Tensor) -> Tensor:
    """Returns the Bessel function of the first kind of order 1."""
    x = widened(self)
    magnitude = torch.abs(x)
    near = fitted(x * x, _j1_quotient_of_square, 0.0, 64.0, 15) * magnitude
    result = torch.where(magnitude < 8, near, _wave(magnitude, 1))
    return as_result(torch.where(x < 0, -result, result), self)


def _j0_of_square(square: Tensor) -> Tensor:
    output: Tensor = torch.special.bessel_j0(torch.sqrt(square))
    return output


def _j1_quotient_of_square(square: Tensor) -> Tensor:
    x = torch.sqrt(square.clamp_min(1e-12))
    output: Tensor = torch.special.bessel_j1(x) / x
    return output


@pack.decomposition(aten.special_bessel_y0.default)
def bessel_y0(self: Tensor) -> Tensor:
    """Returns the Bessel function of the second kind of order 0."""
    x = widened(self)
    inner = torch.where(x > 0, x, 1.0)
    near = fitted(x * x, _y0_of_square, 0.0, 64.0, 15)
    near = near + 2 / math.pi * torch.log(inner) * torch.special.bessel_j0(x)
    return as_result(_right_of_zero(x, torch.where(x < 8, near, _wave(x, 0, True)), -1), self)


@pack.decomposition(aten.special_bessel_y1.default)
def bessel_y1(self: Tensor) -> Tensor:
    """Returns the Bessel function of the second kind of order 1."""
    x = widened(self)
    inner = torch.where(x > 0, x, 1.0)
    near = fitted(x * x, _y1_of_square, 0.0, 64.0, 15) * x
    pole = torch.log(inner) * torch.special.bessel_j1(x) - 1 / inner
    near = near + 2 / math.pi * pole
    return as_result(_right_of_zero(x, torch.where(x < 8, near, _wave(x, 1, True)), -1), self)


def _right_of_zero(x: Tensor, value: Tensor, sign: int) -> Tensor:
    """Returns a function with a pole of a sign at 0, and NaN below."""
    value = torch.where(x == 0, sign * math.inf, value)
    return torch.where(x < 0, math.nan, value)


def _positive_root(square: Tensor) -> Tensor:
    return torch.sqrt(square.clamp_min(1e-14))


def _y0_of_square(square: Tensor) -> Tensor:
    x = _positive_root(square)
    result: Tensor = torch.special.bessel_y0(x) - 2 / math.pi * torch.log(
        x
    ) * torch.special.bessel_j0(x)
    return result


def _y1_of_square(square: Tensor) -> Tensor:
    x = torch.sqrt(square.clamp_min(1e-4))
    pole = torch.log(x) * torch.special.bessel_j1(x) - 1 / x
    result: Tensor = (torch.special.bessel_y1(x) - 2 / math.pi * pole) / x
    return result


def _wave(x: Tensor, order: int, second_kind: bool = False) -> Tensor:
    """Returns a Bessel function far from 0 (Abramowitz and Stegun, 9.2.5, 9.2.6, 9.2.9 and 9.2.10)."""
    mu = 4 * order * order
    terms = [1.0]
    for k in range(1, 8):
        terms.append(terms[-1] * (mu - (2 * k - 1) ** 2) / (k * 8))
    inverse = 1 / x.clamp_min(8)
    square = -inverse * inverse
    even = polynomial(square, terms[6::-2])
    odd = polynomial(square, terms[7::-2]) * inverse
    phase = x - (order / 2 + 0.25) * math.pi
    cosine, sine = torch.cos(phase), torch.sin(phase)
    wave = even * sine + odd * cosine if second_kind else even * cosine - odd * sine
    return wave * torch.sqrt(inverse * (2 / math.pi))


@pack.decomposition(aten.special_spherical_bessel_j0.default)
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Returns ``sin(x) / x``, near 0 by its series."""
    number = widened(x)
    near = polynomial(number * number, (1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0))
    far = torch.sin(number) / torch.where(torch.abs(number) < 0.5, 1.0, number)
    result = torch.where(torch.abs(number) < 0.5, near, far)
    return as_result(torch.where(torch.abs(number) == math.inf, 0.0, result), x)


@pack.decomposition(aten.special_scaled_modified_bessel_k0.default)
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 0 times ``exp(x)``."""
    number = widened(x)
    inner = torch.where(number > 0, number, 1.0)
    near = fitted(number * number, _k0_of_square, 0.0, 4.0, 9)
    near = (near - torch.log(inner) * i0(number.clamp(0, 2))) * torch.exp(number.clamp(0, 2))
    return as_result(_right_of_zero(number, _second_kind(number, near, _k0_tail), 1), x)


@pack.decomposition(aten.special_scaled_modified_bessel_k1.default)
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 1 times ``exp(x)``."""
    number = widened(x)
    inner = torch.where(number > 0, number, 1.0)
    near = fitted(number * number, _k1_of_square, 0.0, 4.0, 9) * number
    near = near + torch.log(inner) * i1(number.clamp(0, 2)) + 1 / inner
    near = near * torch.exp(number.clamp(0, 2))
    return as_result(_right_of_zero(number, _second_kind(number, near, _k1_tail), 1), x)


@pack.decomposition(aten.special_modified_bessel_k0.default)
def modified_bessel_k0(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 0."""
    x = widened(self)
    return as_result(scaled_modified_bessel_k0(x) * torch.exp(-x.clamp_min(0)), self)


@pack.decomposition(aten.special_modified_bessel_k1.default)
def modified_bessel_k1(self: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 1."""
    x = widened(self)
    return as_result(scaled_modified_bessel_k1(x) * torch.exp(-x.clamp_min(0)), self)


def _second_kind(x: Tensor, near: Tensor, tail: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns a function that is fitted up to 2, and beyond falls like the inverse root."""
    root = torch.rsqrt(x.clamp_min(2))
    return torch.where(x < 2, near, fitted(root * root, tail, 0.0, 0.5, 10) * root)


def _k0_of_square(square: Tensor) -> Tensor:
    x = _positive_root(square)
    result: Tensor = torch.special.modified_bessel_k0(x) + torch.log(x) * torch.special.i0(x)
    return result


def _k1_of_square(square: Tensor) -> Tensor:
    x = torch.sqrt(square.clamp_min(1e-4))
    pole = torch.log(x) * torch.special.i1(x) + 1 / x
    result: Tensor = (torch.special.modified_bessel_k1(x) - pole) / x
    return result


_k0_tail = _tail(torch.special.scaled_modified_bessel_k0, 1e-9)
_k1_tail = _tail(torch.special.scaled_modified_bessel_k1, 1e-9)
