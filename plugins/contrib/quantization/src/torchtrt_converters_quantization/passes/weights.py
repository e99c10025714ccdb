"""Weights, quantized and packed, whatever library has written them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from torchtrt_converters_quantization.formats import (
    BLOCK_FORMATS,
    FP8_LIMIT,
    merged,
    mxfp8_scales,
    nvfp4_scales,
    pack_fp4,
    spread,
    to_fp8,
)
from torchtrt_converters_quantization.ops import DEQUANTIZE
from torchtrt_converters_quantization.passes.graphs import Editor


@dataclass(frozen=True)
class Weight:
    """A quantized weight.

    Attributes:
        form: The name of its format.
        data: Its values, as ``torchtrt_quantization.dequantize`` takes them.
        scale: Its scale, as ``dequantize`` takes it.
        double: A number that its scales are multiplied by, or ``None``.
    """

    form: str
    data: Tensor
    scale: Tensor
    double: Tensor | None = None

    def node(self, editor: Editor, like: Node, dtype: torch.dtype) -> Node:
        """Returns a node that dequantizes it, before ``like``."""
        scale = editor.constant(self.scale, like)
        if self.double is not None:
            double = editor.constant(self.double, like)
            scale = editor.call(DEQUANTIZE["FP8"], (scale, double, dtype), like)
        data = editor.constant(self.data, like)
        return editor.call(DEQUANTIZE[self.form], (data, scale, dtype), like)


def integers(weight: Tensor, maximum: Tensor, bits: int, narrow: bool) -> tuple[Tensor, Tensor]:
    """Returns a weight as int8 and its scale, as ModelOpt rounds.

    Args:
        weight: Floating point.
        maximum: Its largest magnitudes, broadcast to it. A magnitude of 0 makes zeros.
        bits: 8 or 4.
        narrow: Whether the least integer is left out.
    """
    bound = 2.0 ** (bits - 1) - 1
    maximum = maximum.to(torch.float32)
    is_zero = maximum <= 2.0**-24
    maximum = torch.where(is_zero, bound, maximum)
    factor = torch.where(is_zero, 0.0, bound / maximum)
    steps = (weight.to(torch.float32) * factor).round()
    data = steps.clamp(-bound if narrow else -bound - 1, bound).to(torch.int8)
    return data, maximum / bound


def floats(weight: Tensor, maximum: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a weight as E4M3 and its scale, as ModelOpt rounds; see ``integers``."""
    maximum = maximum.to(torch.float32)
    factor = FP8_LIMIT / torch.where(maximum <= 2.0**-24, 1.0, maximum)
    return to_fp8(weight.to(torch.float32) * factor), 1 / factor


def in_blocks(weight: Tensor, form: str, double: Tensor) -> Weight:
    """Returns a weight in NVFP4 or MXFP8.

    Args:
        weight: Floating point; blocks divide its last dimension.
        form: ``"NVFP4"`` or ``"MXFP8"``.
        double: For NVFP4, the number that the scales of blocks are relative to.
    """
    values = weight.to(torch.float32)
    if form == "NVFP4":
        scales = nvfp4_scales(values, double)
        element_scales = spread(scales.to(torch.float32) * double, values.shape)
        return Weight("FP4", pack_fp4(values / element_scales), scales, double)
    exponents = mxfp8_scales(values)
    element_scales = spread(exponents.view(torch.float8_e8m0fnu).to(torch.float32), values.shape)
    return Weight("FP8", to_fp8(values / element_scales), exponents)


def along_one_dimension(scale: Tensor, shape: Any) -> Tensor:
    """Returns a scale whose blocks lie along one dimension at most, as TensorRT has them: the last that has blocks."""
    if scale.numel() == 1 or scale.dim() != len(shape) or merged(scale.shape, shape):
        return scale
    sizes = list(zip(scale.shape, shape, strict=True))
    blocked = [dim for dim, (blocks, size) in enumerate(sizes) if blocks != size]
    channels = [dim for dim, (blocks, _) in enumerate(sizes) if blocks != 1]
    if len(channels) == 1 and scale.shape[channels[0]] == shape[channels[0]]:
        return scale
    for dim in blocked[:-1]:
        scale = scale.repeat_interleave(shape[dim] // scale.shape[dim], dim)
    return scale


def fits_blocks(shape: Any, form: str) -> bool:
    """Returns whether blocks of a format divide the last of some known sizes."""
    is_known = bool(shape) and isinstance(shape[-1], int)
    return is_known and shape[-1] % BLOCK_FORMATS[form].block == 0 and math.prod(shape[-1:]) > 0
