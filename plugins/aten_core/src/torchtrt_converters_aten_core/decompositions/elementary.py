"""Ops computed by other ops, each a function of the op's own signature.

The compiler traces them where no converter accepts the op. PyTorch's own decompositions serve for
the rest; here are those that it lacks, or whose formula loses accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_blocks import slicing
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten
_LN2, _LN10 = math.log(2), math.log(10)


def _widened(self: Tensor) -> tuple[Tensor, torch.dtype]:
    """Returns numbers in float32 or better to compute with, and the floating-point dtype of the result."""
    dtype = self.dtype if self.dtype.is_floating_point else torch.get_default_dtype()
    return self.to(torch.promote_types(dtype, torch.float32)), dtype


@pack.decomposition(aten.log2.default)
def log2(self: Tensor) -> Tensor:
    """Returns the logarithm to the base 2: the nearest whole number, and the logarithm of what is beside it.

    So powers of 2 have whole logarithms, and no number has a logarithm on the other side of a whole one.
    """
    wide, dtype = _widened(self)
    whole = torch.clamp(torch.round(torch.log(wide) * (1 / _LN2)), -126, 127)
    rest = torch.log(wide / torch.pow(2.0, whole)) * (1 / _LN2)
    return (whole + rest).to(dtype)


@pack.decomposition(aten.log10.default)
def log10(self: Tensor) -> Tensor:
    """Returns the logarithm to the base 10, computed in float32 or better."""
    wide, dtype = _widened(self)
    return (torch.log(wide) * (1 / _LN10)).to(dtype)


@pack.decomposition(aten.ldexp.Tensor)
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """Returns ``self * 2**other``, where the result fits also if ``2**other`` does not.

    PyTorch takes care of that for floating point and whole exponents alone, and only where the op has its own kernel.
    """
    is_product: bool = aten.ldexp.Tensor._can_decompose()
    if is_product or not self.dtype.is_floating_point or other.dtype.is_floating_point:
        return self * torch.pow(2.0, other)
    scaled, dtype = _widened(self)
    exponent = torch.clamp(other.to(torch.float32), -400, 400)
    for _ in range(2):
        # The last factor of a small number is below 2**-24, so that only one product is rounded.
        large = torch.where(exponent > 127, 127.0, 0.0)
        step = torch.where(exponent < -126, -102.0, large)
        scaled, exponent = scaled * torch.pow(2.0, step), exponent - step
    return (scaled * torch.pow(2.0, torch.clamp(exponent, -126, 127))).to(dtype)


@pack.decomposition(aten.frexp.Tensor)
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each element as a mantissa from 0.5 to 1 and an int32 exponent of 2.

    Powers of 2 scale the element by a binary search for its exponent, so no step rounds.
    """
    if self.dtype is torch.float64:
        raise NotImplementedError("float64 has exponents that float32 lacks")
    mantissa = torch.abs(self.to(torch.float32))
    exponent = torch.zeros_like(mantissa)
    for step in (64, 64, 32, 16, 8, 4, 2, 1):
        small = mantissa < 2.0**-step
        mantissa = mantissa * torch.where(small, 2.0**step, 1.0)
        exponent = exponent - torch.where(small, float(step), 0.0)
    for step in (64, 32, 16, 8, 4, 2, 1, 1):
        large = mantissa >= 2.0 ** (step - 1)
        mantissa = mantissa * torch.where(large, 2.0**-step, 1.0)
        exponent = exponent + torch.where(large, float(step), 0.0)
    magnitude = torch.abs(self)
    ordinary = (magnitude > 0) & (magnitude < math.inf)
    mantissa = torch.where(self < 0, -mantissa, mantissa).to(self.dtype)
    exponent = torch.where(ordinary, exponent, 0.0).to(torch.int32)
    return torch.where(ordinary, mantissa, self), exponent


@pack.decomposition(aten.log_sigmoid.default)
def log_sigmoid(self: Tensor) -> Tensor:
    """Returns the logarithm of the sigmoid, without overflow; computed in float32 or better."""
    wide = self.to(torch.promote_types(self.dtype, torch.float32))
    result = torch.clamp_max(wide, 0) - torch.log1p(torch.exp(-torch.abs(wide)))
    return result.to(self.dtype)


@pack.decomposition(aten.exp2.default)
def exp2(self: Tensor) -> Tensor:
    """Returns 2 to the power of each element."""
    return torch.pow(2.0, self)


