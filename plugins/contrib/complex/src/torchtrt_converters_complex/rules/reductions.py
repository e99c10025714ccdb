"""Reductions that are not linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_complex.pairs import Pair, rule
from torchtrt_converters_complex.rules.arithmetic import is_true, magnitude, multiply

aten = torch.ops.aten

LONGEST_PRODUCT = 4096
"""The maximum number of elements that are multiplied."""
LONGEST_RUNNING_PRODUCT = 64


@rule(aten.prod.dim_int)
def product_over(self: Pair, dim: int, keepdim: bool = False, dtype: Any = None) -> Pair:
    """Returns the product along a dimension of a fixed size: half of the elements times the others, and so on.

    Raises:
        NotImplementedError: The size varies, or is large.
    """
    if not self.real.dim():
        return self
    count = self.real.shape[dim]
    if not isinstance(count, int) or count > LONGEST_PRODUCT:
        raise NotImplementedError(f"products are of a fixed number of at most {LONGEST_PRODUCT}")
    dim %= self.real.dim()
    value = self
    if not count:
        shape = [1 if index == dim else size for index, size in enumerate(self.real.shape)]
        value = Pair(self.real.new_ones(shape), self.real.new_zeros(shape))
    while count > 1:
        half = count // 2
        first, second = _narrowed(value, dim, 0, half), _narrowed(value, dim, half, half)
        joined = multiply(first, second)
        if count % 2:
            last = _narrowed(value, dim, count - 1, 1)
            joined = Pair(
                torch.cat([joined.real, last.real], dim), torch.cat([joined.imag, last.imag], dim)
            )
        value, count = joined, half + count % 2
    return value if keepdim else value.map(lambda part: part.squeeze(dim))


def _narrowed(value: Pair, dim: int, start: int, length: int) -> Pair:
    return value.map(lambda part: part.narrow(dim, start, length))


@rule(aten.prod.default)
def product_of_all(self: Pair, dtype: Any = None) -> Pair:
    """Returns the product of all elements."""
    return product_over(self.map(lambda part: part.reshape(-1)), 0)


@rule(aten.cumprod.default)
def running_product(self: Pair, dim: int, dtype: Any = None) -> Pair:
    """Returns running products along a dimension of a fixed size, by doubling the number of factors.

    Raises:
        NotImplementedError: The size varies, or is large.
    """
    if not self.real.dim():
        return self
    count = self.real.shape[dim]
    if not isinstance(count, int) or count > LONGEST_RUNNING_PRODUCT:
        limit = LONGEST_RUNNING_PRODUCT
        raise NotImplementedError(f"running products are of a fixed number of at most {limit}")
    value, step = self, 1
    while step < count:
        factor = _narrowed(value, dim, 0, count - step)
        later = multiply(_narrowed(value, dim, step, count - step), factor)
        first = _narrowed(value, dim, 0, step)
        value = Pair(
            torch.cat([first.real, later.real], dim), torch.cat([first.imag, later.imag], dim)
        )
        step *= 2
    return value


def _variance(self: Pair, arguments: dict[str, Any]) -> Tensor:
    return torch.var(self.real, **arguments) + torch.var(self.imag, **arguments)


@rule(aten.var.correction)
def variance(
    self: Pair, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    """Returns the mean squared distance from the mean."""
    correction = 1 if correction is None else correction
    return _variance(self, {"dim": dim, "correction": correction, "keepdim": keepdim})


@rule(aten.var.dim)
def variance_over(self: Pair, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """Returns the mean squared distance from the mean."""
    return variance(self, dim, correction=int(unbiased), keepdim=keepdim)


@rule(aten.var.default)
def variance_of_all(self: Pair, unbiased: bool = True) -> Tensor:
    """Returns the mean squared distance of all elements from their mean."""
    return variance(self, correction=int(unbiased))


@rule(aten.std.correction)
def deviation(
    self: Pair, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    """Returns the root of the variance."""
    return torch.sqrt(variance(self, dim, correction=correction, keepdim=keepdim))


@rule(aten.std.dim)
def deviation_over(self: Pair, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """Returns the root of the variance."""
    return torch.sqrt(variance_over(self, dim, unbiased, keepdim))


@rule(aten.std.default)
def deviation_of_all(self: Pair, unbiased: bool = True) -> Tensor:
    """Returns the root of the variance of all elements."""
    return torch.sqrt(variance_of_all(self, unbiased))


@rule(aten.linalg_vector_norm.default)
def vector_norm(
    self: Pair, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Returns the norm of the magnitudes."""
    result: Tensor = torch.linalg.vector_norm(magnitude(self), ord, dim, keepdim)
    return result


@rule(aten.norm.Scalar)
def norm(self: Pair, p: Any = 2) -> Tensor:
    """Returns the norm of all magnitudes."""
    result: Tensor = torch.linalg.vector_norm(magnitude(self), p)
    return result


@rule(aten.norm.ScalarOpt_dim)
def norm_over(self: Pair, p: Any, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """Returns the norm of magnitudes along dimensions."""
    result: Tensor = torch.linalg.vector_norm(magnitude(self), 2 if p is None else p, dim, keepdim)
    return result


@rule(aten.any.default)
def any_true(self: Pair) -> Tensor:
    """Returns whether any element is not 0."""
    return is_true(self).any()


@rule(aten.any.dim, aten.any.dims)
def any_true_over(self: Pair, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Returns whether any element along dimensions is not 0."""
    return torch.any(is_true(self), dim, keepdim)


@rule(aten.all.default)
def all_true(self: Pair) -> Tensor:
    """Returns whether all elements are not 0."""
    return is_true(self).all()


@rule(aten.all.dim, aten.all.dims)
def all_true_over(self: Pair, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Returns whether all elements along dimensions are not 0."""
    return torch.all(is_true(self), dim, keepdim)


@rule(aten.count_nonzero.default)
def count(self: Pair, dim: int | None = None) -> Tensor:
    """Returns how many elements are not 0."""
    return torch.count_nonzero(is_true(self), dim)


@rule(aten.count_nonzero.dim_IntList)
def count_over(self: Pair, dim: Sequence[int]) -> Tensor:
    """Returns how many elements along dimensions are not 0."""
    return torch.count_nonzero(is_true(self), tuple(dim))
