"""Linear interpolation by a factor, where TensorRT's layer would interpolate by the ratio of the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_blocks import sizes
from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


@pack.decomposition(aten.upsample_linear1d.vec)
def upsample_linear1d(*args: Any) -> Tensor:
    """Returns sequences in another length."""
    return _interpolate(aten.upsample_linear1d.vec, *args)


@pack.decomposition(aten.upsample_bilinear2d.vec)
def upsample_bilinear2d(*args: Any) -> Tensor:
    """Returns images in another size."""
    return _interpolate(aten.upsample_bilinear2d.vec, *args)


@pack.decomposition(aten.upsample_trilinear3d.vec)
def upsample_trilinear3d(*args: Any) -> Tensor:
    """Returns volumes in another size."""
    return _interpolate(aten.upsample_trilinear3d.vec, *args)


def _interpolate(
    op: Any,
    input: Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Tensor:
    """Returns what PyTorch's own decomposition does, for sizes of which the factors keep none.

    Eager PyTorch copies a dimension whose size stays (``upsample_bilinear2d`` on the CPU), or does so only if all stay
    (on CUDA); its decomposition interpolates. See ``aten/src/ATen/native``: ``UpSample.h``, ``cuda/UpSample*.cu``.

    Raises:
        NotImplementedError: A factor above 1 keeps a size, which then has the values of another function.
    """
    if not align_corners:
        for size, factor in zip(input.shape[2:], scale_factors or (), strict=False):
            least = max(sizes.minimum(size), 2)  # one element is copied either way
            if factor > 1 and int(least * factor) == least:
                raise NotImplementedError(
                    f"PyTorch copies what keeps its size, and the factor {factor} keeps a size of {least}"
                )
    result: Tensor = op.decompose(input, output_size, align_corners, scale_factors)
    return result
