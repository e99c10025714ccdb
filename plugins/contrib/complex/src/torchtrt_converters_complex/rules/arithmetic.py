"""Arithmetic and comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_complex.pairs import Pair, as_pair, is_complex, rule, spread

aten = torch.ops.aten


@rule(aten.add.Tensor, aten.add.Scalar)
def add(self: Any, other: Any, alpha: Any = 1) -> Pair:
    """Returns ``self + alpha * other``."""
    first, second = as_pair(self), as_pair(other if alpha == 1 else multiply(other, alpha))
    real = first.real + second.real
    if not is_complex(self):
        return Pair(real, spread(second.imag, real))
    if not is_complex(other) and not is_complex(alpha):
        return Pair(real, spread(first.imag, real))
    return Pair(real, first.imag + second.imag)


@rule(aten.sub.Tensor, aten.sub.Scalar)
def subtract(self: Any, other: Any, alpha: Any = 1) -> Pair:
    """Returns ``self - alpha * other``."""
    return add(self, other, -alpha)


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_from(self: Any, other: Any, alpha: Any = 1) -> Pair:
    """Returns ``other - alpha * self``."""
    return add(other, self, -alpha)


def product(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns the complex form of a product of two operands. Either may be real.

    Args:
        combine: The product of two real operands, linear in each.
    """

    def multiplied(self: Any, other: Any) -> Any:
        if not is_complex(self) and not is_complex(other):
            return combine(self, other)
        if not is_complex(self):
            second = as_pair(other)
            return Pair(combine(self, second.real), combine(self, second.imag))
        first = as_pair(self)
        if not is_complex(other):
            return Pair(combine(first.real, other), combine(first.imag, other))
        second = as_pair(other)
        return Pair(
            combine(first.real, second.real) - combine(first.imag, second.imag),
            combine(first.real, second.imag) + combine(first.imag, second.real),
        )

    return multiplied


multiply = product(lambda first, second: first * second)
rule(aten.mul.Tensor, aten.mul.Scalar)(multiply)


@rule(aten.div.Tensor, aten.div.Scalar)
def divide(self: Any, other: Any) -> Pair:
    """Returns a quotient without squares of the divisor, which could be infinite (Smith, 1962)."""
    if not is_complex(other):
        return as_pair(self).map(lambda part: part / other)
    first, second = as_pair(self), as_pair(other)
    c, d = (
        part if isinstance(part, Tensor) else torch.full_like(_tensor(first), part)
        for part in (second.real, second.imag)
    )
    is_tall = torch.abs(d) > torch.abs(c)
    large, small = torch.where(is_tall, d, c), torch.where(is_tall, c, d)
    ratio = small / torch.where(large == 0, 1.0, large)
    scale = large + small * ratio  # 0 where the divisor is
    a, b = first.real, first.imag
    real = torch.where(is_tall, a * ratio + b, b * ratio + a) / scale
    imag = torch.where(is_tall, b * ratio - a, b - a * ratio) / scale
    return Pair(real, imag)


def _tensor(pair: Pair) -> Tensor:
    return pair.real if isinstance(pair.real, Tensor) else pair.imag


@rule(aten.reciprocal.default)
def reciprocal(self: Pair) -> Pair:
    """Returns ``1 / self``."""
    return divide(Pair(torch.ones_like(self.real), torch.zeros_like(self.imag)), self)


@rule(aten.neg.default, aten.negative.default)
def negate(self: Pair) -> Pair:
    """Returns ``-self``."""
    return self.map(torch.neg)


@rule(aten.square.default)
def square(self: Pair) -> Pair:
    """Returns ``self * self``."""
    return multiply(self, self)  # type: ignore[no-any-return]


@rule(aten.addcmul.default)
def addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Pair:
    """Returns ``self + value * tensor1 * tensor2``."""
    return add(self, multiply(tensor1, tensor2), value)


