"""torchvision's operators without their library: their schemas, and their definitions in plain Python.

The published builds of torchvision do not load beside every build of PyTorch, and torchvision's Python code does not
import without the operators. These definitions would clash with its own, so tests import this module first.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from tests.support.models import import_models

library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define(
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor"
)
library.define(
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)"
    " -> (Tensor, Tensor)"
)
library.define(
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio) -> (Tensor, Tensor)"
)
library.define(
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)"
    " -> (Tensor, Tensor)"
)
library.define(
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,"
    " SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"
    " SymInt offset_groups, bool use_mask) -> Tensor"
)
ops = torch.ops.torchvision


@torch.library.impl(library, "nms", "CPU")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Boxes one by one, best first: each that stays removes those behind it that overlap it."""
    boxes = dets.float()
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = scores.sort(descending=True, stable=True).indices
    removed = torch.zeros(len(boxes), dtype=torch.bool)
    kept = []
    for index in order.tolist():
        if removed[index]:
            continue
        kept.append(index)
        low = torch.maximum(boxes[index, :2], boxes[:, :2])
        high = torch.minimum(boxes[index, 2:], boxes[:, 2:])
        sides = (high - low).clamp(min=0)
        shared = sides[:, 0] * sides[:, 1]
        ratio = shared / (areas[index] + areas - shared)
        removed |= ratio.double() > iou_threshold
    return torch.tensor(kept, dtype=torch.int64)


def on_border(image: Tensor, y: float, x: float) -> float:
    """A bilinear sample of ``(h, w)`` as RoIAlign takes it."""
    height, width = image.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = y - top, x - left
    return float(
        image[top, left] * (1 - down) * (1 - across)
        + image[top, right] * (1 - down) * across
        + image[bottom, left] * down * (1 - across)
        + image[bottom, right] * down * across
    )


def in_zeros(image: Tensor, y: float, x: float) -> float:
    """A bilinear sample of ``(h, w)`` that is surrounded by zeros."""
    height, width = image.shape
    if y <= -1 or y >= height or x <= -1 or x >= width:
        return 0.0
    top, left = math.floor(y), math.floor(x)
    total = 0.0
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, across in ((left, 1 - (x - left)), (left + 1, x - left)):
            if 0 <= row < height and 0 <= column < width:
                total += float(image[row, column]) * down * across
    return total


def cells(*sizes: int):
    """Every combination of indices."""
    return itertools.product(*map(range, sizes))


@torch.library.impl(library, "roi_align", "CPU")
def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """The mean of samples in each cell of each box."""
    images, channels = input.double(), input.shape[1]
    result = torch.zeros(len(rois), channels, pooled_height, pooled_width, dtype=torch.float64)
    for k, (index, *box) in enumerate(rois.double().tolist()):
        left, top, right, bottom = (edge * spatial_scale - (0.5 if aligned else 0) for edge in box)
        width, height = right - left, bottom - top
        if not aligned:
            width, height = max(width, 1), max(height, 1)
        down, across = (
            sampling_ratio if sampling_ratio > 0 else math.ceil(side / count)
            for side, count in ((height, pooled_height), (width, pooled_width))
        )
        for c, ph, pw in cells(channels, pooled_height, pooled_width):
            total = 0.0
            for iy, ix in cells(down, across):
                y = top + (ph + (iy + 0.5) / down) * height / pooled_height
                x = left + (pw + (ix + 0.5) / across) * width / pooled_width
                total += on_border(images[int(index), c], y, x)
            result[k, c, ph, pw] = total / max(down * across, 1)
    return result.to(input.dtype)


@torch.library.register_fake("torchvision::roi_align")
def _(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    return input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)


@torch.library.impl(library, "ps_roi_align", "CPU")
def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """As RoIAlign, where each cell reads channels of its own."""
    images = input.double()
    channels = input.shape[1] // (pooled_height * pooled_width)
    result = torch.zeros(len(rois), channels, pooled_height, pooled_width, dtype=torch.float64)
    mapping = torch.zeros(result.shape, dtype=torch.int32)
    for k, (index, *box) in enumerate(rois.double().tolist()):
        left, top, right, bottom = (side * spatial_scale - 0.5 for side in box)
        for c, ph, pw in cells(channels, pooled_height, pooled_width):
            source = (c * pooled_height + ph) * pooled_width + pw
            total = 0.0
            for iy, ix in cells(sampling_ratio, sampling_ratio):
                y = top + (ph + (iy + 0.5) / sampling_ratio) * (bottom - top) / pooled_height
                x = left + (pw + (ix + 0.5) / sampling_ratio) * (right - left) / pooled_width
                total += on_border(images[int(index), source], y, x)
            result[k, c, ph, pw] = total / sampling_ratio**2
            mapping[k, c, ph, pw] = source
    return result.to(input.dtype), mapping


