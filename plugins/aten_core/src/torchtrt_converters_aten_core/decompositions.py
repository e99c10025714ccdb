"""Ops computed by other ops, each a function of the op's own signature.

The compiler traces them where no converter accepts the op. PyTorch's own decompositions serve for
the rest; here are those that it lacks, or whose formula loses accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchtrt_converters_aten_core._pack import pack

aten = torch.ops.aten
_LN2, _LN10 = math.log(2), math.log(10)


@pack.decomposition(aten.log2.default)
def log2(self: Tensor) -> Tensor:
    """Returns the logarithm to the base 2."""
    return torch.log(self) * (1 / _LN2)


@pack.decomposition(aten.log10.default)
def log10(self: Tensor) -> Tensor:
    """Returns the logarithm to the base 10."""
    return torch.log(self) * (1 / _LN10)


@pack.decomposition(aten.log_sigmoid.default)
def log_sigmoid(self: Tensor) -> Tensor:
    """Returns the logarithm of the sigmoid, without overflow."""
    return torch.clamp_max(self, 0) - torch.log1p(torch.exp(-torch.abs(self)))


@pack.decomposition(aten.exp2.default)
def exp2(self: Tensor) -> Tensor:
    """Returns 2 to the power of each element."""
    return torch.pow(2.0, self)


@pack.decomposition(aten.round.decimals)
def round_to(self: Tensor, *, decimals: int) -> Tensor:
    """Returns each element rounded to decimal places; negative ones are before the point."""
    if decimals == 0 or not self.dtype.is_floating_point:
        return torch.round(self)
    power = float(10 ** abs(decimals))
    return torch.round(self * power) / power if decimals > 0 else torch.round(self / power) * power


@pack.decomposition(aten.angle.default)
def angle(self: Tensor) -> Tensor:
    """Returns pi for negative numbers, 0 for others, and not a number for those that are none."""
    result = torch.where(self < 0, math.pi, 0.0)
    return torch.where(self != self, self, result) if self.dtype.is_floating_point else result


@pack.decomposition(aten.signbit.default)
def signbit(self: Tensor) -> Tensor:
    """Returns which elements have a minus sign, negative zero among them."""
    negative = self < 0
    if not self.dtype.is_floating_point:
        return negative
    return negative | ((self == 0) & (torch.reciprocal(self) < 0))


@pack.decomposition(aten.copysign.Tensor)
def copysign(self: Tensor, other: Tensor) -> Tensor:
    """Returns the magnitudes of ``self`` with the signs of ``other``."""
    magnitude = torch.abs(self) * 1.0
    return torch.where(torch.signbit(other), -magnitude, magnitude)


@pack.decomposition(aten.fmax.default)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """Returns the larger elements, and the other one where one is not a number."""
    larger = torch.where(self != self, other, torch.maximum(self, other))
    return torch.where(other != other, self, larger)


@pack.decomposition(aten.fmin.default)
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """Returns the smaller elements, and the other one where one is not a number."""
    smaller = torch.where(self != self, other, torch.minimum(self, other))
    return torch.where(other != other, self, smaller)


@pack.decomposition(aten.hypot.default)
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """Returns ``sqrt(self**2 + other**2)`` without squaring large numbers."""
    first, second = torch.abs(self), torch.abs(other)
    largest, least = torch.maximum(first, second), torch.minimum(first, second)
    ratio = least / torch.where(largest == 0, 1.0, largest)
    result = largest * torch.sqrt(ratio * ratio + 1)
    return torch.where((first == math.inf) | (second == math.inf), math.inf, result)


@pack.decomposition(aten.logaddexp.default)
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """Returns ``log(exp(self) + exp(other))`` without overflow."""
    largest = torch.maximum(self, other)
    result = largest + torch.log1p(torch.exp(-torch.abs(self - other)))
    return torch.where((self == other) & (torch.abs(self) == math.inf), self, result)


@pack.decomposition(aten.logaddexp2.default)
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """Returns ``log2(2**self + 2**other)`` without overflow."""
    largest = torch.maximum(self, other)
    difference = torch.log1p(torch.exp(torch.abs(self - other) * -_LN2)) * (1 / _LN2)
    return torch.where((self == other) & (torch.abs(self) == math.inf), self, largest + difference)


@pack.decomposition(aten.atan2.default)
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """Returns the angle of the point ``(other, self)``, in the right quadrant for signed zeros and infinities too."""
    up, right = self * 1.0, other * 1.0
    both = (torch.abs(up) == math.inf) & (torch.abs(right) == math.inf)
    up, right = torch.where(both, torch.sign(up), up), torch.where(both, torch.sign(right), right)
    tall = torch.abs(up) > torch.abs(right)
    steep = torch.atan(right / torch.where(tall, up, 1.0))
    flat = torch.atan(up / torch.where(right == 0, 1.0, right))
    half = torch.copysign(torch.full_like(up, math.pi / 2), up)
    turned = torch.where(torch.signbit(right), flat + 2 * half, flat)
    turned = torch.where((up == 0) & ~torch.signbit(right), up, turned)
    return torch.where(tall, half - steep, turned)


@pack.decomposition(aten.isclose.default)
def isclose(
    self: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Returns which elements differ by at most ``atol + rtol * abs(other)``."""
    close = self == other
    if self.dtype.is_floating_point:
        if equal_nan:
            close = close | ((self != self) & (other != other))
        finite = torch.abs(self) < math.inf
    else:
        finite = close | True
    allowed = atol + torch.abs(rtol * other)
    return close | (finite & (allowed < math.inf) & (torch.abs(self - other) <= allowed))


