"""Images in other sizes, and at other places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchtrt.tensorrt import trt
from torchtrt_converters_aten_core.impl import resizing as impl
from torchtrt_converters_aten_core.impl import sizes, types
from torchtrt_converters_aten_core.impl.layers import add_layer
from torchtrt_converters_aten_core.registration import (
    arguments,
    converts,
    node_arguments,
    value_of,
)

aten = torch.ops.aten

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """How an op resamples: TensorRT's names, without ``align_corners``."""

    mode: str
    coordinates: str
    rounding: str = "FLOOR"


_NEAREST = Kind("NEAREST", "ASYMMETRIC")
_EXACT = Kind("NEAREST", "HALF_PIXEL", "HALF_UP")
_LINEAR = Kind("LINEAR", "HALF_PIXEL")
_CUBIC = Kind("CUBIC", "HALF_PIXEL")
KINDS = {
    getattr(getattr(aten, packet), overload): kind
    for packet, kind in (
        ("upsample_nearest1d", _NEAREST),
        ("upsample_nearest2d", _NEAREST),
        ("upsample_nearest3d", _NEAREST),
        ("_upsample_nearest_exact1d", _EXACT),
        ("_upsample_nearest_exact2d", _EXACT),
        ("_upsample_nearest_exact3d", _EXACT),
        ("upsample_linear1d", _LINEAR),
        ("upsample_bilinear2d", _LINEAR),
        ("upsample_trilinear3d", _LINEAR),
        ("upsample_bicubic2d", _CUBIC),
    )
    for overload in ("default", "vec")
}


def _scales(op: Any, count: int) -> list[Any]:
    if hasattr(op, "scale_factors"):
        return list(op.scale_factors) if op.scale_factors is not None else [None] * count
    labels = ("scales",) if count == 1 else ("scales_d", "scales_h", "scales_w")[-count:]
    return [getattr(op, label) for label in labels]


def _unfit(node: Node) -> str | None:
    op = node_arguments(node)
    tensor = value_of(op.input if hasattr(op, "input") else op.self)
    if tensor.dtype not in (torch.float32, torch.float16, torch.float64):
        return "TensorRT resamples float32 and float16 only"
    count = tensor.dim() - 2
    for size, scale in zip(tensor.shape[2:], _scales(op, count), strict=True):
        if scale is None or getattr(op, "align_corners", False):
            continue
        if not isinstance(scale, (int, float)):
            return "the scale factors must be fixed"
        # TensorRT takes the ratio of the sizes; a scale that gives a whole size for every input is that ratio.
        exact = (
            float(scale).is_integer() if not isinstance(size, int) else (size * scale).is_integer()
        )
        if not exact:
            return "PyTorch samples by the scale factor, TensorRT by the ratio of the sizes, and here they differ"
    return None


@converts(*KINDS, unless=_unfit)
def resize(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts resampling by the nearest element, or linear or cubic interpolation."""
    op = arguments(target, args, kwargs)
    tensor = op.input if hasattr(op, "input") else op.self
    kind = KINDS[target]
    result = types.output_value(ctx).shape[2:]
    scales = _scales(op, len(result))
    extents = []
    for place, (known, scale) in enumerate(zip(result, scales, strict=True)):
        if isinstance(known, int):
            extents.append(known)
        elif op.output_size is not None:
            extents.append(op.output_size[place])
        else:
            size = sizes.size_of(ctx, tensor, place + 2, f"{name}/size{place}")
            extents.append(sizes.combine(ctx, "PROD", size, int(scale), f"{name}/extent{place}"))
    aligned = getattr(op, "align_corners", False)
    coordinates = "ALIGN_CORNERS" if aligned else kind.coordinates
    return impl.resize(ctx, tensor, extents, kind.mode, coordinates, name, kind.rounding)


_INTERPOLATION = ("LINEAR", "NEAREST", "CUBIC")
_OUTSIDE = ("FILL", "CLAMP", "REFLECT")


def _unfit_grid(node: Node) -> str | None:
    op = node_arguments(node)
    tensor, grid = value_of(op.input), value_of(op.grid)
    if tensor.dim() != 4 or tensor.dtype not in (torch.float32, torch.float16):
        return "TensorRT samples float32 and float16 images of two dimensions"
    if tensor.dtype is not grid.dtype:
        return "TensorRT samples by a grid of the image's dtype"
    return None


@converts(aten.grid_sampler_2d.default, aten.grid_sampler.default, unless=_unfit_grid)
def grid_sample(ctx: Any, target: Any, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Converts samples of an image at places that a grid tells."""
    op = arguments(target, args, kwargs)
    layer = add_layer(ctx, name, "grid_sample", op.input, op.grid)
    layer.interpolation_mode = getattr(trt.InterpolationMode, _INTERPOLATION[op.interpolation_mode])
    layer.sample_mode = getattr(trt.SampleMode, _OUTSIDE[op.padding_mode])
    layer.align_corners = op.align_corners
    return layer.get_output(0)