@torch.library.register_fake("torchvision::ps_roi_align")
def _(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    channels = input.shape[1] // (pooled_height * pooled_width)
    result = input.new_empty(rois.shape[0], channels, pooled_height, pooled_width)
    return result, torch.empty_like(result, dtype=torch.int32)


def half_away(number: float) -> int:
    """The nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(number) + 0.5), number))


@torch.library.impl(library, "roi_pool", "CPU")
def roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """The maximum in each cell of each box, and where it is."""
    _, channels, height, width = input.shape
    result = torch.zeros(len(rois), channels, pooled_height, pooled_width)
    positions = torch.full(result.shape, -1, dtype=torch.int32)
    for k, (index, *box) in enumerate(rois.tolist()):
        left, top, right, bottom = (half_away(side * spatial_scale) for side in box)
        step_y = max(bottom - top + 1, 1) / pooled_height
        step_x = max(right - left + 1, 1) / pooled_width
        for c, ph, pw in cells(channels, pooled_height, pooled_width):
            rows = range(
                min(max(math.floor(ph * step_y) + top, 0), height),
                min(max(math.ceil((ph + 1) * step_y) + top, 0), height),
            )
            columns = range(
                min(max(math.floor(pw * step_x) + left, 0), width),
                min(max(math.ceil((pw + 1) * step_x) + left, 0), width),
            )
            best = 0.0 if not (len(rows) and len(columns)) else torch.finfo(torch.float32).min
            for y, x in itertools.product(rows, columns):
                if float(input[int(index), c, y, x]) > best:
                    best = float(input[int(index), c, y, x])
                    positions[k, c, ph, pw] = y * width + x
            result[k, c, ph, pw] = best
    return result.to(input.dtype), positions


@torch.library.register_fake("torchvision::roi_pool")
def _(input, rois, spatial_scale, pooled_height, pooled_width):
    result = input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)
    return result, torch.empty_like(result, dtype=torch.int32)


@torch.library.impl(library, "ps_roi_pool", "CPU")
def ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """The mean in each cell of each box, of channels of its own; the last row and column are in no cell."""
    _, every, height, width = input.shape
    channels = every // (pooled_height * pooled_width)
    result = torch.zeros(len(rois), channels, pooled_height, pooled_width, dtype=torch.float64)
    mapping = torch.zeros(result.shape, dtype=torch.int32)

    def cell(low: int, high: int, position: int, count: int, size: int) -> slice:
        step = torch.tensor(float(max(high - low, 1))) / count
        start, stop = math.floor(position * step) + low, math.ceil((position + 1) * step) + low
        return slice(*(min(max(end, 0), size - 1) for end in (start, stop)))

    for k, (index, *box) in enumerate(rois.tolist()):
        left, top, right, bottom = (half_away(side * spatial_scale) for side in box)
        for c, ph, pw in cells(channels, pooled_height, pooled_width):
            source = (c * pooled_height + ph) * pooled_width + pw
            rows = cell(top, bottom, ph, pooled_height, height)
            columns = cell(left, right, pw, pooled_width, width)
            inside = input[int(index), source, rows, columns].double()
            result[k, c, ph, pw] = inside.mean() if inside.numel() else 0.0
            mapping[k, c, ph, pw] = source
    return result.to(input.dtype), mapping


@torch.library.register_fake("torchvision::ps_roi_pool")
def _(input, rois, spatial_scale, pooled_height, pooled_width):
    channels = input.shape[1] // (pooled_height * pooled_width)
    result = input.new_empty(rois.shape[0], channels, pooled_height, pooled_width)
    return result, torch.empty_like(result, dtype=torch.int32)


@torch.library.impl(library, "deform_conv2d", "CPU")
def deform_conv2d(
    input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
    offset_groups, use_mask,
):  # fmt: skip
    """A convolution whose taps are moved by offsets and weighted by a mask."""
    count, channels, _, _ = input.shape
    out_channels, per_group, kernel_h, kernel_w = weight.shape
    out_h, out_w = offset.shape[2:]
    images, result = input.double(), torch.zeros(count, out_channels, out_h, out_w).double()
    per_offset = channels // offset_groups
    taken = torch.zeros(count, channels, kernel_h, kernel_w, out_h, out_w, dtype=torch.float64)
    for n, c, i, j, y, x in cells(*taken.shape):
        tap = (c // per_offset * kernel_h + i) * kernel_w + j
        down = y * stride_h - pad_h + i * dilation_h + float(offset[n, 2 * tap, y, x])
        across = x * stride_w - pad_w + j * dilation_w + float(offset[n, 2 * tap + 1, y, x])
        share = float(mask[n, tap, y, x]) if use_mask else 1.0
        taken[n, c, i, j, y, x] = share * in_zeros(images[n, c], down, across)
    for o in range(out_channels):
        group = o // (out_channels // groups)
        part = taken[:, group * per_group : (group + 1) * per_group]
        result[:, o] = torch.einsum("ncijyx,cij->nyx", part, weight[o].double()) + bias[o].double()
    return result.to(input.dtype)


@torch.library.register_fake("torchvision::deform_conv2d")
def _(
    input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
    offset_groups, use_mask,
):  # fmt: skip
    return input.new_empty(input.shape[0], weight.shape[0], *offset.shape[2:])


try:
    vision = import_models("torchvision")
except ModuleNotFoundError:
    pass
else:
    vision.extension._has_ops = lambda: True


@torch.library.register_fake("torchvision::nms", allow_override=True)
def _(dets, scores, iou_threshold):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)