@pack.decomposition(aten.one_hot.default)
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Returns 1 at each index and 0 elsewhere, along a new last dimension."""
    if num_classes < 0:
        raise NotImplementedError("the number of classes depends on the data")
    classes = torch.arange(num_classes, dtype=self.dtype, device=self.device)
    return (self.unsqueeze(-1) == classes).to(torch.int64)


@pack.decomposition(aten.take.default)
def take(self: Tensor, index: Tensor) -> Tensor:
    """Returns elements of the flattened tensor."""
    return self.reshape(-1)[index]


@pack.decomposition(aten.select_scatter.default)
def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Returns ``self`` with one index of a dimension replaced by ``src``."""
    index = index + self.shape[dim] if index < 0 else index
    row = src.unsqueeze(dim)
    before, after = (
        self.narrow(dim, 0, index),
        self.narrow(dim, index + 1, self.shape[dim] - index - 1),
    )
    return torch.cat([piece for piece in (before, row, after) if piece.shape[dim] != 0], dim)


@pack.decomposition(aten.slice_scatter.default)
def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """Returns ``self`` with consecutive indices of a dimension replaced by ``src``."""
    size = self.shape[dim]
    if step != 1 or not isinstance(size, int):
        raise NotImplementedError("only fixed consecutive indices are replaced")
    first, last, _ = slice(start, end).indices(size)
    last = max(first, last)
    before, after = self.narrow(dim, 0, first), self.narrow(dim, last, size - last)
    pieces: Sequence[Tensor] = [p for p in (before, src, after) if p.shape[dim] != 0]
    return torch.cat(pieces, dim) if pieces else self.clone()


@pack.decomposition(aten.count_nonzero.default)
def count_nonzero(self: Tensor, dim: int | None = None) -> Tensor:
    """Returns how many elements are not zero."""
    counted = (self != 0).to(torch.int64)
    return counted.sum() if dim is None else counted.sum(dim)


@pack.decomposition(aten.count_nonzero.dim_IntList)
def count_nonzero_over(self: Tensor, dim: Sequence[int]) -> Tensor:
    """Returns how many elements along some dimensions are not zero."""
    return (self != 0).to(torch.int64).sum(dim)


@pack.decomposition(aten.isin.Tensor_Tensor)
def isin(
    elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Returns which elements are among others."""
    found = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~found if invert else found


@pack.decomposition(aten.index_fill.int_Scalar)
def index_fill(self: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """Returns ``self`` with a number at some indices of a dimension."""
    return torch.where(_chosen(self, dim, index), torch.full_like(self, value), self)


@pack.decomposition(aten.index_fill.int_Tensor)
def index_fill_tensor(self: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """Returns ``self`` with a 0-d tensor's value at some indices of a dimension."""
    return torch.where(_chosen(self, dim, index), value.to(self.dtype), self)


def _chosen(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Returns which indices of a dimension are among ``index``, in a shape that broadcasts to ``self``."""
    if self.dim() == 0:
        return torch.ones((), dtype=torch.bool, device=self.device)
    size = self.shape[dim]
    places = torch.arange(size, device=self.device).unsqueeze(1)
    flat = index.reshape(-1)
    chosen = ((flat == places) | (flat + size == places)).any(1)
    return chosen.reshape([size if place == dim % self.dim() else 1 for place in range(self.dim())])


@pack.decomposition(aten.index_copy.default)
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Returns ``self`` with ``source`` at some indices of a dimension."""
    if self.dim() == 0:
        return source.reshape(())
    shape = [-1 if place == dim % self.dim() else 1 for place in range(self.dim())]
    return self.scatter(dim, index.reshape(shape).expand(source.shape), source)