@rule(aten.addcdiv.default)
def addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Pair:
    """Returns ``self + value * tensor1 / tensor2``."""
    return add(self, divide(tensor1, tensor2), value)


@rule(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(self: Any, end: Any, weight: Any) -> Pair:
    """Returns ``self + weight * (end - self)``."""
    return add(self, multiply(subtract(end, self), weight))


def equal(self: Any, other: Any) -> Tensor:
    """Returns where two values are equal."""
    first, second = as_pair(self), as_pair(other)
    result: Tensor = (first.real == second.real) & (first.imag == second.imag)
    return result


rule(aten.eq.Tensor, aten.eq.Scalar)(equal)


@rule(aten.ne.Tensor, aten.ne.Scalar)
def unequal(self: Any, other: Any) -> Tensor:
    """Returns where two values differ."""
    return ~equal(self, other)


@rule(aten.isclose.default)
def is_close(
    self: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Returns where two values differ by at most ``atol + rtol * abs(other)``."""
    allowed = atol + torch.abs(rtol * magnitude(other))
    difference = magnitude(subtract(self, other))
    close = equal(self, other) | ((allowed < torch.inf) & (difference <= allowed))
    return close | (is_nan(self) & is_nan(other)) if equal_nan else close


@rule(aten.isnan.default)
def is_nan(self: Pair) -> Tensor:
    """Returns where a part is NaN."""
    return torch.isnan(self.real) | torch.isnan(self.imag)


@rule(aten.isinf.default)
def is_infinite(self: Pair) -> Tensor:
    """Returns where a part is infinite."""
    return torch.isinf(self.real) | torch.isinf(self.imag)


@rule(aten.isfinite.default)
def is_finite(self: Pair) -> Tensor:
    """Returns where both parts are finite."""
    return torch.isfinite(self.real) & torch.isfinite(self.imag)


@rule(aten.isreal.default)
def is_real(self: Pair) -> Tensor:
    """Returns where the imaginary part is 0."""
    return self.imag == 0  # type: ignore[no-any-return]


def is_true(self: Any) -> Tensor:
    """Returns where a value is not 0."""
    pair = as_pair(self)
    result: Tensor = (pair.real != 0) | (pair.imag != 0)
    return result


@rule(aten.logical_not.default)
def logical_not(self: Pair) -> Tensor:
    """Returns where a value is 0."""
    return ~is_true(self)


@rule(aten.logical_and.default)
def logical_and(self: Any, other: Any) -> Tensor:
    """Returns where neither value is 0."""
    return is_true(self) & is_true(other)


@rule(aten.logical_or.default)
def logical_or(self: Any, other: Any) -> Tensor:
    """Returns where a value is not 0."""
    return is_true(self) | is_true(other)


@rule(aten.logical_xor.default)
def logical_xor(self: Any, other: Any) -> Tensor:
    """Returns where one value is 0 and the other is not."""
    return is_true(self) ^ is_true(other)


@rule(aten.abs.default)
def magnitude(self: Any) -> Tensor:
    """Returns the distance from 0, without squares of large numbers."""
    return torch.hypot(self.real, self.imag) if is_complex(self) else torch.abs(self)


@rule(aten.angle.default)
def angle(self: Pair) -> Tensor:
    """Returns the angle from the positive real axis, from -pi to pi."""
    result = torch.atan2(self.imag, self.real)
    return torch.where(is_nan(self), torch.nan, result)


@rule(aten.sgn.default)
def sign(self: Pair) -> Pair:
    """Returns a value over its magnitude, and 0 for 0."""
    size = magnitude(self)
    zero = size == 0
    return self.map(lambda part: torch.where(zero, 0.0, part / torch.where(zero, 1.0, size)))


@rule(aten.conj.default, aten._conj.default, aten.conj_physical.default, promotes=False)
def conjugate(self: Any) -> Any:
    """Returns a value with the opposite imaginary part."""
    return Pair(self.real, -self.imag) if is_complex(self) else self
