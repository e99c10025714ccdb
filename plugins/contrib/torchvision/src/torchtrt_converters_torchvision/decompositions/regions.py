"""Pooling of regions of interest: each box of an image becomes a small grid of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_torchvision import pack
from torchtrt_converters_torchvision.decompositions.sampling import (
    pixel_rows,
    sample_clamped,
    take_rows,
)

TABLE_LIMIT = 1 << 28
"""The maximum number of elements of the table in which maxima or sums of windows are looked up."""


def _points(start: Tensor, size: Tensor, count: int, samples: int) -> Tensor:
    """Returns where samples are taken along one side of the boxes: float32, ``(k, count * samples)``."""
    step = (size / count)[:, None]
    cell = torch.arange(count, dtype=torch.float32, device=start.device)
    part = torch.arange(samples, dtype=torch.float32, device=start.device) + 0.5
    coordinates = start[:, None, None] + cell[:, None] * step[..., None]
    coordinates = coordinates + part * step[..., None] / samples
    return coordinates.reshape(-1, count * samples)


def _known_samples(sampling_ratio: int) -> None:
    if sampling_ratio <= 0:
        message = "with sampling_ratio up to 0 the number of samples depends on the boxes: give one"
        raise NotImplementedError(message)


@pack.decomposition("torchvision::roi_align")
def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Returns the mean of ``sampling_ratio ** 2`` bilinear samples for each cell: ``(k, c, height, width)``."""
    _known_samples(sampling_ratio)
    _, channels, height, width = input.shape
    boxes = rois.to(torch.float32)
    left, top, right, bottom = (
        boxes[:, index] * spatial_scale - (0.5 if aligned else 0.0) for index in range(1, 5)
    )
    box_width, box_height = right - left, bottom - top
    if not aligned:
        box_width, box_height = box_width.clamp(min=1), box_height.clamp(min=1)
    y = _points(top, box_height, pooled_height, sampling_ratio)[:, :, None]
    x = _points(left, box_width, pooled_width, sampling_ratio)[:, None, :]
    first = (boxes[:, 0].to(torch.int64) * (height * width))[:, None, None]
    samples = sample_clamped(pixel_rows(input), first, y, x, height, width)
    grid = (-1, pooled_height, sampling_ratio, pooled_width, sampling_ratio, channels)
    mean = samples.reshape(grid).sum((2, 4)) / (sampling_ratio * sampling_ratio)
    return mean.permute(0, 3, 1, 2).to(input.dtype)


def _channels(input: Tensor, rois: Tensor, height: int, width: int) -> tuple[Any, Tensor]:
    """Returns how many channels a result has, and which channel of the input each element is from: int32."""
    channels = input.shape[1] // (height * width)
    numbers = torch.arange(channels * height * width, dtype=torch.int32, device=input.device)
    grid = numbers.reshape(1, channels, height, width)
    return channels, grid.expand(rois.shape[0], -1, -1, -1).contiguous()


@pack.decomposition("torchvision::ps_roi_align")
def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """Returns what RoIAlign does where each cell has channels of its own, and the channel of each element."""
    _known_samples(sampling_ratio)
    count, _, height, width = input.shape
    channels, mapping = _channels(input, rois, pooled_height, pooled_width)
    boxes = rois.to(torch.float32)
    left, top, right, bottom = (boxes[:, index] * spatial_scale - 0.5 for index in range(1, 5))
    y = _points(top, bottom - top, pooled_height, sampling_ratio)
    x = _points(left, right - left, pooled_width, sampling_ratio)
    y = y.reshape(-1, pooled_height, sampling_ratio, 1, 1)
    x = x.reshape(-1, 1, 1, pooled_width, sampling_ratio)
    # Each cell looks into images of its own, (n, cell) of them.
    cells = input.reshape(count, channels, pooled_height * pooled_width, height, width)
    cells = cells.permute(0, 2, 1, 3, 4).reshape(-1, channels, height, width)
    cell = torch.arange(pooled_height * pooled_width, device=input.device)
    image = boxes[:, 0].to(torch.int64)[:, None] * (pooled_height * pooled_width) + cell
    first = (image * (height * width)).reshape(-1, pooled_height, 1, pooled_width, 1)
    samples = sample_clamped(pixel_rows(cells), first, y, x, height, width)
    mean = samples.sum((2, 4)) / (sampling_ratio * sampling_ratio)
    return mean.permute(0, 3, 1, 2).to(input.dtype), mapping


