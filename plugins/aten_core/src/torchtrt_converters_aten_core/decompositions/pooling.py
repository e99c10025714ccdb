"""Pooling that TensorRT's layer does not do, each a function of the op's own signature.

The elements of every window are gathered by one table of their places, which is known before the
network runs, and reduced. Where a size is known only at run time, the windows are reduced along one
dimension after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchtrt_blocks.sizes import per_dimension
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@dataclass(frozen=True)
class Span:
    """The windows over one dimension.

    Attributes:
        indices: For each window the indices of its elements; those outside of the tensor count too.
        length: The dimension's size.
        reach: How many elements of a window are in the tensor or its padding.
    """

    indices: list[list[int]]
    length: int
    reach: list[int]


def _varies(self: Tensor, count: int) -> bool:
    """Returns whether one of the last ``count`` sizes is known only at run time."""
    return not all(isinstance(length, int) for length in self.shape[-count:])


def _per_dimension(
    count: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
) -> list[tuple[int, int, int, int]]:
    """Returns the size, step, padding and dilation of the windows over each of ``count`` dimensions."""
    arguments = (kernel_size, stride or kernel_size, padding, dilation)
    return list(zip(*(per_dimension(argument, count) for argument in arguments), strict=True))


def _spans(
    self: Tensor, windows_of: Sequence[tuple[int, int, int, int]], ceil_mode: bool
) -> list[Span]:
    """Returns the windows over each of the last dimensions, as many as PyTorch counts."""
    spans = []
    lengths = self.shape[-len(windows_of) :]
    for length, (size, step, pad, gap) in zip(lengths, windows_of, strict=True):
        room = length + 2 * pad - gap * (size - 1) - 1
        windows = (-(-room // step) if ceil_mode else room // step) + 1
        if ceil_mode and (windows - 1) * step >= length + pad:
            windows -= 1  # no window starts in the padding at the end
        starts = [window * step - pad for window in range(windows)]
        indices = [[start + gap * index for index in range(size)] for start in starts]
        reach = [min(start + size, length + pad) - start for start in starts]
        spans.append(Span(indices, length, reach))
    return spans


@dataclass(frozen=True)
class VaryingSpan:
    """The windows over one dimension whose size is known only at run time.

    Attributes:
        starts: For each window the place of its first element, which may be in the padding.
        indices: For each window the indices of its elements, those outside of the tensor included.
        inside: Which of them are in the tensor.
        reach: How many elements of a window are in the tensor or its padding.
        gap: The distance between the elements of a window.
    """

    starts: Tensor
    indices: Tensor
    inside: Tensor
    reach: Tensor
    gap: int

    def rows(self, tensor: Tensor, dim: int, filler: float) -> Tensor:
        """Returns the elements of each window of a dimension along two new last ones: windows and elements."""
        chosen = torch.where(self.inside, self.indices, 0).reshape(-1)
        rows = _at_the_end(tensor, dim).index_select(-1, chosen)
        return torch.where(self.inside, rows.unflatten(-1, self.indices.shape), filler)


def _at_the_end(tensor: Tensor, dim: int) -> Tensor:
    """Returns a tensor with a dimension moved to the end, in order in memory: PyTorch then compares no strides."""
    return tensor.movedim(dim, -1).clone(memory_format=torch.contiguous_format)


def _varying_spans(
    self: Tensor, windows_of: Sequence[tuple[int, int, int, int]], ceil_mode: bool
) -> list[VaryingSpan]:
    """Returns the same windows as ``_spans``, for sizes that are known only at run time."""
    spans = []
    lengths = self.shape[-len(windows_of) :]
    for length, (size, step, pad, gap) in zip(lengths, windows_of, strict=True):
        extent = gap * (size - 1) + 1
        windows = (length + 2 * pad - extent + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and pad + step > extent:
            # No window starts in the padding at the end.
            windows = torch.sym_min(windows, (length + pad - 1) // step + 1)
        starts = torch.arange(windows, device=self.device) * step - pad
        elements = torch.arange(size, device=self.device)
        indices = starts.unsqueeze(-1) + elements * gap
        inside = (indices >= 0) & (indices < length)
        reach = (starts.unsqueeze(-1) + elements < length + pad).sum(-1)
        spans.append(VaryingSpan(starts, indices, inside, reach, gap))
    return spans


def _parts(self: Tensor, output_size: int | Sequence[int], count: int) -> list[Span]:
    """Returns the parts of adaptive pooling as windows; their sizes differ by places outside of the tensor."""
    spans = []
    for length, size in zip(self.shape[-count:], per_dimension(output_size, count), strict=True):
        bounds = [(part * length // size, -(-(part + 1) * length // size)) for part in range(size)]
        widest = max(last - first for first, last in bounds)
        indices = [
            [index if index < last else -1 for index in range(first, first + widest)]
            for first, last in bounds
        ]
        spans.append(Span(indices, length, [last - first for first, last in bounds]))
    return spans


def _gather(self: Tensor, spans: Sequence[Span], filler: float) -> tuple[Tensor, Tensor]:
    """Returns the elements of each window along a new last dimension, and their places in the flattened dimensions."""
    count = len(spans)
    table = []
    for window in itertools.product(*(range(len(span.indices)) for span in spans)):
        rows = [span.indices[index] for span, index in zip(spans, window, strict=True)]
        table.append([_flat(positions, spans) for positions in itertools.product(*rows)])
    flat = [index for row in table for index in row]
    indices = torch.tensor(flat, device=self.device).reshape(len(table), -1)
    spread = self.flatten(-count) if count > 1 else self
    values = spread.index_select(-1, indices.clamp_min(0).reshape(-1))
    outputs = [len(span.indices) for span in spans]
    indices = indices.reshape(*outputs, -1)
    values = values.reshape(*self.shape[:-count], *indices.shape)
    if min(flat) < 0:
        values = torch.where(indices >= 0, values, filler)
    return values, indices


def _flat(positions: Sequence[int], spans: Sequence[Span]) -> int:
    result = 0
    for position, span in zip(positions, spans, strict=True):
        if not 0 <= position < span.length:
            return -1
        result = result * span.length + position
    return result


def _lowest(dtype: torch.dtype) -> float:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _largest(values: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the largest elements of the last dimension and their places: of equal ones the first, of NaN the last."""
    best, order = values.max(-1)
    if values.dtype.is_floating_point:
        positions = torch.arange(values.shape[-1], device=values.device)
        order = torch.maximum(order, torch.where(values != values, positions, -1).amax(-1))
    return best, order


