"""Elementary functions.

Inverse functions follow Kahan, Branch Cuts for Complex Elementary Functions (1987), so that results are PyTorch's on
either side of a branch cut.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_complex.pairs import Pair, as_pair, rule
from torchtrt_converters_complex.rules.arithmetic import (
    add,
    angle,
    conjugate,
    divide,
    is_true,
    magnitude,
    multiply,
    negate,
    reciprocal,
    square,
)

aten = torch.ops.aten
_STEEP = 40.0
"""Beyond it, a hyperbolic tangent is 1 in float32 and in float64."""


@rule(aten.exp.default)
def exp(self: Pair) -> Pair:
    """Returns ``exp(self)``."""
    size = torch.exp(self.real)
    imag = torch.where(self.imag == 0, self.imag, size * torch.sin(self.imag))
    return Pair(size * torch.cos(self.imag), imag)


@rule(aten.exp2.default)
def exp2(self: Pair) -> Pair:
    """Returns 2 to the power of a value."""
    return exp(multiply(self, math.log(2)))


@rule(aten.expm1.default)
def expm1(self: Pair) -> Pair:
    """Returns ``exp(self) - 1``, accurate near 0."""
    half = torch.sin(self.imag / 2)
    small = torch.expm1(self.real)
    real = small * torch.cos(self.imag) - 2 * half * half
    return Pair(real, torch.exp(self.real) * torch.sin(self.imag))


@rule(aten.log.default)
def log(self: Pair) -> Pair:
    """Returns the principal logarithm."""
    return Pair(torch.log(magnitude(self)), angle(self))


@rule(aten.log2.default)
def log2(self: Pair) -> Pair:
    """Returns the principal logarithm to the base 2."""
    return log(self).map(lambda part: part / math.log(2))


@rule(aten.log10.default)
def log10(self: Pair) -> Pair:
    """Returns the principal logarithm to the base 10."""
    return log(self).map(lambda part: part / math.log(10))


@rule(aten.log1p.default)
def log1p(self: Pair) -> Pair:
    """Returns the principal logarithm of ``1 + self``, accurate near 0."""
    x, y = self.real, self.imag
    shifted = Pair(x + 1, y)
    near = 0.5 * torch.log1p(x * (2 + x) + y * y)
    is_near = (torch.abs(x) < 0.5) & (torch.abs(y) < 0.5)
    return Pair(torch.where(is_near, near, torch.log(magnitude(shifted))), angle(shifted))


@rule(aten.sqrt.default)
def sqrt(self: Pair) -> Pair:
    """Returns the root with a real part of at least 0, without cancellation."""
    x, y = self.real, self.imag
    root = torch.sqrt((torch.abs(x) + magnitude(self)) / 2)
    other = torch.abs(y) / (2 * torch.where(root == 0, 1.0, root))
    is_right = x >= 0
    real = torch.where(is_right, root, other)
    imag = torch.copysign(torch.where(is_right, other, root), y)
    return Pair(real, imag)


@rule(aten.rsqrt.default)
def rsqrt(self: Pair) -> Pair:
    """Returns ``1 / sqrt(self)``."""
    return reciprocal(sqrt(self))


def _simple_power(self: Any, exponent: float) -> Pair | None:
    """Returns a power for which PyTorch has a kernel of its own, or None."""
    kernels = {0.5: sqrt, -0.5: rsqrt, -1.0: reciprocal, 2.0: square}
    if exponent in kernels:
        return kernels[exponent](self)
    if exponent == 1:
        return self  # type: ignore[no-any-return]
    if exponent == 3:
        return multiply(square(self), self)  # type: ignore[no-any-return]
    if exponent == -2:
        return reciprocal(square(self))
    return None


@rule(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(self: Any, exponent: Any) -> Pair:
    """Returns a power: ``exp(exponent * log(self))``, 0 for a base of 0, and 1 for an exponent of 0."""
    if isinstance(exponent, complex) and exponent.imag == 0:
        exponent = exponent.real
    if isinstance(exponent, (int, float)):
        if exponent == 0:
            return Pair(torch.ones_like(self.real), torch.zeros_like(self.imag))
        simple = _simple_power(self, float(exponent))
        if simple is not None:
            return simple
    base = _tensors(self, exponent)
    is_zero = ~is_true(base)
    safe = Pair(torch.where(is_zero, 1.0, base.real), base.imag)
    result = exp(multiply(log(safe), exponent))
    at_zero: Any = float(exponent == 0)
    if isinstance(exponent, (Pair, Tensor)):
        at_zero = (~is_true(exponent)).to(result.real.dtype)
    return Pair(torch.where(is_zero, at_zero, result.real), torch.where(is_zero, 0.0, result.imag))


def _tensors(base: Any, exponent: Any) -> Pair:
    """Returns the base as two tensors."""
    pair = as_pair(base)
    like = exponent.real if isinstance(exponent, Pair) else exponent
    real, imag = (
        part if isinstance(part, Tensor) else torch.full_like(like, part)
        for part in (pair.real, pair.imag)
    )
    return Pair(real, imag)


@rule(aten.sin.default)
def sin(self: Pair) -> Pair:
    """Returns the sine."""
    x, y = self.real, self.imag
    return Pair(torch.sin(x) * torch.cosh(y), torch.cos(x) * torch.sinh(y))


@rule(aten.cos.default)
def cos(self: Pair) -> Pair:
    """Returns the cosine."""
    x, y = self.real, self.imag
    return Pair(torch.cos(x) * torch.cosh(y), -torch.sin(x) * torch.sinh(y))


def _turned(self: Pair) -> Pair:
    """Returns ``i * self``."""
    return Pair(-self.imag, self.real)


def _turned_back(self: Pair) -> Pair:
    """Returns ``-i * self``."""
    return Pair(self.imag, -self.real)


@rule(aten.sinh.default)
def sinh(self: Pair) -> Pair:
    """Returns the hyperbolic sine."""
    x, y = self.real, self.imag
    return Pair(torch.sinh(x) * torch.cos(y), torch.cosh(x) * torch.sin(y))


@rule(aten.cosh.default)
def cosh(self: Pair) -> Pair:
    """Returns the hyperbolic cosine."""
    x, y = self.real, self.imag
    return Pair(torch.cosh(x) * torch.cos(y), torch.sinh(x) * torch.sin(y))


@rule(aten.tanh.default)
def tanh(self: Pair) -> Pair:
    """Returns the hyperbolic tangent, by the tangents of both parts (Kahan, 1987)."""
    x, y = self.real.clamp(-_STEEP, _STEEP), self.imag
    sine, cosine = torch.sin(y), torch.cos(y)
    size = torch.sinh(x)
    below = size * size + cosine * cosine
    return Pair(size * torch.cosh(x) / below, sine * cosine / below)


@rule(aten.tan.default)
def tan(self: Pair) -> Pair:
    """Returns the tangent."""
    return _turned_back(tanh(_turned(self)))


def _roots(self: Pair) -> tuple[Pair, Pair]:
    """Returns ``sqrt(1 - self)`` and ``sqrt(1 + self)``."""
    return sqrt(Pair(1 - self.real, -self.imag)), sqrt(Pair(1 + self.real, self.imag))


@rule(aten.asin.default, aten.arcsin.default)
def asin(self: Pair) -> Pair:
    """Returns the principal arc sine."""
    below, above = _roots(self)
    real = torch.atan2(self.real, multiply(below, above).real)
    return Pair(real, torch.asinh(multiply(conjugate(below), above).imag))


@rule(aten.acos.default, aten.arccos.default)
def acos(self: Pair) -> Pair:
    """Returns the principal arc cosine."""
    below, above = _roots(self)
    imag = torch.asinh(multiply(conjugate(above), below).imag)
    return Pair(2 * torch.atan2(below.real, above.real), imag)


@rule(aten.asinh.default, aten.arcsinh.default)
def asinh(self: Pair) -> Pair:
    """Returns the principal inverse of the hyperbolic sine."""
    return _turned_back(asin(_turned(self)))


@rule(aten.acosh.default, aten.arccosh.default)
def acosh(self: Pair) -> Pair:
    """Returns the principal inverse of the hyperbolic cosine."""
    below = sqrt(Pair(self.real - 1, self.imag))
    above = sqrt(Pair(self.real + 1, self.imag))
    real = torch.asinh(multiply(conjugate(below), above).real)
    return Pair(real, 2 * torch.atan2(below.imag, above.real))


@rule(aten.atanh.default, aten.arctanh.default)
def atanh(self: Pair) -> Pair:
    """Returns the principal inverse of the hyperbolic tangent."""
    x, y = self.real, self.imag
    real = torch.log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4
    return Pair(real, torch.atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2)


@rule(aten.atan.default, aten.arctan.default)
def atan(self: Pair) -> Pair:
    """Returns the principal arc tangent."""
    return _turned_back(atanh(_turned(self)))


@rule(aten.sigmoid.default)
def sigmoid(self: Pair) -> Pair:
    """Returns ``1 / (1 + exp(-self))``."""
    return reciprocal(add(exp(negate(self)), 1.0))


@rule(aten.silu.default)
def silu(self: Pair) -> Pair:
    """Returns ``self / (1 + exp(-self))``."""
    return divide(self, add(exp(negate(self)), 1.0))


@rule(aten.polar.default)
def polar(abs: Tensor, angle: Tensor) -> Pair:
    """Returns the value with a magnitude and an angle."""
    return Pair(abs * torch.cos(angle), abs * torch.sin(angle))


@rule(aten.complex.default, promotes=False)
def combined(real: Tensor, imag: Tensor) -> Pair:
    """Returns the value with two parts, which broadcast."""
    return Pair(*torch.broadcast_tensors(real, imag))
