"""Parts of special functions: dtypes, polynomials, and polynomials that approximate a function on an interval.

A fit agrees with PyTorch's float64 function in the Chebyshev points of an interval (Trefethen,
Approximation Theory and Approximation Practice, 2013, chapter 2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_special.torch_internals import without_modes


def widened(self: Tensor) -> Tensor:
    """Returns a tensor to compute with: integers and half precision in float32."""
    return self if self.dtype is torch.float64 else self.to(torch.float32)


def as_result(value: Tensor, self: Tensor) -> Tensor:
    """Returns a function's value in the op's dtype: NaN for NaN, which limits may have lost."""
    if not self.dtype.is_floating_point:
        return value
    return torch.where(self != self, self, value.to(self.dtype))


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
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
        with without_modes():
            points = (low + high + (high - low) * torch.from_numpy(t)) / 2
            return function(points).numpy()

    series = chebyshev.chebinterpolate(sample, degree)
    return tuple(float(coefficient) for coefficient in chebyshev.cheb2poly(series)[::-1])


def fitted(
    x: Tensor, function: Callable[[Tensor], Tensor], low: float, high: float, degree: int
) -> Tensor:
    """Returns an approximation of a function on an interval; ``x`` outside of it is moved to its ends."""
    t = x.clamp(low, high) * (2 / (high - low)) - (high + low) / (high - low)
    return polynomial(t, _fit(function, low, high, degree))
