"""The parts of an autoencoder that are compiled, and their sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from diffusers import AutoencoderKL, AutoencoderKLWan

from torchtrt_converters_diffusers.sizes import AxesOfArguments, Axis, PipelineSizes, Range

Autoencoder = AutoencoderKL
"""Pipelines call its ``decode`` and ``encode``, which call the modules ``decoder`` and ``encoder``."""
REFUSED: Mapping[type, str] = {
    AutoencoderKLWan: "its decoder and its encoder keep frames in lists among their arguments, and a program does not "
    "repeat what Python code does besides its tensors",
}
"""The reasons of autoencoders that are not compiled."""


def autoencoder_parts(model: Any, sizes: PipelineSizes) -> Iterator[tuple[str, AxesOfArguments]]:
    """Yields the names of an autoencoder's modules that are compiled, and the sizes of each."""
    tile = model.tile_latent_min_size if model.use_tiling else None
    height, width = sizes.latent_height(), sizes.latent_width()
    images = sizes.latent_images()
    yield "decoder", {"sample": {0: images, 2: _tiled(height, tile), 3: _tiled(width, tile)}}
    tile = model.tile_sample_min_size if model.use_tiling else None
    height, width = sizes.pixels()
    yield "encoder", {"sample": {0: images, 2: _tiled(height, tile), 3: _tiled(width, tile)}}


def _tiled(axis: Axis, tile: int | None) -> Axis:
    """Returns the sizes of the tiles into which an autoencoder divides a dimension, if it does.

    Tiles overlap by a quarter, and the last ones are what is left.
    """
    if tile is None:
        return axis
    most = min(tile, axis.sizes.most)
    return dataclasses.replace(axis, sizes=Range(1, most, most))


def tiling_hint(model: Any) -> str:
    """Returns the advice for a size that only tiles have; nothing for other models."""
    if not getattr(model, "use_tiling", False):
        return ""
    return (
        " The autoencoder's tiling may have made this size: enable tiling before compile_pipeline."
    )