def _round(x: Tensor) -> Tensor:
    """Returns the nearest integers, halves away from zero."""
    whole = torch.trunc(x)
    rest = x - whole
    return whole + (rest >= 0.5).to(x.dtype) - (rest <= -0.5).to(x.dtype)


@pack.decomposition("torchvision::roi_pool")
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Returns the maximum of each cell and its place, 0 and -1 where a cell is empty: ``(k, c, height, width)``.

    A table holds the maxima of all windows whose sides are powers of 2; a cell is four such windows
    that overlap.
    """
    levels_y, levels_x = _levels(input)
    count, _, height, width = input.shape
    boxes = rois.to(torch.float32)
    left, top, right, bottom = (_round(boxes[:, index] * spatial_scale) for index in range(1, 5))
    start_y, stop_y = _cells(top, bottom - top + 1, pooled_height, height)
    start_x, stop_x = _cells(left, right - left + 1, pooled_width, width)
    values, positions = _table(input, levels_y, levels_x)
    level_y, side_y = _level(stop_y - start_y, levels_y)
    level_x, side_x = _level(stop_x - start_x, levels_x)
    image = boxes[:, 0].to(torch.int64)[:, None, None]
    level = level_y[:, :, None] * levels_x + level_x[:, None, :]
    first = (level * count + image) * (height * width)
    best: Any = None
    for y in (start_y, stop_y - side_y):
        for x in (start_x, stop_x - side_x):
            y_, x_ = y.clamp(0, height - 1), x.clamp(0, width - 1)
            index = first + y_[:, :, None] * width + x_[:, None, :]
            window = take_rows(values, index), take_rows(positions, index)
            best = window if best is None else _better(best, window)
    empty = ((stop_y <= start_y)[:, :, None] | (stop_x <= start_x)[:, None, :]).unsqueeze(-1)
    highest = torch.where(empty, 0.0, best[0]).to(input.dtype)
    nowhere = empty | (best[1] == height * width)
    argmax = torch.where(nowhere, -1, best[1])
    return highest.permute(0, 3, 1, 2), argmax.permute(0, 3, 1, 2)


@pack.decomposition("torchvision::ps_roi_pool")
def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Returns the mean of each cell, which has channels of its own, 0 where it is empty, and the channels.

    A table holds the sums of all windows whose sides are powers of two.
    The sides of a cell are sums of such powers, so that nothing outside of it is read.
    The last row and column of an image are in no cell, as torchvision defines it.
    """
    levels_y, levels_x = _levels(input)
    count, _, height, width = input.shape
    channels, mapping = _channels(input, rois, pooled_height, pooled_width)
    number = pooled_height * pooled_width
    boxes = rois.to(torch.float32)
    left, top, right, bottom = (_round(boxes[:, index] * spatial_scale) for index in range(1, 5))
    start_y, stop_y = _cells(top, bottom - top, pooled_height, height - 1)
    start_x, stop_x = _cells(left, right - left, pooled_width, width - 1)
    # Each cell looks into images of its own, (n, cell) of them.
    cells = input.reshape(count, channels, number, height, width).permute(0, 2, 1, 3, 4)
    sums = _sums(cells.reshape(-1, channels, height, width), levels_y, levels_x)
    cell = torch.arange(number, device=input.device).reshape(1, pooled_height, pooled_width)
    image = boxes[:, 0].to(torch.int64)[:, None, None] * number + cell
    total: Any = 0.0
    for exponent_y, y, has_y in _windows(start_y, stop_y, levels_y):
        for exponent_x, x, has_x in _windows(start_x, stop_x, levels_x):
            level = exponent_y * levels_x + exponent_x
            first = (level * count * number + image) * (height * width)
            window_sums = take_rows(sums, first + y[:, :, None] * width + x[:, None, :])
            has = (has_y[:, :, None] & has_x[:, None, :]).unsqueeze(-1)
            total = total + torch.where(has, window_sums, 0.0)
    rows, columns = (stop_y - start_y).clamp(min=0), (stop_x - start_x).clamp(min=0)
    area = (rows[:, :, None] * columns[:, None, :]).clamp(min=1).to(torch.float32)
    mean = total / area.unsqueeze(-1)
    return mean.permute(0, 3, 1, 2).to(input.dtype), mapping


