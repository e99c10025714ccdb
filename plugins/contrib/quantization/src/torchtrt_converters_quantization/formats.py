"""The formats of quantized values, what TensorRT needs for each, and their arithmetic.

Everything here is plain arithmetic of PyTorch, so that weights can be replaced later: a compiled model repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchtrt.tensorrt import INT4 as INT4_DTYPE
from torchtrt.tensorrt import Capability, lacking

FP8_LIMIT = 448.0
"""The largest magnitude of E4M3."""
FP4_LIMIT = 6.0
"""The largest magnitude of E2M1."""
_FP4_MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Format:
    """A format of quantized values.

    Attributes:
        name: ``"INT8"``, ``"INT4"``, ``"FP8"`` (E4M3) or ``"FP4"`` (E2M1). Two formats compute the scales of blocks
            while the engine runs. ``"NVFP4"`` is E2M1 in blocks of 16 with scales of E4M3, and ``"MXFP8"`` is E4M3 in
            blocks of 32 with scales of E8M0.
        dtype: The dtype of TensorRT's weights.
        requires: What TensorRT needs to have.
        block: How many values share a scale, where the format determines it.
    """

    name: str
    dtype: torch.dtype
    requires: tuple[Capability, ...] = ()
    block: int = 0

    def objection(self) -> str:
        """Returns why the TensorRT in use lacks the format, with the version that has it, or ``""``."""
        return lacking(f"The format {self.name}", *self.requires)


_TYPED = Capability.TYPED_QUANTIZATION
FORMATS = {
    format_.name: format_
    for format_ in (
        Format("INT8", torch.int8),
        Format("INT4", INT4_DTYPE, (Capability.INT4, _TYPED)),
        Format("FP8", torch.float8_e4m3fn, (Capability.FP8, _TYPED)),
        Format("FP4", torch.float4_e2m1fn_x2, (Capability.FP4, _TYPED)),
    )
}
"""The formats of weights, and of values with known scales."""
BLOCK_FORMATS = {
    format_.name: format_
    for format_ in (
        Format(
            "NVFP4",
            torch.float4_e2m1fn_x2,
            (Capability.FP4, Capability.DYNAMIC_QUANTIZATION),
            16,
        ),
        Format(
            "MXFP8",
            torch.float8_e4m3fn,
            (Capability.FP8, Capability.E8M0, Capability.DYNAMIC_QUANTIZATION),
            32,
        ),
    )
}
"""The formats of values whose blocks get scales while the engine runs."""


def spread(scale: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Returns a scale for each element.

    Args:
        scale: A number, or of the rank of ``shape`` with a size that divides each of its sizes.
        shape: The shape of the values.
    """
    if scale.numel() == 1:
        return scale.reshape(())
    for dim, (blocks, size) in enumerate(zip(scale.shape, shape, strict=True)):
        if blocks not in (1, size):
            scale = scale.repeat_interleave(size // blocks, dim)
    return scale


def merged(scale: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """Returns in how many parts the dimensions of a weight are merged so that its blocks lie along one of the last two.

    Args:
        scale: The sizes of the scale, of the rank of ``shape``, which is more than two.
        shape: The sizes of the weight.

    Returns:
        How many dimensions become one: ``(1, 3)`` for a convolution whose blocks are runs of its filters, ``(1, 1, 2)``
        for blocks of its input channels. ``None`` if the blocks are otherwise.
    """
    rank = len(shape)
    if len(scale) != rank or rank < 3 or scale[0] != shape[0]:
        return None
    blocked = [dim for dim in range(1, rank) if scale[dim] != shape[dim]]
    if not blocked:
        return None
    if all(scale[dim] == 1 for dim in range(blocked[0] + 1, rank)):
        return 1, rank - 1
    return (1, 1, rank - 2) if blocked == [1] else None


def pack_fp4(values: Tensor) -> Tensor:
    """Returns E2M1 codes of values, rounded to nearest with ties to even, two a byte: uint8 ``(..., n / 2)``.

    Args:
        values: Floating point, ``(..., n)``, scaled; ``n`` is even.
    """
    magnitudes = values.to(torch.float32).abs()
    middles = torch.tensor(_FP4_MIDDLES, device=values.device)
    lower, upper = (
        torch.bucketize(magnitudes, middles, out_int32=True, right=right) for right in (False, True)
    )
    codes = torch.where(lower % 2 == 0, lower, upper) + 8 * (values < 0)
    codes = codes.to(torch.uint8)
    return codes[..., ::2] | (codes[..., 1::2] << 4)


def unpack_fp4(packed: Tensor) -> Tensor:
    """Returns the float32 values ``(..., 2 n)`` of E2M1 codes ``(..., n)``, the first in the low four bits."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).to(torch.int64)
    values = (*_FP4_VALUES, *(-value for value in _FP4_VALUES))
    return torch.tensor(values, device=packed.device)[codes]


def block_maxima(values: Tensor, block: int) -> Tensor:
    """Returns the largest magnitude of each block of the last dimension: float32 ``(..., n / block)``."""
    maxima: Tensor = values.to(torch.float32).unflatten(-1, (-1, block)).abs().amax(-1)
    return maxima


def nvfp4_scales(values: Tensor, scale: Tensor) -> Tensor:
    """Returns the scales of blocks of 16 in E4M3, relative to the scale of the tensor (NVIDIA's NVFP4)."""
    relative = block_maxima(values, 16) / (FP4_LIMIT * scale)
    return relative.clamp(2.0**-9, FP8_LIMIT).to(torch.float8_e4m3fn)


def mxfp8_scales(values: Tensor) -> Tensor:
    """Returns the scales of blocks of 32 as biased exponents of E8M0, uint8: 2^ceil(log2(maximum / 448))."""
    exponents = torch.log2(block_maxima(values, 32) / FP8_LIMIT).ceil().clamp(-127, 127)
    return (exponents + 127).to(torch.uint8)


def to_fp8(values: Tensor) -> Tensor:
    """Returns values as E4M3, rounded to nearest with ties to even; larger ones become 448."""
    return values.to(torch.float32).clamp(-FP8_LIMIT, FP8_LIMIT).to(torch.float8_e4m3fn)
