"""How PyTorch resamples images, which converters and decompositions have to know."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchtrt_blocks import sizes

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Kind:
    """How an op resamples: TensorRT's names, without ``align_corners``."""

    mode: str
    coordinates: str
    rounding: str = "FLOOR"


NEAREST = Kind("NEAREST", "ASYMMETRIC")
EXACT = Kind("NEAREST", "HALF_PIXEL", "HALF_UP")
LINEAR = Kind("LINEAR", "HALF_PIXEL")
CUBIC = Kind("CUBIC", "HALF_PIXEL")
KINDS = {
    getattr(getattr(aten, packet), overload): kind
    for packet, kind in (
        ("upsample_nearest1d", NEAREST),
        ("upsample_nearest2d", NEAREST),
        ("upsample_nearest3d", NEAREST),
        ("_upsample_nearest_exact1d", EXACT),
        ("_upsample_nearest_exact2d", EXACT),
        ("_upsample_nearest_exact3d", EXACT),
        ("upsample_linear1d", LINEAR),
        ("upsample_bilinear2d", LINEAR),
        ("upsample_trilinear3d", LINEAR),
        ("upsample_bicubic2d", CUBIC),
    )
    for overload in ("default", "vec")
}
"""The ops that resample, and how."""


def unlike_formula(kind: Kind, count: int, size: int | torch.SymInt, factor: float) -> str | None:
    """Returns why eager PyTorch does not resample a size by a factor alone, or ``None``.

    Some of its functions copy a dimension that keeps its size, or repeat each element of one that becomes twice as
    long, whatever the factor is: see ``nearest_idx`` in ``aten/src/ATen/native/UpSample.h``, ``UpSampleKernel.cpp``
    beside it, and ``cuda/UpSample*.cu``. Which ones differs between the CPU and CUDA.

    Args:
        kind: How the op resamples.
        count: The number of spatial dimensions.
        size: The size, with the least one that it can be. A single element is copied either way.
        factor: The factor.
    """
    if kind.mode == "NEAREST" and count != 2:
        return None
    least = max(sizes.minimum(size), 2)
    if factor > 1 and int(least * factor) == least:
        return (
            f"PyTorch copies what keeps its size, and the factor {factor} keeps a size of {least}"
        )
    if kind is NEAREST and factor > 2 and int(least * factor) == 2 * least:
        return f"PyTorch repeats what doubles its size, and the factor {factor} doubles a size of {least}"
    return None