@pack.decomposition(aten.round.decimals)
def round_to(self: Tensor, *, decimals: int) -> Tensor:
    """Returns each element rounded to decimal places, in float32 or better; negative ones are before the point."""
    if decimals == 0 or not self.dtype.is_floating_point:
        return torch.round(self)
    power, wide = (
        float(10 ** abs(decimals)),
        self.to(torch.promote_types(self.dtype, torch.float32)),
    )
    rounded = (
        torch.round(wide * power) / power if decimals > 0 else torch.round(wide / power) * power
    )
    return rounded.to(self.dtype)


@pack.decomposition(aten.angle.default)
def angle(self: Tensor) -> Tensor:
    """Returns pi for negative numbers, 0 for others, and NaN for NaN."""
    if not self.dtype.is_floating_point:
        return torch.where(self < 0, math.pi, 0.0)
    return torch.where(self != self, self, torch.where(self < 0, math.pi, 0.0).to(self.dtype))


@pack.decomposition(aten.signbit.default)
def signbit(self: Tensor) -> Tensor:
    """Returns which elements have a minus sign, negative zero among them."""
    negative = self < 0
    if not self.dtype.is_floating_point:
        return negative
    return negative | ((self == 0) & (torch.reciprocal(self) < 0))


def _promoted(self: Tensor, other: Tensor | float) -> torch.dtype:
    """Returns the dtype of a floating-point result, by PyTorch's rules: the default one for integers alone."""
    dtype = torch.result_type(self, other)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


@pack.decomposition(aten.copysign.Tensor)
def copysign(self: Tensor, other: Tensor) -> Tensor:
    """Returns the magnitudes of ``self`` with the signs of ``other``."""
    magnitude = torch.abs(self.to(_promoted(self, other)))
    return torch.where(torch.signbit(other), -magnitude, magnitude)


@pack.decomposition(aten.copysign.Scalar)
def copysign_number(self: Tensor, other: float) -> Tensor:
    """Returns the magnitudes of ``self`` with the sign of a number."""
    magnitude = torch.abs(self.to(_promoted(self, other)))
    return -magnitude if math.copysign(1.0, other) < 0 else magnitude


@pack.decomposition(aten.fmax.default)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """Returns the larger elements, and the other one where one is NaN."""
    larger = torch.where(self != self, other, torch.maximum(self, other))
    return torch.where(other != other, self, larger)


@pack.decomposition(aten.fmin.default)
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """Returns the smaller elements, and the other one where one is NaN."""
    smaller = torch.where(self != self, other, torch.minimum(self, other))
    return torch.where(other != other, self, smaller)


@pack.decomposition(aten.hypot.default)
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """Returns ``sqrt(self**2 + other**2)`` without squaring large numbers."""
    first, second = torch.abs(self), torch.abs(other)
    largest, minimum = torch.maximum(first, second), torch.minimum(first, second)
    ratio = minimum / torch.where(largest == 0, 1.0, largest)
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
    dtype = _promoted(self, other)
    up, right = self.to(dtype), other.to(dtype)
    both = (torch.abs(up) == math.inf) & (torch.abs(right) == math.inf)
    up, right = torch.where(both, torch.sign(up), up), torch.where(both, torch.sign(right), right)
    tall = torch.abs(up) > torch.abs(right)
    steep = torch.atan(right / torch.where(tall, up, 1.0))
    flat = torch.atan(up / torch.where(right == 0, 1.0, right))
    half = torch.copysign(torch.full_like(up, math.pi / 2), up)
    turned = torch.where(torch.signbit(right), flat + 2 * half, flat)
    turned = torch.where((up == 0) & (right >= 0) & ~torch.signbit(right), up, turned)
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
    if equal_nan and self.dtype.is_floating_point:
        close = close | ((self != self) & (other != other))
    if not self.dtype.is_floating_point:
        other = other.to(
            torch.get_default_dtype()
        )  # as PyTorch does, whose differences do not overflow
    error = torch.abs(self - other)
    return close | ((error < math.inf) & (error <= atol + torch.abs(rtol * other)))


