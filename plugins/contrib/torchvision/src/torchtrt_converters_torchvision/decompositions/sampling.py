"""Reads images between their pixels: rows of channels are gathered at the four pixels around a point."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def pixel_rows(images: Tensor) -> Tensor:
    """Returns ``(n, c, h, w)`` as rows of channels, one for each pixel: ``(n * h * w, c)``."""
    count, channels, height, width = images.shape
    return images.permute(0, 2, 3, 1).reshape(count * height * width, channels)


def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Returns the rows at integer places: ``(*index.shape, channels)``."""
    taken = torch.index_select(rows, 0, index.reshape(-1))
    return taken.reshape(*index.shape, rows.shape[1])


def sample_clamped(
    rows: Tensor, first: Tensor, y: Tensor, x: Tensor, height: Any, width: Any
) -> Tensor:
    """Returns bilinear samples as RoIAlign takes them, in float32.

    Up to one pixel outside a point counts as on the border, and beyond as 0.

    Args:
        rows: The pixels, ``(count, channels)``.
        first: Where the image of each point begins among the rows.
        y: The points' coordinates in pixels, from 0 in the middle of the first.
        x: Of a shape that broadcasts with ``y`` and ``first``.
        height: The images' height.
        width: The images' width.
    """
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(min=0).clamp(max=height - 1), x.clamp(min=0).clamp(max=width - 1)
    low_y, low_x = torch.floor(y), torch.floor(x)
    high_y = (low_y + 1).clamp(max=height - 1)
    high_x = (low_x + 1).clamp(max=width - 1)
    total: Any = 0.0
    for places_y, share_y in ((low_y, 1 - (y - low_y)), (high_y, y - low_y)):
        for places_x, share_x in ((low_x, 1 - (x - low_x)), (high_x, x - low_x)):
            index = first + places_y.to(torch.int64) * width + places_x.to(torch.int64)
            weight = torch.where(inside, share_y * share_x, 0.0).unsqueeze(-1)
            total = total + take_rows(rows, index).to(torch.float32) * weight
    result: Tensor = total
    return result


def sample_with_zeros(
    rows: Tensor, first: Tensor, y: Tensor, x: Tensor, height: Any, width: Any
) -> Tensor:
    """Returns bilinear samples in float32 of images around which everything is 0.

    The arguments are those of ``sample_clamped``.
    """
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    low_y, low_x = torch.floor(y), torch.floor(x)
    total: Any = 0.0
    for places_y, share_y in ((low_y, 1 - (y - low_y)), (low_y + 1, y - low_y)):
        for places_x, share_x in ((low_x, 1 - (x - low_x)), (low_x + 1, x - low_x)):
            there = inside & (places_y >= 0) & (places_y <= height - 1)
            there = there & (places_x >= 0) & (places_x <= width - 1)
            row = places_y.clamp(min=0).clamp(max=height - 1).to(torch.int64)
            column = places_x.clamp(min=0).clamp(max=width - 1).to(torch.int64)
            weight = torch.where(there, share_y * share_x, 0.0).unsqueeze(-1)
            taken = take_rows(rows, first + row * width + column).to(torch.float32)
            total = total + torch.where(weight == 0, 0.0, taken * weight)
    result: Tensor = total
    return result
