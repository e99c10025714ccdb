"""Samples of volumes at any place, computed by other ops, each a function of the op's own signature."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten

_LINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


@pack.decomposition(aten.grid_sampler_3d.default)
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Returns samples of a volume at the places in a grid: the nearest element, or between eight of them."""
    lengths = input.shape[2:]
    if not all(isinstance(length, int) for length in lengths):
        raise NotImplementedError("a volume is sampled where its sizes are fixed")
    # The grid's coordinates are the other way round: width, height, depth.
    positions = [
        _position(grid[..., 2 - dim], length, padding_mode, align_corners)
        for dim, length in enumerate(lengths)
    ]
    if interpolation_mode == _NEAREST:
        return _take(input, [torch.round(position) for position in positions], padding_mode)
    lower = [torch.floor(position) for position in positions]
    result = None
    for corner in itertools.product((0, 1), repeat=3):
        weight = None
        for side, position, low in zip(corner, positions, lower, strict=True):
            share = position - low if side else 1 - (position - low)
            weight = share if weight is None else weight * share
        corner_places = [low + side for side, low in zip(corner, lower, strict=True)]
        assert weight is not None
        part = _take(input, corner_places, padding_mode, weight)
        result = part if result is None else result + part
    assert result is not None
    return result


def _position(coordinate: Tensor, length: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Returns coordinates from -1 to 1 as places along a dimension; beyond its ends by the padding mode."""
    if align_corners:
        position = (coordinate + 1) * ((length - 1) / 2)
        low, span = 0.0, float(length - 1)
    else:
        position = ((coordinate + 1) * length - 1) / 2
        low, span = -0.5, float(length)
    if padding_mode == _ZEROS:
        return position
    if padding_mode != _BORDER:
        position = _reflect(position - low, span) + low if span else torch.zeros_like(position)
    return position.clamp(0, length - 1)


def _reflect(distance: Tensor, span: float) -> Tensor:
    """Returns a distance that is mirrored at 0 and at ``span``."""
    distance = torch.abs(distance)
    turns = torch.floor(distance / span)
    rest = distance - turns * span
    return torch.where(turns - 2 * torch.floor(turns / 2) == 0, rest, span - rest)


def _take(
    input: Tensor, positions: list[Tensor], padding_mode: int, weight: Tensor | None = None
) -> Tensor:
    """Returns the elements of each channel at whole places, times a weight; those outside are 0, even at infinity."""
    flat, inside = None, None
    for position, length in zip(positions, input.shape[2:], strict=True):
        held = position.clamp(0, length - 1).to(torch.int64)
        flat = held if flat is None else flat * length + held
        fits = (position >= 0) & (position <= length - 1)
        inside = fits if inside is None else inside & fits
    assert flat is not None
    assert inside is not None
    index = flat.reshape(flat.shape[0], 1, -1).expand(-1, input.shape[1], -1)
    values = input.flatten(2).gather(2, index).reshape(*input.shape[:2], *flat.shape[1:])
    if weight is not None:
        values = values * weight.unsqueeze(1)
    return torch.where(inside.unsqueeze(1), values, 0.0) if padding_mode == _ZEROS else values