@pack.decomposition(aten.one_hot.default)
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Returns 1 at each index and 0 elsewhere, along a new last dimension."""
    if num_classes < 0:
        raise NotImplementedError("the number of classes depends on the data")
    classes = torch.arange(num_classes, dtype=self.dtype, device=self.device)
    return (self.unsqueeze(-1) == classes).to(torch.int64)


@pack.decomposition(aten.as_strided_scatter.default)
def as_strided_scatter(
    self: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """Returns ``self`` with elements at places in memory replaced by ``src``."""
    first, last = slicing.strided_bounds(size, stride, storage_offset or 0)
    if not self.is_contiguous() or first < 0 or last >= self.numel():
        raise NotImplementedError("the strides reach memory outside the tensor")
    offsets = slicing.strided_indices(size, stride, storage_offset or 0)
    if len(set(offsets)) < len(offsets):
        raise NotImplementedError("an element is replaced more than once")
    flat = self.reshape(-1).scatter(0, torch.tensor(offsets), src.reshape(-1))
    return flat.reshape(self.shape)


@pack.decomposition(aten.count_nonzero.default)
@pack.decomposition(aten.count_nonzero.dim_IntList)
def count_nonzero(self: Tensor, dim: int | list[int] | None = None) -> Tensor:
    """Returns how many elements are not zero, along some dimensions or of all."""
    counted = (self != 0).to(torch.int64)
    return counted.sum() if dim is None else counted.sum(dim)


_REDUCTIONS: dict[int, Callable[[Tensor], Tensor]] = {
    0: lambda loss: loss,
    1: torch.mean,
    2: torch.sum,
}
"""The values of ``reduction`` in the losses of ATen: none, mean and sum."""


@pack.decomposition(aten.margin_ranking_loss.default)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """Returns by how much pairs are ranked less clearly than by a margin."""
    loss = torch.clamp_min(margin - target * (input1 - input2), 0)
    return _REDUCTIONS[reduction](loss)


@pack.decomposition(aten.hinge_embedding_loss.default)
def hinge_embedding_loss(
    self: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """Returns the distance where the target is 1, and what is missing to a margin where it is -1."""
    apart = torch.where(target != 1, torch.clamp_min(margin - self, 0), 0)
    alike = torch.where(target != -1, self, 0)
    return _REDUCTIONS[reduction](apart + alike)


@pack.decomposition(aten.bilinear.default)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns ``input1 @ weight[i] @ input2`` for each output feature ``i``, in products of matrices."""
    features, first, second = weight.shape
    flat = weight.permute(1, 0, 2).reshape(first, features * second)
    half = (input1 @ flat).unflatten(-1, (features, second))
    result: Tensor = (half @ input2.unsqueeze(-1)).squeeze(-1)
    return result if bias is None else result + bias


def _spaced(start: Any, end: Any, steps: int, dtype: torch.dtype | None) -> tuple[Tensor, Any]:
    """Returns ``steps`` numbers at equal distances, in float32 or better, and the dtype they are to have.

    From both ends toward the middle, as PyTorch does it.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    wide = torch.promote_types(dtype, torch.float32)
    start, end = (x.to(wide) if isinstance(x, Tensor) else float(x) for x in (start, end))
    numbers = torch.arange(steps, dtype=wide)
    if steps == 1:
        return numbers + start, dtype
    if not dtype.is_floating_point:
        raise NotImplementedError("integers are cut from numbers that PyTorch rounds otherwise")
    step = (end - start) / (steps - 1)
    upward, downward = start + step * numbers, end - step * (steps - 1 - numbers)
    return torch.where(numbers < steps // 2, upward, downward), dtype


@pack.decomposition(aten.linspace.Tensor_Tensor)
@pack.decomposition(aten.linspace.Tensor_Scalar)
@pack.decomposition(aten.linspace.Scalar_Tensor)
def linspace(
    start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """Returns ``steps`` numbers at equal distances."""
    numbers, dtype = _spaced(start, end, steps, dtype)
    return numbers.to(dtype)


@pack.decomposition(aten.logspace.Tensor_Tensor)
@pack.decomposition(aten.logspace.Tensor_Scalar)
@pack.decomposition(aten.logspace.Scalar_Tensor)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Tensor:
    """Returns the powers of a base whose exponents are at equal distances."""
    exponents, dtype = _spaced(start, end, steps, dtype)
    return torch.pow(float(base), exponents).to(dtype)


@pack.decomposition(aten.resize.default)
def resize(self: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """Returns the first elements in another shape, of what lowering has put in the order of memory."""
    if memory_format not in (None, torch.contiguous_format):
        raise NotImplementedError("the elements are in another order in memory")
    count = math.prod(size)
    if not isinstance(count, int) or not isinstance(self.numel(), int) or count > self.numel():
        raise NotImplementedError("new elements have no values")
    return self.reshape(-1)[:count].reshape(size)