def _levels(input: Tensor) -> tuple[int, int]:
    """Returns how many powers of 2 are up to an image's height, and to its width."""
    height, width = input.shape[2:]
    if not all(isinstance(size, int) for size in input.shape):
        raise NotImplementedError("the images' sizes vary, and windows are looked up in a table")
    levels_y, levels_x = height.bit_length(), width.bit_length()
    if levels_y * levels_x * input.numel() > TABLE_LIMIT:
        raise NotImplementedError("the images are too large for a table of windows")
    return levels_y, levels_x


def _windows(start: Tensor, stop: Tensor, levels: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yields the powers of 2 that add up to a length: the exponent, where it begins, and whether it is part of it."""
    rest = (stop - start).clamp(min=0)
    for exponent in reversed(range(levels)):
        has = rest >= 1 << exponent
        yield exponent, start, has
        side = torch.where(has, 1 << exponent, 0)
        start, rest = start + side, rest - side


def _sums(input: Tensor, levels_y: int, levels_x: int) -> Tensor:
    """Returns the sums of windows in float32 as rows: level, image, row and column of the window's start."""
    rows, entries = [input.to(torch.float32)], []
    for exponent in range(levels_y - 1):
        rows.append(rows[-1] + _behind(rows[-1], 2, 1 << exponent, 0.0))
    for entry in rows:
        entries.append(entry)
        for exponent in range(levels_x - 1):
            entries.append(entries[-1] + _behind(entries[-1], 3, 1 << exponent, 0.0))
    return pixel_rows(torch.cat(entries))


def _cells(low: Tensor, size: Tensor, count: int, limit: int) -> tuple[Tensor, Tensor]:
    """Returns where the cells of boxes begin and end along one side, up to a limit: int64, ``(k, count)``."""
    step = (size.clamp(min=1) / count)[:, None]
    cell = torch.arange(count, dtype=torch.float32, device=low.device)
    start = torch.floor(cell * step) + low[:, None]
    stop = torch.ceil((cell + 1) * step) + low[:, None]
    return start.clamp(0, limit).to(torch.int64), stop.clamp(0, limit).to(torch.int64)


def _level(length: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Returns the exponent of the greatest power of 2 up to a length, and the power."""
    level, side = torch.zeros_like(length), torch.ones_like(length)
    for exponent in range(1, levels):
        reached = length >= 1 << exponent
        level = torch.where(reached, exponent, level)
        side = torch.where(reached, 1 << exponent, side)
    return level, side


def _better(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the greater value with its place; of equal ones the place that comes first."""
    (value, position), (other, there) = first, second
    earlier = torch.where(there < position, there, position)
    chosen = torch.where(value > other, position, torch.where(other > value, there, earlier))
    return torch.where(value > other, value, other), chosen


def _table(input: Tensor, levels_y: int, levels_x: int) -> tuple[Tensor, Tensor]:
    """Returns the maxima of windows and their places as rows: level, image, row and column of the window's start."""
    _, _, height, width = input.shape
    least = torch.finfo(torch.float32).min
    value = input.to(torch.float32)
    is_candidate = value > least  # neither what is NaN nor -inf is ever found
    numbers = torch.arange(height * width, dtype=torch.int32, device=input.device)
    numbers = numbers.reshape(height, width)
    here = (
        torch.where(is_candidate, value, least),
        torch.where(is_candidate, numbers, height * width),
    )
    rows = [here]
    for exponent in range(levels_y - 1):
        rows.append(_better(rows[-1], _moved(rows[-1], 2, 1 << exponent, least, height * width)))
    entries = []
    for entry in rows:
        entries.append(entry)
        for exponent in range(levels_x - 1):
            moved = _moved(entries[-1], 3, 1 << exponent, least, height * width)
            entries.append(_better(entries[-1], moved))
    values, positions = (torch.cat([entry[which] for entry in entries]) for which in range(2))
    return pixel_rows(values), pixel_rows(positions)


def _moved(
    entry: tuple[Tensor, Tensor], dim: int, by: int, least: float, nowhere: int
) -> tuple[Tensor, Tensor]:
    """Returns values and places as seen from ``by`` before, with nothing behind the last."""
    value, position = entry
    return _behind(value, dim, by, least), _behind(position, dim, by, nowhere)


def _behind(value: Tensor, dim: int, by: int, fill: float) -> Tensor:
    """Returns a tensor as seen from ``by`` before, with ``fill`` behind the last."""
    shape = list(value.shape)
    rest, shape[dim] = shape[dim] - by, by
    return torch.cat([value.narrow(dim, by, rest), value.new_full(shape, fill)], dim)