def _maximum(self: Tensor, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window and its place; the first of equal ones."""
    values, indices = _gather(self, spans, _lowest(self.dtype))
    best, order = _largest(values)
    first = torch.where(indices >= 0, indices, indices.amax()).amin(-1)
    index = indices.expand(values.shape).gather(-1, order.unsqueeze(-1)).squeeze(-1)
    return best, torch.where(index < 0, first, index)  # where all are the lowest


def _max_pool(count: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Returns the decomposition of the pooling by maxima over the last ``count`` dimensions."""

    def max_pool_with_indices(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Returns the largest element of each window, dilated or not, and its place in the pooled dimensions."""
        windows_of = _per_dimension(count, kernel_size, stride, padding, dilation)
        if _varies(self, count):
            return _varying_maximum(self, _varying_spans(self, windows_of, ceil_mode))
        return _maximum(self, _spans(self, windows_of, ceil_mode))

    return max_pool_with_indices


def _adaptive_max_pool(count: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def adaptive_max_pool(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns the largest element of each part, and its place in the pooled dimensions."""
        if _varies(self, count):
            return _maximum_parts(self, per_dimension(output_size, count))
        return _maximum(self, _parts(self, output_size, count))

    return adaptive_max_pool


def _inside_parts(length: int, count: int, like: Tensor) -> Tensor:
    """Returns which places of a dimension each of ``count`` parts holds: ``(count, length)``."""
    parts = torch.arange(count, device=like.device).unsqueeze(1)
    positions = torch.arange(length, device=like.device)
    first = torch.div(parts * length, count, rounding_mode="floor")
    last = torch.div((parts + 1) * length + count - 1, count, rounding_mode="floor")
    return (positions >= first) & (positions < last)


def _maximum_parts(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each part and its place, along one dimension after the other."""
    result, flat = self, None
    for dim, size in reversed(list(enumerate(output_size, self.dim() - len(output_size)))):
        length = self.shape[dim]
        rows = result.movedim(dim, -1).unsqueeze(-2)
        inside = _inside_parts(length, size, self)
        best, order = _largest(torch.where(inside, rows, _lowest(self.dtype)))
        result, order = best.movedim(-1, dim), order.movedim(-1, dim)
        flat = (
            order
            if flat is None
            else flat.gather(dim, order) + order * math.prod(self.shape[dim + 1 :])
        )
    assert flat is not None
    return result, flat


def _varying_maximum(self: Tensor, spans: Sequence[VaryingSpan]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window and its place, along one dimension after the other."""
    result, flat = self, None
    for dim, span in reversed(list(enumerate(spans, self.dim() - len(spans)))):
        best, order = _largest(span.rows(result, dim, _lowest(self.dtype)))
        index = span.starts + order * span.gap
        index = torch.where(index < 0, index.remainder(span.gap), index)  # all are the lowest
        index = torch.where(index < self.shape[dim], index, 0)
        if flat is None:
            flat = index
        else:
            before = _at_the_end(flat, dim).gather(-1, index)
            flat = before + index * math.prod(self.shape[dim + 1 :])
        result, flat = best.movedim(-1, dim), flat.movedim(-1, dim)
    assert flat is not None
    if any(span.gap > 1 for span in spans):
        flat = _with_starts_of_empty(self, spans, flat)
    return result, flat


def _with_starts_of_empty(self: Tensor, spans: Sequence[VaryingSpan], flat: Tensor) -> Tensor:
    """Returns places of maxima, and for windows without an element the place of the first one that they could have."""
    first = torch.zeros((), dtype=torch.int64, device=self.device)
    is_empty = torch.zeros((), dtype=torch.bool, device=self.device)
    for dim, span in enumerate(spans, self.dim() - len(spans)):
        start = torch.where(span.starts < 0, span.starts.remainder(span.gap), span.starts)
        first = first.unsqueeze(-1) + start * math.prod(self.shape[dim + 1 :])
        is_empty = is_empty.unsqueeze(-1) | ~span.inside.any(-1)
    return torch.where(is_empty, first, flat)


def _varying_average(
    self: Tensor, spans: Sequence[VaryingSpan], count_include_pad: bool, divisor: int | None
) -> Tensor:
    """Returns what ``_average`` returns, along one dimension after the other."""
    is_half = self.dtype in (torch.float16, torch.bfloat16)
    total = self.to(torch.float32) if is_half else self
    number = torch.ones((), dtype=total.dtype, device=self.device)
    for dim, span in enumerate(spans, self.dim() - len(spans)):
        total = span.rows(total, dim, 0).sum(-1).movedim(-1, dim)
        counts = span.reach if count_include_pad else span.inside.sum(-1)
        number = number.unsqueeze(-1) * counts.to(number.dtype)
    return _divide(total, number if divisor is None else divisor).to(self.dtype)


def _adaptive_average_pool(count: int) -> Callable[..., Tensor]:
    """Returns the decomposition of the adaptive average pooling over the last ``count`` dimensions."""

    def adaptive_average_pool(self: Tensor, output_size: Sequence[int]) -> Tensor:
        """Returns the average of each part of dynamic dimensions, along one dimension after the other."""
        if self.dtype in (torch.float16, torch.bfloat16):
            return adaptive_average_pool(self.to(torch.float32), output_size).to(self.dtype)
        result = self
        for dim, size in enumerate(per_dimension(output_size, count), self.dim() - count):
            inside = _inside_parts(self.shape[dim], size, self)
            rows = torch.where(inside, result.movedim(dim, -1).unsqueeze(-2), 0.0)
            result = (rows.sum(-1) / inside.to(self.dtype).sum(-1)).movedim(-1, dim)
        return result

    return adaptive_average_pool


def _average(
    self: Tensor, spans: Sequence[Span], count_include_pad: bool, divisor: int | None
) -> Tensor:
    """Averages the windows that ``spans`` describe. PyTorch's options determine what the sum is divided by."""
    values, indices = _gather(self, spans, 0)
    total = values.sum(-1)
    if divisor is not None:
        return _divide(total, divisor)
    if not count_include_pad:
        return _divide(total, (indices >= 0).sum(-1).to(self.dtype))
    counts = [math.prod(reach) for reach in itertools.product(*(span.reach for span in spans))]
    divisors = torch.tensor(counts, dtype=self.dtype, device=self.device)
    return _divide(total, divisors.reshape(indices.shape[:-1]))


def _divide(total: Tensor, count: Tensor | int) -> Tensor:
    rounding = None if total.dtype.is_floating_point else "trunc"
    return torch.div(total, count, rounding_mode=rounding)


def _average_pool(count: int) -> Callable[..., Tensor]:
    """Returns the decomposition of the average pooling over the last ``count`` dimensions."""

    def average_pool(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """Returns the average of each window by PyTorch's counts."""
        windows_of = _per_dimension(count, kernel_size, stride, padding, 1)
        if _varies(self, count):
            varying = _varying_spans(self, windows_of, ceil_mode)
            return _varying_average(self, varying, count_include_pad, divisor_override)
        spans = _spans(self, windows_of, ceil_mode)
        return _average(self, spans, count_include_pad, divisor_override)

    return average_pool


for _op, _function in {
    aten.max_pool2d_with_indices.default: _max_pool(2),
    aten.max_pool3d_with_indices.default: _max_pool(3),
    aten.adaptive_avg_pool1d.default: _adaptive_average_pool(1),
    aten._adaptive_avg_pool2d.default: _adaptive_average_pool(2),
    aten.adaptive_avg_pool2d.default: _adaptive_average_pool(2),
    aten._adaptive_avg_pool3d.default: _adaptive_average_pool(3),
    aten.adaptive_avg_pool3d.default: _adaptive_average_pool(3),
    aten.adaptive_max_pool1d.default: _adaptive_max_pool(1),
    aten.adaptive_max_pool2d.default: _adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: _adaptive_max_pool(3),
    aten.avg_pool1d.default: _average_pool(1),
    aten.avg_pool2d.default: _average_pool(2),
    aten.avg_pool3d.default: _average_pool(3),
}.items():
    pack.decomposition(_op)(_function)


def _fractional_max_pool(count: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Returns the decomposition of fractional maximum pooling over some dimensions."""

    def fractional_max_pool(
        self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the largest element of windows at random distances, and its place in the pooled dimensions."""
        if _varies(self, count):
            raise NotImplementedError("windows are gathered where the sizes are fixed")
        lengths, outputs = self.shape[-count:], per_dimension(output_size, count)
        sizes, batch = per_dimension(kernel_size, count), self.dim() - count
        flat: Tensor | None = None
        for dim, (length, size, output) in enumerate(zip(lengths, sizes, outputs, strict=True)):
            # Of images the first sample is for the width, of volumes for the depth.
            sample = random_samples[..., 1 - dim if count == 2 else dim]
            sample = sample.reshape(*self.shape[:batch], 1)
            starts = torch.full_like(sample, length - size)
            if output > 1:
                step = (length - size) / (output - 1)
                windows = torch.arange(output - 1, device=self.device, dtype=sample.dtype)
                begun = torch.trunc((windows + sample) * step) - torch.trunc(sample * step)
                starts = torch.cat([begun, starts], -1)
            indices = starts.to(torch.int64).unsqueeze(-1) + torch.arange(size, device=self.device)
            shape = [*self.shape[:batch], *[1] * (2 * count)]
            shape[batch + dim], shape[batch + count + dim] = output, size
            indices = indices.reshape(shape)
            flat = indices if flat is None else flat * length + indices
        assert flat is not None
        flat = flat.flatten(batch + count)
        chosen = self.flatten(batch).gather(-1, flat.flatten(batch)).reshape(flat.shape)
        best, order = _largest(chosen)
        return best, flat.gather(-1, order.unsqueeze(-1)).squeeze(-1)

    return fractional_max_pool


pack.decomposition(aten.fractional_max_pool2d.default)(_fractional_max_pool(2))
pack.decomposition(aten.fractional_max_pool3d.default)(_fractional_max_pool(3))


@pack.decomposition(aten.max_unpool2d.default)
@pack.decomposition(aten.max_unpool3d.default)
def max_unpool(
    self: Tensor,
    indices: Tensor,
    output_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (),
) -> Tensor:
    """Returns an image or a volume that holds elements at their places and 0 elsewhere."""
    count = len(output_size)
    kept = self.shape[:-count]
    empty = self.new_zeros((*kept, math.prod(output_size)))
    filled = empty.scatter(-1, indices.flatten(-count), self.flatten(-count))
    return filled.reshape(*kept, *output_size)
